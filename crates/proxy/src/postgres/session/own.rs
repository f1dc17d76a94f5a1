//! Freshet's own statements on a client's server connection. They are never sent into an open transaction block, except one that reads nothing
//! ([`Session::precede`]), the query of [`super::local`], and those that take channels back ([`super::listening`]). Each has its own `Sync`; or it follows the client's messages and shares their `Sync`, if
//! that has the same effect, which saves the database a transaction and a packet.
//!
//! They are prepared under names of their own, since a `Query` or an unnamed `Parse` would drop the client's unnamed statement. Every name in them is
//! qualified, so that no search path changes their meaning. The client does not see them: they are closed before a statement that lists prepared
//! statements ([`Session::precede`]).

use std::sync::{Arc, OnceLock};

use freshet_types::CatalogVersion;
use freshet_wire::postgres::frontend;

use crate::postgres::Pg;
use crate::postgres::pooling::rest_question;
use crate::postgres::question as context;
use crate::postgres::session::Session;
use crate::postgres::session::listening::LISTENING;
use crate::postgres::session::own_statements::{OwnStatements, Rest};
use crate::postgres::session::server_connection::{Known, ServerConnection};
use crate::postgres::session::unit::{Ask, EndWithin, Unit};
use crate::statement::registry::{OfPrepared, Statement};

/// The names of all these statements.
const NAMES: [&[u8]; 8] = [PROOF, END, CONTEXT, END_AND_CONTEXT, QUERY, LOCAL, REST, LISTENING];
const PROOF: &[u8] = b"_freshet_proof";
const END: &[u8] = b"_freshet_end";
const CONTEXT: &[u8] = b"_freshet_context";
const END_AND_CONTEXT: &[u8] = b"_freshet_end_context";
const QUERY: &[u8] = b"_freshet_query";
const LOCAL: &[u8] = b"_freshet_local";
const REST: &[u8] = b"_freshet_rest";

/// The query for a session's context that is sent with its login: [`Ask::Context`].
pub(crate) fn first_question(named: &[Box<str>]) -> Vec<u8> {
    static MESSAGES: OnceLock<Vec<u8>> = OnceLock::new();
    let messages = || {
        let mut out = Vec::new();
        frontend::put_parse(&mut out, CONTEXT, context::question(true, named).as_bytes());
        frontend::put_bind_execute(&mut out, CONTEXT, &[]);
        frontend::put_sync(&mut out);
        out
    };
    if named.is_empty() { MESSAGES.get_or_init(messages).clone() } else { messages() }
}

impl Session {
    /// The query for the context was sent with the login; its answer follows the answer to the start-up.
    pub(crate) fn asked_at_login(&mut self, under: CatalogVersion) {
        self.server.settings.known = Known::Asked { again: false };
        self.server.settings.asked_under = under;
        self.pipeline.push_own(Ask::Context);
    }

    /// Sends one of these queries after everything that was sent so far.
    pub(crate) fn ask(&mut self, ask: Ask) {
        self.server.put_question(ask, &self.shared);
        frontend::put_sync(self.server.output());
        self.pipeline.push_own(ask);
    }

    /// Sends the log-end probe in the current batch, whose statements only read; its `Sync` comes next. The answer follows those of this number of
    /// executions.
    pub(crate) fn ask_end_within(&mut self, executions: usize) {
        self.server.put_question(Ask::End, &self.shared);
        self.last_unit().fills.end = Some(EndWithin { completions: executions + 1, row: None });
    }

    /// Whether the results of the last unit wait for the next log-end probe of the lease service instead of a probe of their own. A session with hits
    /// in between must know its own watermark.
    pub(crate) fn await_probe(&mut self) -> bool {
        self.shared.count_end();
        let none_kept = !self.transaction.has_fills() && self.complete.is_empty();
        let awaits_end = none_kept
            && (self.prefetch.expects_misses() || self.shared.settings.faults.shares_probes)
            && self.shared.shares_probes()
            && self.shared.reloads.cover(self.server.settings.configured_at);
        self.last_unit().fills.awaits_end = awaits_end;
        awaits_end
    }

    /// After a transaction that wrote. A session that also reads asks for its context in the same query, if the write may have changed it: otherwise
    /// the next read would have to wait for that. A session that only writes asks so once for each catalogue: without a context, all its writes would
    /// have a commit wait ([`super::waits_skipped`]).
    pub(crate) fn ask_end_behind_write(&mut self) {
        let under = self.shared.catalog_version();
        let with_context = matches!(self.server.settings.known, Known::Nothing)
            && self.server.identity.is_some()
            && (std::mem::take(&mut self.server.settings.is_used) || self.server.settings.asked_under != under);
        if with_context {
            self.server.settings.asked_under = under;
        }
        self.ask(if with_context { Ask::EndAndContext { era: self.server.statements.era(), under } } else { Ask::End });
    }

    /// The last unit, of which nothing was sent, begins with this statement: sends what the server must execute before it.
    pub(crate) fn precede(&mut self, statement: Option<&Arc<Statement>>) {
        if !matches!(self.pipeline.back(), Some(Unit::Client(unit)) if !unit.sent.begun) {
            return;
        }
        let lacks_query = self
            .transaction
            .block_mut()
            .is_some_and(|block| block.take_unseen_query(statement.map(|statement| &**statement)));
        let lists_prepared = statement.is_some_and(|statement| statement.says.of_prepared == OfPrepared::Lists);
        let shows_names = self.shows_names(statement);
        let to_prepare_ahead = self.to_prepare_ahead(statement);
        let takes_back = self.takes_back(statement.map(|statement| &**statement));
        if !lacks_query && !lists_prepared && !shows_names && !takes_back && to_prepare_ahead.is_empty() {
            return;
        }
        let unit = self.pipeline.pop_back();
        if lacks_query {
            // It reads nothing, so it fails only if the client's statement would fail, too: the connection is lost, or the statement is cancelled.
            self.ask(Ask::Query);
        }
        if lists_prepared {
            self.server.close_own();
            self.pipeline.push_own(Ask::UnnamedStatement);
        }
        if takes_back {
            self.take_back();
        }
        if shows_names && let Some(statement) = statement {
            self.make_names_real(statement);
        }
        for defined in &to_prepare_ahead {
            self.prepare_ahead(defined);
        }
        if let Some(unit) = unit {
            self.pipeline.push(unit);
        }
    }

    /// Asks for the session's context; the client waits for the answer.
    pub(crate) fn ask_context(&mut self) {
        if self.transaction.block().is_some() {
            return self.ask_local();
        }
        self.waiting.looked();
        self.server.settings.known = Known::Asked { again: matches!(self.server.settings.known, Known::Failed) };
        self.server.settings.asked_under = self.shared.catalog_version();
        self.ask(Ask::Context);
    }

    /// An answer was served from the cache: if the server has a time-out for idle sessions, it must learn that the session is not idle. It does not
    /// learn it each time: a session may end up to an eighth of the time-out too early.
    pub(crate) fn keep_awake(&mut self) {
        let idle_max = if self.transaction.block().is_some() {
            self.server.settings.idle_max.in_block
        } else {
            self.server.settings.idle_max.outside
        };
        let Some(idle_max) = idle_max else { return };
        if self.is_idle() && self.has_connection() && self.now().saturating_sub(self.server.ready_at) > idle_max / 8 {
            frontend::put_sync(self.server.output());
            self.pipeline.push_own(Ask::UnnamedStatement);
        }
    }

    /// Brings the server's unnamed statement into the state that the client expects, before messages that may use it.
    pub(crate) fn catch_up_unnamed(&mut self) {
        if self.server.catch_up_unnamed() {
            self.pipeline.push_own(Ask::UnnamedStatement);
        }
    }
}

impl ServerConnection {
    /// The same without the `Sync`.
    fn put_question(&mut self, ask: Ask, shared: &Pg) {
        let named = self.named_for(ask, shared);
        // A function may drop all prepared statements unseen, and in a block a query that fails would abort it: so this statement is always prepared.
        let mut never = false;
        let mut rest = self.own.rest == Rest::Prepared;
        let (name, prepared): (&[u8], &mut bool) = match ask {
            Ask::Proof => (PROOF, &mut self.own.proof),
            Ask::End => (END, &mut self.own.end),
            Ask::Context => (CONTEXT, &mut self.own.context),
            Ask::EndAndContext { .. } => (END_AND_CONTEXT, &mut self.own.end_and_context),
            Ask::Rest => (REST, &mut rest),
            Ask::Query => (QUERY, &mut never),
            Ask::Local => (LOCAL, &mut never),
            Ask::UnnamedStatement | Ask::Prepare { .. } | Ask::Listening(_) => return,
        };
        // The long form of the first query for the context is sent only once.
        let knows_server = self.identity.is_some();
        let is_prepared = std::mem::replace(prepared, *prepared || ask != Ask::Context || knows_server);
        if rest {
            self.own.rest = Rest::Prepared;
        }
        let out = self.output();
        if !is_prepared {
            let sql = match ask {
                Ask::Rest => rest_question::question(),
                Ask::Query => "SELECT".to_owned(),
                Ask::Proof => "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text".to_owned(),
                Ask::End => {
                    let end = context::end(shared.settings.faults.flushed_end);
                    format!("SELECT {}, {end}", context::CONFIGURATION)
                }
                Ask::EndAndContext { .. } => {
                    let end = context::end(shared.settings.faults.flushed_end);
                    format!("{}, {end}", context::question(false, &named))
                }
                Ask::Local => context::local_question(&named),
                Ask::Context | Ask::UnnamedStatement | Ask::Prepare { .. } | Ask::Listening(_) => {
                    context::question(!knows_server, &named)
                }
            };
            // Close first: the name may be in use after all, and closing an unknown statement is no error.
            frontend::put_close_statement(out, name);
            frontend::put_parse(out, name, sql.as_bytes());
        }
        let names = self.sharing.as_ref().filter(|_| ask == Ask::Rest).map(|sharing| sharing.traces.names_to_ask());
        let parameters: Vec<&str> = names.iter().map(String::as_str).collect();
        frontend::put_bind_execute(self.output(), name, &parameters);
    }

    /// The settings that a query for the context names: none if the last query may have failed because of them.
    fn named_for(&mut self, ask: Ask, shared: &Pg) -> Arc<Vec<Box<str>>> {
        if ask == Ask::Local {
            return shared.named.names();
        }
        if !matches!(ask, Ask::Context | Ask::EndAndContext { .. }) {
            return Arc::default();
        }
        let named = match self.settings.known {
            Known::Asked { again: true } => Arc::default(),
            _ => shared.named.names(),
        };
        if std::mem::replace(&mut self.own.named, named.len()) != named.len() {
            (self.own.context, self.own.end_and_context) = (false, false);
        }
        named
    }

    /// Freshet's statements are closed, which cannot fail, not even in a failed transaction block.
    fn close_own(&mut self) {
        let out = self.output();
        for name in NAMES {
            frontend::put_close_statement(out, name);
        }
        frontend::put_sync(out);
        self.own = OwnStatements::default();
    }
}
