//! What the session's last statement met, for EXPLAIN LAST STATEMENT.
//!
//! A hit notes nothing for it. What is sent to the server is noted; a session knows for other purposes whether a hit came after that.

use std::sync::{Arc, Weak};

use freshet_types::{Nanos, Reason};

use crate::statement::registry::{NormalizedQuery, Statement};

/// The last statement, as far as it is noted.
#[derive(Debug, Default)]
pub(crate) struct Last {
    /// When the last hit was first looked up; 0: a statement was sent since.
    pub(crate) looked_up_at: Nanos,
    /// The last statement that was sent to the server.
    sent: Option<Sent>,
}

#[derive(Debug)]
struct Sent {
    /// Dangling if it is not known. Weak, since an idle session must not keep a statement that is evicted.
    query: Weak<NormalizedQuery>,
    /// Why it passed; None: it was a fill.
    passed: Option<Reason>,
    /// The replica that has answered it, by its place in the connection string.
    replica: Option<usize>,
}

/// What a statement met.
#[derive(Debug)]
pub(crate) enum Met {
    Hit,
    Fill,
    Pass(Reason),
}

/// For EXPLAIN LAST STATEMENT.
#[derive(Debug)]
pub(crate) struct LastStatement {
    /// None: it is not known.
    pub(crate) query: Option<Arc<NormalizedQuery>>,
    pub(crate) met: Met,
    /// See [`Sent::replica`].
    pub(crate) replica: Option<usize>,
}

impl LastStatement {
    pub(crate) fn hit(query: Option<Arc<NormalizedQuery>>) -> Self {
        Self { query, met: Met::Hit, replica: None }
    }
}

impl Last {
    /// A statement is sent to the server, to be cached.
    pub(crate) fn fills(&mut self, statement: Option<&Arc<Statement>>) {
        self.sends(statement, None);
    }

    /// A statement is sent to the server, or is refused.
    pub(crate) fn passes(&mut self, statement: Option<&Arc<Statement>>, reason: &Reason) {
        self.sends(statement, Some(reason.clone()));
    }

    /// The same of either kind. `passed`: why it passes.
    pub(crate) fn sends(&mut self, statement: Option<&Arc<Statement>>, passed: Option<Reason>) {
        let query = statement.map_or_else(Weak::new, |statement| Arc::downgrade(&statement.query));
        self.sent = Some(Sent { query, passed, replica: None });
        self.looked_up_at = 0;
    }

    /// This replica has answered it.
    pub(crate) fn note_replica(&mut self, at: Option<usize>) {
        if let Some(sent) = &mut self.sent {
            sent.replica = at;
        }
    }

    /// The last statement that was sent; None: there was none.
    pub(crate) fn sent(&self) -> Option<LastStatement> {
        let Sent { query, passed, replica } = self.sent.as_ref()?;
        let met = passed.clone().map_or(Met::Fill, Met::Pass);
        Some(LastStatement { query: query.upgrade(), met, replica: *replica })
    }
}
