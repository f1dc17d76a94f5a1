//! The parts of the `freshet` program: command line, wiring, web endpoints, demo.

mod access;
pub mod cli;
pub mod demo;
mod serve;
mod web;
