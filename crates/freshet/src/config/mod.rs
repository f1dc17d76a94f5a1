//! The configuration of `freshet serve`: command line, environment and file.
//!
//! The definition of the command line is the only one. A key of the file is the long name of an option with `_` in place of `-`. An environment
//! variable is the key in capitals after `FRESHET_`. The values of the file become the defaults of the options before the command line is parsed. So
//! the parser itself keeps the order of precedence: command line, environment, file, default. The reference, the JSON schema, the example file and
//! `SHOW CONFIG` are derived from the same definition.

mod commands;
mod created_rules;
mod databases;
mod definition;
mod entry;
mod fault;
mod file;
mod pgbouncer;
mod resolve;
mod rule_warnings;
mod rules;
mod running;
mod setting;
mod show;
mod state_file;
mod written;

pub(crate) use commands::{ConfigCommand, run};
pub(crate) use databases::DatabaseConfig;
pub(crate) use definition::command;
pub(crate) use fault::Fault;
pub(crate) use resolve::{Resolved, environment_faults, read};
pub(crate) use running::Running;
pub(crate) use setting::Source;
