//! What the messages of one unit change among prepared statements, until the server has answered them: see [`super::renaming`].

use std::collections::VecDeque;

use freshet_wire::postgres::backend;

use crate::postgres::pooling::prepared::{Prepared, PreparedThere};
use crate::postgres::session::names::{Name, Names};

/// How a change is taken back.
#[derive(Debug)]
pub(crate) enum Undo {
    Nothing,
    /// The name stood for this.
    Name(Box<[u8]>, Option<Name>),
    /// The connection had it without need.
    Superfluous(Box<[u8]>),
    /// The connection had this under the number of an entry.
    Prepared(u64, Option<Prepared>),
}

/// A change by a message that the server has not answered.
#[derive(Debug)]
struct Change {
    /// The number of answers of the unit that come before.
    at: usize,
    /// The message is Freshet's.
    is_own: bool,
    undo: Undo,
}

/// The messages of a unit, each of which the server answers once, and the changes.
#[derive(Debug, Default)]
pub(crate) struct Renamed {
    sent: usize,
    answered: usize,
    changes: VecDeque<Change>,
    /// The answers to so many messages are waited for.
    awaited: Option<usize>,
}

impl Renamed {
    /// A message of the client is sent.
    pub(crate) fn note_sent(&mut self) {
        self.sent += 1;
    }

    /// The next message is one of the client's, and changes this.
    pub(crate) fn change(&mut self, undo: Undo) {
        self.changes.push_back(Change { at: self.sent, is_own: false, undo });
    }

    /// A message of Freshet's is sent, which changes this.
    pub(crate) fn change_by_own(&mut self, undo: Undo) {
        self.changes.push_back(Change { at: self.sent, is_own: true, undo });
        self.sent += 1;
    }

    /// Whether the answers to what was sent are still to come, and whether this is the first call since.
    pub(crate) fn await_answers(&mut self) -> (bool, bool) {
        let is_new = self.awaited.replace(self.sent) != Some(self.sent);
        (self.answered < self.sent, is_new)
    }

    /// A message of the client was answered.
    pub(crate) fn note_answered(&mut self) {
        self.answered += 1;
    }

    /// Whether the next answer makes a change certain.
    pub(crate) fn is_next(&self) -> bool {
        self.changes.front().is_some_and(|change| change.at == self.answered)
    }

    /// Whether there are changes that may not come to be.
    pub(crate) fn is_pending(&self) -> bool {
        !self.changes.is_empty()
    }

    /// A message of the server: whether it answers one of Freshet's.
    pub(crate) fn answers_own(&mut self, tag: u8) -> bool {
        let Some(next) = self.changes.front().filter(|change| change.at == self.answered) else { return false };
        let is_own = next.is_own;
        match tag {
            backend::NOTICE => return is_own,
            backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE => {}
            _ => return false,
        }
        while self.is_next() {
            self.changes.pop_front();
        }
        self.answered += usize::from(is_own);
        is_own
    }

    /// The server has skipped the messages that are not answered.
    pub(crate) fn take_back(&mut self, names: &mut Names, prepared: &mut PreparedThere) {
        for change in self.changes.drain(..).rev() {
            match change.undo {
                Undo::Nothing => {}
                Undo::Name(name, before) => drop(names.set(&name, before)),
                Undo::Superfluous(name) => names.note_superfluous(&name),
                Undo::Prepared(_, Some(before)) => prepared.insert(before),
                Undo::Prepared(number, None) => drop(prepared.remove(number)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_own_messages_are_told_from_the_clients() {
        let mut unit = Renamed::default();
        unit.change_by_own(Undo::Nothing); // Close
        unit.change_by_own(Undo::Nothing); // Parse
        unit.note_sent(); // Bind
        unit.change(Undo::Nothing); // Close of the client's
        unit.change(Undo::Nothing);
        unit.note_sent();
        assert!(unit.is_next() && unit.answers_own(backend::NOTICE) && !unit.answers_own(backend::ERROR));
        assert!(unit.answers_own(backend::CLOSE_COMPLETE) && unit.answers_own(backend::PARSE_COMPLETE));
        assert!(!unit.is_next() && !unit.answers_own(backend::BIND_COMPLETE));
        unit.note_answered();
        assert!(unit.is_next() && !unit.answers_own(backend::CLOSE_COMPLETE) && !unit.is_pending());
    }
}
