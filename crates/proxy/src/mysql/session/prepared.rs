//! The session's prepared statements: the server's numbers, and the statements.
//!
//! A statement keeps the meaning that its text had with the settings at its prepare, above all the default database. It is looked up only while the
//! session is known to have the same settings.

use std::collections::HashMap;
use std::sync::Arc;

use freshet_sql::Code;
use freshet_types::{CatalogVersion, Reason};
use rapidhash::quality::RandomState;

use crate::statement::registry::Statement;

/// Named statements remembered for a session; further ones pass.
const STATEMENTS_MAX: usize = 16_384;
/// Stands for the statement that was prepared last (MariaDB).
pub(crate) const LAST: u32 = u32::MAX;

/// The settings at a statement's prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreparedUnder {
    /// Those of a context with this number, [`crate::session::context::Context::settings`].
    Context(u32),
    /// Those of this era.
    Era(u64),
}

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The statement; Err: why it is not known.
    pub(crate) statement: Result<Arc<Statement>, Reason>,
    /// The temporary tables that it may make, if the statement is not known.
    pub(crate) unread: Option<Arc<Code>>,
    pub(crate) under: PreparedUnder,
    /// The catalogue in use when the client last received its columns.
    pub(crate) catalog: CatalogVersion,
    /// The number of its parameters.
    pub(crate) parameters: u16,
    /// The types that the client has sent last; None: unknown.
    pub(crate) types: Option<Arc<[u8]>>,
    /// The server has received the same types. If not, a hit took the message.
    pub(crate) server_knows_types: bool,
    /// Pieces of parameters were sent, or a cursor may be open: only the server can answer the next command.
    pub(crate) involved: bool,
}

/// All statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Prepareds {
    by_number: HashMap<u32, Prepared, RandomState>,
    last: Option<u32>,
    /// There were more than the limit.
    more: bool,
}

impl Prepareds {
    pub(crate) fn insert(&mut self, number: u32, prepared: Prepared) {
        self.last = Some(number);
        if self.by_number.len() < STATEMENTS_MAX || self.by_number.contains_key(&number) {
            self.by_number.insert(number, prepared);
        } else {
            self.more = true;
        }
    }

    /// A statement that is not here is not known to the server either.
    pub(crate) fn are_all(&self) -> bool {
        !self.more
    }

    /// Whether the server has none.
    pub(crate) fn are_none(&self) -> bool {
        self.by_number.is_empty() && !self.more
    }

    /// A prepare failed: there is no last statement.
    pub(crate) fn forget_last(&mut self) {
        self.last = None;
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Prepared> {
        self.by_number.get(&self.number_of(number)?)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Prepared> {
        let number = self.number_of(number)?;
        self.by_number.get_mut(&number)
    }

    /// The server's number of a statement.
    pub(crate) fn number_of(&self, number: u32) -> Option<u32> {
        if number == LAST { self.last } else { Some(number) }
    }

    /// Removes a statement; returns its number, if it existed.
    pub(crate) fn remove(&mut self, number: u32) -> Option<u32> {
        let number = self.number_of(number)?;
        self.by_number.remove(&number).map(|_| number)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
