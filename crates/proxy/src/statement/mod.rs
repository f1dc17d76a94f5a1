//! Statements, each analysed once.

pub(crate) mod registry;
