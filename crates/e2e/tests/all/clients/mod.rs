//! Real programs and drivers work unchanged.

mod languages;
mod python;
mod tools;
