//! What all databases of an instance share.

use std::sync::Arc;

use freshet_proxy::{AccessRules, ProcessMemory, QueryLog};

/// It is given to each database as it is opened.
pub(super) struct Instance {
    pub(super) rules: Arc<AccessRules>,
    pub(super) memory: Arc<ProcessMemory>,
    pub(super) query_log: Arc<QueryLog>,
    /// The number of databases.
    pub(super) count: u64,
    /// Descriptors that the process may have open.
    pub(super) files_max: usize,
}
