//! The parts of the `freshet` program: command line, wiring, web endpoints, demo.

mod access;
mod allocator;
mod bypass;
mod check;
pub mod cli;
pub mod demo;
mod faults;
mod memory;
mod running;
mod serve;
mod stop;
mod uninstall;
mod web;
