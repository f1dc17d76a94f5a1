//! PostgreSQL's protocol, version 3 (manual, part "Frontend/Backend Protocol").

pub mod backend;
pub mod frame;
pub mod frontend;
pub mod pgoutput;
pub mod replication;
pub mod startup;
pub mod table;
