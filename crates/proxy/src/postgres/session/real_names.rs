//! Where sessions share server connections: SQL that names prepared statements, and what the server says of them.
//!
//! EXECUTE, DEALLOCATE and `pg_prepared_statements` know the names on the connection, which are those of entries ([`super::renaming`]). Before a
//! statement that may name one of the session's, it is prepared under its own name. So it keeps the connection, as one of PREPARE does, until it is
//! closed.

use std::sync::Arc;

use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame::{HEADER_BYTES, Header};
use freshet_wire::postgres::frontend;

use crate::postgres::pooling::entries::PREFIX;
use crate::postgres::pooling::rest_question::Lives;
use crate::postgres::session::Session;
use crate::postgres::session::client_side::OpenBatch;
use crate::postgres::session::names::{Defined, Name};
use crate::postgres::session::own_statements::OwnStatements;
use crate::postgres::session::renamed::Renamed;
use crate::postgres::session::unit::{Ask, Unit};
use crate::statement::registry::{OfPrepared, Statement};

/// Freshet's statement that drops all.
const DROP: &[u8] = b"_freshet_drop";

/// The tags of statements that drop all prepared statements.
const DROPPED: [&[u8]; 2] = [b"DISCARD ALL\0", b"DEALLOCATE ALL\0"];

/// Whether a statement may name this one.
fn may_name(statement: &Statement, name: &[u8]) -> bool {
    let text = statement.text();
    text.len() >= name.len() && text.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name))
}

/// Whether a statement drops all, and the session's names are of no use to it.
fn drops_all(statement: &Statement) -> bool {
    let text = statement.query.text.to_ascii_lowercase();
    ["deallocate all", "deallocate prepare all"].iter().any(|words| words.split(' ').eq(text.split_ascii_whitespace()))
}

impl Session {
    /// Whether a statement that passes may name the session's prepared statements, or list them.
    pub(super) fn shows_names(&self, statement: Option<&Arc<Statement>>) -> bool {
        let Some(statement) = statement.filter(|statement| statement.says.of_prepared != OfPrepared::Nothing) else {
            return false;
        };
        // In a failed transaction nothing can be prepared, and the statement fails.
        let may_prepare = matches!(self.transaction.status(), backend::STATUS_IDLE | backend::STATUS_BLOCK);
        self.server.sharing.is_some() && may_prepare && !drops_all(statement)
    }

    /// Prepares them under their names. The list shows nothing else.
    pub(super) fn make_names_real(&mut self, statement: &Statement) {
        let lists = statement.says.of_prepared == OfPrepared::Lists;
        self.close_superfluous();
        let Some(sharing) = &mut self.server.sharing else { return };
        let is_named = |(name, _): &(&[u8], &Defined)| lists || may_name(statement, name);
        let named = sharing.names.all_shared().filter(is_named);
        let named: Vec<(Box<[u8]>, Defined)> = named.map(|(name, defined)| (name.into(), defined.clone())).collect();
        let out = self.server.socket.output.buffer();
        for (name, defined) in &named {
            frontend::put_close_statement(out, name);
            frontend::put_parse_again(out, name, &defined.entry.definition);
            frontend::put_sync(out);
            sharing.names.set(name, Some(Name::Own));
            sharing.names.take_superfluous(name);
            self.pipeline.push_own(Ask::UnnamedStatement);
        }
        let is_new = !lists && sharing.names.note_unknown();
        if is_new || !named.is_empty() {
            sharing.traces.note_prepared();
        }
        if !lists {
            return;
        }
        let names: Vec<Box<[u8]>> =
            sharing.prepared.take_all().iter().map(|there| there.entry().name.clone()).collect();
        self.close_by_name(&names);
    }

    /// Closes statements on the connection; false: there are none.
    fn close_by_name(&mut self, names: &[Box<[u8]>]) -> bool {
        let out = self.server.output();
        for name in names {
            frontend::put_close_statement(out, name);
        }
        if !names.is_empty() {
            frontend::put_sync(out);
            self.pipeline.push_own(Ask::UnnamedStatement);
        }
        !names.is_empty()
    }

    /// At rest: closes names that the connection has without need; false: there are none.
    pub(super) fn close_superfluous(&mut self) -> bool {
        let Some(sharing) = &mut self.server.sharing else { return false };
        let names = sharing.names.take_all_superfluous();
        self.close_by_name(&names)
    }

    /// Before the connection is given back: closes what it must not keep; false: there is nothing.
    pub(super) fn close_private(&mut self) -> bool {
        let Some(sharing) = &mut self.server.sharing else { return false };
        let most = self.shared.pooling.pools.settings().prepared_max;
        let closed = sharing.prepared.take_private().into_iter().chain(sharing.prepared.take_above(most));
        let names: Vec<_> = closed.map(|there| there.entry().name.clone()).collect();
        self.close_by_name(&names)
    }

    /// The server has told what lives on the connection.
    pub(super) fn statements_known(&mut self, lives: Option<&Lives>) {
        let is_between =
            self.pipeline.is_empty() && *self.client.batch() == OpenBatch::None && !self.client.is_within_message();
        let Some((sharing, lives)) = self.server.sharing.as_mut().zip(lives) else { return };
        let has_own = lives.has("prepared_statement");
        if !has_own {
            sharing.names.own_are_gone();
        }
        if lives.entries() == Some(sharing.prepared_asked) || has_own {
            return;
        }
        // A function has dropped some, unseen.
        if !is_between {
            return sharing.traces.note_prepared(); // asked again at rest
        }
        sharing.prepared.take_all();
        self.server.own = OwnStatements::default();
        let out = self.server.output();
        frontend::put_close_statement(out, DROP);
        frontend::put_parse(out, DROP, b"DEALLOCATE ALL");
        frontend::put_bind_execute(out, DROP, &[]);
        frontend::put_sync(out);
        self.pipeline.push_own(Ask::UnnamedStatement);
    }

    /// A statement of the client is complete; false: the message that says so is not. Its tag tells whether it has dropped all prepared statements.
    pub(super) fn note_drop(&mut self, head: Header) -> bool {
        let may_drop = self.server.sharing.is_some() && head.tag == backend::COMMAND_COMPLETE;
        if !may_drop || !matches!(self.pipeline.front(), Some(Unit::Client(unit)) if unit.effects.forgets) {
            return true;
        }
        let Some(message) = self.server.received().get(..head.frame_bytes) else { return false };
        let is_drop = DROPPED.iter().any(|tag| message.ends_with(tag));
        if is_drop {
            self.statements_are_dropped();
        }
        true
    }

    /// Answers an error that has the name of an entry, with the client's name in its place; false: the error is the client's as it is.
    pub(super) fn answer_renamed(&mut self, error: &[u8]) -> bool {
        let Some(sharing) = &self.server.sharing else { return false };
        let Some(at) = error.windows(PREFIX.len()).position(|part| part == PREFIX.as_bytes()) else { return false };
        let (before, behind) = error.split_at(at);
        let digits = behind.iter().skip(PREFIX.len()).take_while(|byte| byte.is_ascii_digit()).count();
        let (name, behind) = behind.split_at(PREFIX.len() + digits);
        let Some((own, _)) = sharing.names.all_shared().find(|(_, defined)| *defined.entry.name == *name) else {
            return false;
        };
        let body = [before.get(HEADER_BYTES..).unwrap_or_default(), own, behind].concat();
        backend::put_message(self.client.output(), backend::ERROR, &body);
        true
    }

    /// Whether an error that comes next may name an entry.
    pub(super) fn may_name_entry(&self) -> bool {
        self.server.sharing.is_some()
    }

    /// A unit has been answered: what the server has skipped of it has changed nothing.
    pub(super) fn take_back_skipped(&mut self, renamed: &mut Renamed) {
        if let Some(sharing) = self.server.sharing.as_mut().filter(|_| renamed.is_pending()) {
            renamed.take_back(&mut sharing.names, &mut sharing.prepared);
        }
    }
}
