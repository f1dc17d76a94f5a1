//! The session's prepared statements, by the numbers that the client knows: the server's numbers, or the session's own ([`super::own_statements`]).
//!
//! A statement keeps the meaning that its text had with the settings at its prepare, above all the default database. It is looked up only while the
//! session is known to have the same settings.

use std::collections::HashMap;
use std::sync::Arc;

use freshet_sql::Code;
use freshet_types::{CatalogVersion, Reason};
use rapidhash::quality::RandomState;

use crate::mysql::session::there::Key;
use crate::statement::registry::Statement;

/// Named statements remembered for a session; further ones pass.
const STATEMENTS_MAX: usize = 16_384;
/// Statements of a session that go with it from one connection to another.
const CARRIED_MAX: usize = 1_024;
/// Stands for the statement that was prepared last (MariaDB).
pub(crate) const LAST: u32 = u32::MAX;
/// The first number of a session's own: beyond those that a server reaches.
pub(super) const FIRST: u32 = 1 << 30;

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
    /// If it is not `No`, only the server can answer the next command.
    pub(crate) involved: Involved,
    /// None: its number is the server's.
    pub(super) own: Option<Own>,
}

/// What a statement has on the server beside its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Involved {
    No,
    /// Pieces of parameters were sent.
    LongData,
    /// A cursor may be open.
    Cursor,
}

/// A statement whose number is the session's own.
#[derive(Debug)]
pub(super) struct Own {
    /// What its text depends on, see [`super::there::Key`]; None: the statement stays on the connection where it was prepared.
    pub(super) meaning: Option<Arc<[u8]>>,
    /// None: it is not prepared on the session's connection.
    pub(super) here: Option<Here>,
    /// A larger number if it was used later.
    pub(super) used: u64,
}

/// A statement on the session's connection.
#[derive(Debug)]
pub(super) struct Here {
    /// The server's number of it.
    pub(super) number: u32,
    /// The types of parameters with which it was executed; None: it never was.
    pub(super) types: Option<Arc<[u8]>>,
    /// It was executed with several types, or some that are not known.
    pub(super) is_mixed: bool,
}

impl Prepared {
    /// A statement that was not executed yet, with this number of parameters.
    pub(super) fn new(
        statement: Result<Arc<Statement>, Reason>,
        under: PreparedUnder,
        (catalog, parameters): (CatalogVersion, u16),
    ) -> Self {
        Self {
            statement,
            unread: None,
            under,
            catalog,
            parameters,
            types: None,
            server_knows_types: false,
            involved: Involved::No,
            own: None,
        }
    }

    /// The server's number of it; None: it is not prepared on the session's connection.
    pub(super) fn here(&self) -> Option<u32> {
        Some(self.own.as_ref()?.here.as_ref()?.number)
    }

    /// What it is for other sessions, with the types that the client has sent last.
    pub(super) fn key(&self) -> Option<Key> {
        let meaning = self.own.as_ref()?.meaning.clone()?;
        let statement = self.statement.as_ref().ok()?.id;
        Some(Key { meaning, statement, types: self.types.clone() })
    }

    /// What the server knows behind the message that is sent: the types that the client has sent last. Returns whether it has known them before.
    pub(super) fn tell_types(&mut self) -> bool {
        if let Some(here) = self.own.as_mut().and_then(|own| own.here.as_mut()) {
            here.is_mixed |= here.types.is_some() && here.types != self.types;
            here.types.clone_from(&self.types);
        }
        std::mem::replace(&mut self.server_knows_types, true)
    }

    /// The server may not have read the types of a message that was sent.
    pub(super) fn forget_types_there(&mut self) {
        if self.own.is_some() {
            self.mix_types();
            self.server_knows_types = false;
        }
    }

    /// The server receives a message with types that Freshet does not read.
    pub(super) fn mix_types(&mut self) {
        if let Some(here) = self.own.as_mut().and_then(|own| own.here.as_mut()) {
            here.is_mixed = true;
        }
    }
}

/// All statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Prepareds {
    by_number: HashMap<u32, Prepared, RandomState>,
    last: Option<u32>,
    /// There were more than the limit.
    more: bool,
    /// How many numbers of the session's own were given.
    given: u32,
    /// The numbers of those with numbers of the session's own that are prepared on its connection.
    pub(super) here: Vec<u32>,
    /// How often one of them has left a connection.
    uses: u64,
    /// Those with numbers of the session's own that the client has closed, and that may still be executed.
    closing: Vec<(u32, Prepared)>,
}

impl Prepareds {
    pub(crate) fn insert(&mut self, number: u32, prepared: Prepared) {
        self.last = Some(number);
        if prepared.here().is_some() {
            self.here.push(number);
        }
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
        self.take(number).map(|(number, _)| number)
    }

    /// Removes a statement.
    pub(super) fn take(&mut self, number: u32) -> Option<(u32, Prepared)> {
        let number = self.number_of(number)?;
        let prepared = self.by_number.remove(&number)?;
        Some((number, prepared))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { given: self.given, ..Self::default() };
    }

    /// Whether further ones stay on their connections.
    pub(super) fn are_many(&self) -> bool {
        self.by_number.len() >= CARRIED_MAX
    }

    /// Whether no more are remembered.
    pub(super) fn are_full(&self) -> bool {
        self.by_number.len() >= STATEMENTS_MAX
    }

    /// A number of the session's own for the next statement.
    pub(super) fn give_number(&mut self) -> u32 {
        loop {
            self.given = (self.given + 1) % FIRST;
            let number = FIRST + self.given;
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }

    /// Whether there are statements that are not prepared on the session's connection.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.by_number.len() + self.closing.len() > self.here.len()
    }

    /// Those that are not prepared on the session's connection, and mean this; at most so many, which were used last.
    pub(super) fn elsewhere(&self, meaning: &[u8], most: usize) -> Vec<u32> {
        let means = |own: &&Own| own.here.is_none() && own.meaning.as_deref() == Some(meaning);
        let used = |prepared: &Prepared| prepared.own.as_ref().filter(means).map(|own| own.used);
        let all = self.by_number.iter();
        let mut all: Vec<_> = all.filter_map(|(number, prepared)| Some((used(prepared)?, *number))).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.into_iter().take(most).map(|(_, number)| number).collect()
    }

    /// Takes the numbers of those on the session's connection, which leave it.
    pub(super) fn leave(&mut self) -> Vec<u32> {
        for number in &self.here {
            self.uses += 1;
            if let Some(own) = self.by_number.get_mut(number).and_then(|prepared| prepared.own.as_mut()) {
                own.used = self.uses;
            }
        }
        std::mem::take(&mut self.here)
    }

    /// Those on the session's connection, also if the client has closed them and they may still be executed.
    pub(super) fn all_here(&self) -> impl Iterator<Item = &Prepared> {
        let closed = |number| self.closing.iter().find(|(closed, _)| *closed == number).map(|(_, prepared)| prepared);
        self.here.iter().filter_map(move |number| self.by_number.get(number).or_else(|| closed(*number)))
    }

    /// Whether the server has pieces of a parameter of one of them.
    pub(super) fn have_pieces(&self) -> bool {
        self.all_here().any(|prepared| prepared.involved == Involved::LongData)
    }

    /// Whether one of them has this number of the server's.
    pub(super) fn have_here(&self, number: u32) -> bool {
        self.all_here().any(|prepared| prepared.here() == Some(number))
    }

    /// One of them, also if the client has closed it and it may still be executed.
    pub(super) fn of_hit(&mut self, number: u32) -> Option<&mut Prepared> {
        let number = self.number_of(number)?;
        let Self { by_number, closing, .. } = self;
        let closed = closing.iter_mut().find(|(closed, _)| *closed == number).map(|(_, prepared)| prepared);
        closed.or_else(|| by_number.get_mut(&number))
    }

    /// The client has closed a statement that may still be executed.
    pub(super) fn close_later(&mut self, number: u32, prepared: Prepared) {
        self.closing.push((number, prepared));
    }

    pub(super) fn are_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Takes the closed ones that will not be executed any more.
    pub(super) fn take_closed(&mut self, runs: impl Fn(u32) -> bool) -> Vec<Prepared> {
        let taken: Vec<_> = self.closing.extract_if(.., |(number, _)| !runs(*number)).collect();
        self.here.retain(|number| taken.iter().all(|(closed, _)| closed != number));
        taken.into_iter().map(|(_, prepared)| prepared).collect()
    }
}
