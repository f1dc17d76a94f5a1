//! What only the server can do at the start of a batch goes ahead, if all behind it can be answered from the cache.

use std::sync::Arc;

use freshet_sql::{Bracket, Isolation};
use freshet_types::Reason;

use crate::postgres::session::Session;
use crate::postgres::session::batch::{Group, Lead};
use crate::postgres::session::client::Step;
use crate::postgres::session::plan::Allowed;
use crate::statement::registry::Statement;

impl Session {
    /// All could be answered from the cache, but for the name that a statement gets: that is the server's to give.
    pub(super) fn name_first(&mut self, groups: &[Group<'_>], leading: &[u8]) -> Result<Step, Reason> {
        if !self.is_settled() || groups.iter().skip(1).any(Group::names_statement) {
            return Err(Reason::MessageShape);
        }
        Ok(self.send_lead(leading))
    }

    /// `BEGIN` goes ahead of what can be answered from the cache; None: the batch passes. A pipeline of psycopg's begins so.
    pub(super) fn begin_first(
        &mut self,
        allowed: &Allowed,
        groups: &[Group<'_>],
        statements: &[Arc<Statement>],
        messages: &[u8],
    ) -> Option<Step> {
        let Allowed::Cache { context } = allowed else { return None };
        let ([first, next, ..], [begin, reads @ ..]) = (groups, statements) else { return None };
        let Some(Bracket::Begin(isolation)) = begin.query.template.bracket() else { return None };
        let rest = groups.get(1..)?;
        let is_committed = isolation.or(self.server.settings.default_isolation) == Some(Isolation::ReadCommitted);
        let is_fit = is_committed
            && self.is_between_transactions()
            && first.start() == 0
            && !groups.iter().any(Group::names_statement)
            && !reads.iter().any(|statement| statement.is_never_cached);
        if !is_fit {
            return None;
        }
        match self.look_up_all(*context, rest, reads).ok()? {
            None => Some(Step::Wait),
            Some(hits) if hits.iter().all(Option::is_some) => Some(self.send_lead(messages.get(..next.start())?)),
            Some(_) => None,
        }
    }
}

/// Bytes of the messages that go ahead: those that only the server can answer, or else a `BEGIN`.
pub(super) fn bytes_ahead(groups: &[Group<'_>], lead: Lead) -> usize {
    if lead.bytes > 0 { lead.bytes } else { groups.get(1).map_or(0, Group::start) }
}
