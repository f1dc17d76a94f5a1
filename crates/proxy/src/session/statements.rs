//! The prepared statements of a session, as far as the proxy has seen them.
//!
//! What is not in here is unknown, and unknown statements pass: forgetting is always safe.

use std::collections::HashMap;
use std::sync::Arc;

use crate::registry::Statement;

/// Named statements remembered per session; further ones pass.
const NAMED_MAX: usize = 10_000;

/// How the upstream's unnamed statement relates to the client's view of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// The same, or unknown.
    #[default]
    InStep,
    /// The upstream has not seen the client's last `Parse`, which was answered from here.
    Unsent,
    /// The client's was dropped by a `Query` that was answered from here.
    Dropped,
}

/// The statements.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    named: HashMap<Box<[u8]>, Arc<Statement>>,
    unnamed: Option<Arc<Statement>>,
    unnamed_state: Unnamed,
    /// The `Parse` that the upstream has not seen; kept to avoid an allocation per hit.
    unsent_parse: Vec<u8>,
}

impl Statements {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// `Parse` went upstream.
    pub(crate) fn sent(&mut self, name: &[u8], statement: Option<Arc<Statement>>) {
        if name.is_empty() {
            self.unnamed = statement;
            self.unnamed_state = Unnamed::InStep;
        } else if let Some(statement) = statement.filter(|_| self.named.len() < NAMED_MAX) {
            self.named.insert(name.into(), statement);
        } else {
            self.named.remove(name);
        }
    }

    /// `Parse` of the unnamed statement was answered from here.
    pub(crate) fn kept_unnamed(&mut self, statement: &Arc<Statement>, parse: &[u8]) {
        self.unnamed = Some(statement.clone());
        self.unnamed_state = Unnamed::Unsent;
        self.unsent_parse.clear();
        self.unsent_parse.extend_from_slice(parse);
    }

    /// `Query` was answered from here: PostgreSQL would have dropped the unnamed statement.
    pub(crate) fn query_answered(&mut self) {
        if self.unnamed.take().is_some() {
            self.unnamed_state = Unnamed::Dropped;
        }
    }

    /// `Query` went upstream, which drops the unnamed statement.
    pub(crate) fn query_sent(&mut self) {
        self.unnamed = None;
        self.unnamed_state = Unnamed::InStep;
    }

    /// What must be sent before the next message may use the unnamed statement, if anything.
    pub(crate) fn catch_up(&mut self) -> Option<(Unnamed, &[u8])> {
        match std::mem::take(&mut self.unnamed_state) {
            Unnamed::InStep => None,
            state => Some((state, &self.unsent_parse)),
        }
    }

    pub(crate) fn forget(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    /// Any statement may be gone.
    pub(crate) fn forget_all(&mut self) {
        self.named.clear();
        self.unnamed = None;
    }
}
