//! Results for people: a table for the terminal, Markdown, HTML, a comparison of two runs. For programs: CSV.
//!
//! Everything is computed from the document of a run ([`crate::result`]), so an old document can be shown again. `summary` combines the rounds of a
//! target, `columns` formats its figures, and the other modules arrange them.

pub mod card;
mod columns;
mod comparison;
mod csv;
mod entry;
#[cfg(test)]
mod example;
mod extra;
mod figures;
mod grid;
pub mod histogram;
mod html;
mod main_table;
mod markdown;
mod page;
mod read;
pub mod sizing;
mod summary;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

pub use comparison::comparison;
pub use entry::Entry;
pub use extra::{Document, Extra, read_any};
pub use main_table::main_table;
pub use markdown::markdown;
pub use page::{PageArgs, write_extras};
pub use read::read;
pub use terminal::cell_table;
