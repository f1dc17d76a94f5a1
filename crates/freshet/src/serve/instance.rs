//! What all databases of an instance share.

use std::sync::Arc;

use anyhow::Result;
use freshet_proxy::{AccessRules, Pauses, ProcessMemory, QueryLog, StopRequest, Traces};

use crate::access::raise_descriptor_limit;
use crate::config::Resolved;

/// Given to each database when it is opened.
#[derive(Clone)]
pub(super) struct Instance {
    pub(super) rules: Arc<AccessRules>,
    pub(super) memory: Arc<ProcessMemory>,
    pub(super) query_log: Arc<QueryLog>,
    pub(super) stop: Arc<StopRequest>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) traces: Arc<Traces>,
    /// The number of databases.
    pub(super) count: u64,
    /// Descriptors that the process may have open.
    pub(super) files_max: usize,
}

impl Instance {
    pub(super) fn new(config: &Resolved) -> Result<Self> {
        let files_max = raise_descriptor_limit();
        Ok(Self {
            rules: AccessRules::new(&config.args.access.settings(files_max))?,
            memory: ProcessMemory::new(config.args.memory.0),
            query_log: Arc::default(),
            traces: Arc::default(),
            stop: Arc::default(),
            pauses: Arc::default(),
            count: config.databases.len().max(1) as u64,
            files_max,
        })
    }
}
