//! The parts of the `freshet` program: command line, wiring, web endpoints, demo.

pub mod cli;
pub mod demo;
mod serve;
mod web;
