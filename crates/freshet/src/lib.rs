//! The parts of the `freshet` program: command line, wiring, web endpoints.

mod access;
mod advise;
mod allocator;
mod bypass;
mod check;
pub mod cli;
mod config;
mod doctor;
mod endpoint;
mod exit;
mod exposition;
mod faults;
mod handover;
mod logging;
mod memory;
mod notify;
mod otlp;
mod pages;
mod pool;
mod probe;
mod running;
mod serve;
mod stop;
mod top;
mod uninstall;
mod version;
mod web;
