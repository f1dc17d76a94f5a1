//! Sans-IO codecs: every untrusted byte is parsed here and nowhere else.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod mysql;
pub mod postgres;
pub mod reader;
