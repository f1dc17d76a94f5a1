//! Statements, each analysed once.

pub(crate) mod registry;
pub(crate) mod report;
