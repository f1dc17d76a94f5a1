//! The session's prepared statements: the server's numbers, and what they mean.
//!
//! A statement keeps the meaning that its text had under the settings at its prepare (the default database above all). It is
//! looked up only while the session is known to have the same.

use std::collections::HashMap;
use std::sync::Arc;

use freshet_sql::Code;
use freshet_types::{CatalogVersion, Reason};
use rapidhash::quality::RandomState;

use crate::statement::registry::Statement;

/// Statements remembered per session; further ones pass.
const STATEMENTS_MAX: usize = 16_384;
/// Stands for the statement that was prepared last (MariaDB).
pub(crate) const LAST: u32 = u32::MAX;

/// The settings at a statement's prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreparedUnder {
    /// Those of a context with this number of [`crate::session::context::Context::settings`].
    Context(u32),
    /// Those of this era.
    Era(u64),
}

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// What it is; an error: why that is not known.
    pub(crate) statement: Result<Arc<Statement>, Reason>,
    /// What it may make, if it is not known what it is.
    pub(crate) unread: Option<Arc<Code>>,
    pub(crate) under: PreparedUnder,
    /// The catalogue in use when the client last learned its columns.
    pub(crate) catalog: CatalogVersion,
    /// Its parameters.
    pub(crate) parameters: u16,
    /// Types that the client has sent last; None: they are not known.
    pub(crate) types: Option<Arc<[u8]>>,
    /// The server has been sent the same. If not, a hit took them.
    pub(crate) server_knows_types: bool,
    /// Pieces of parameters have been sent, or a cursor may be open: what is asked next is for the server to answer.
    pub(crate) involved: bool,
}

/// All of a session.
#[derive(Debug, Default)]
pub(crate) struct Prepareds {
    by_number: HashMap<u32, Prepared, RandomState>,
    last: Option<u32>,
    /// There were more than are remembered.
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

    /// What is not here is not known to the server either.
    pub(crate) fn are_all(&self) -> bool {
        !self.more
    }

    /// A prepare failed: the last one is none.
    pub(crate) fn forget_last(&mut self) {
        self.last = None;
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Prepared> {
        let number = self.number_of(number)?;
        self.by_number.get_mut(&number)
    }

    /// The server's own number of a statement.
    pub(crate) fn number_of(&self, number: u32) -> Option<u32> {
        if number == LAST { self.last } else { Some(number) }
    }

    /// Its own number, if it was there.
    pub(crate) fn remove(&mut self, number: u32) -> Option<u32> {
        let number = self.number_of(number)?;
        self.by_number.remove(&number).map(|_| number)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
