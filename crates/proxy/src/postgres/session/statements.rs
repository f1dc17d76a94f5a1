//! The prepared statements of a session, as far as Freshet has seen them.
//!
//! Statements that are not in here are unknown, and unknown statements pass. So it is safe to forget one, but a forgotten statement that still exists
//! may do anything ([`Statements::may_outlive`]).

use std::collections::HashMap;
use std::sync::Arc;

use freshet_sql::Defines;
use freshet_types::CatalogVersion;
use freshet_wire::postgres::frontend;
use rapidhash::quality::RandomState;

use crate::statement::registry::Statement;

/// Named statements remembered for a session; further ones pass.
const NAMED_MAX: usize = 10_000;

/// How the server's unnamed statement relates to the one that the client expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// The same, or unknown.
    #[default]
    InStep,
    /// The server has not seen the client's last `Parse`, which Freshet answered.
    Unsent,
    /// The client's was dropped by a `Query` that Freshet answered.
    Dropped,
}

/// The settings under which a statement was parsed: its constants were read under them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedUnder {
    /// A context with these settings: [`crate::session::context::Context::settings`].
    Context(u32),
    /// The session's context, even if unknown, since its settings could last change ([`Statements::era`]).
    Era(u64),
    /// Unknown.
    Unknown,
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) statement: Arc<Statement>,
    pub(crate) under: ParsedUnder,
    /// The catalogue with which the server last accepted it. With a later one the server may refuse it ("cached plan must not change result type"),
    /// so it passes once.
    pub(crate) catalog: CatalogVersion,
    /// It may have been dropped, or another statement may have its name: only the possible effects of executing it are known.
    pub(crate) lost: bool,
}

impl Prepared {
    /// No catalogue has this version: the statement passes once before it is answered from the cache.
    pub(crate) const NOT_TAKEN: CatalogVersion = CatalogVersion(0);

    fn defines(&self) -> bool {
        self.statement.query.template.defines() != Defines::Nothing
    }
}

/// The statements.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    named: HashMap<Box<[u8]>, Prepared, RandomState>,
    unnamed: Option<Prepared>,
    /// Counts how often the session's settings could have changed.
    era: u64,
    unnamed_state: Unnamed,
    /// The server may have an unnamed statement, whether it is known here or not.
    upstream_unnamed: bool,
    /// A forgotten statement may still exist: the statement that was to drop it has failed.
    outlives: bool,
    /// A text was prepared that may define something, and of which only the beginnings of its statements are known.
    has_unread_definition: bool,
    /// The `Parse` that the server has not seen; the buffer stays, to avoid an allocation at each hit.
    unsent_parse: Vec<u8>,
}

impl Statements {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Prepared> {
        self.remembered(name).filter(|prepared| !prepared.lost)
    }

    /// The last known statement with the name, even if it may have been dropped.
    pub(crate) fn remembered(&self, name: &[u8]) -> Option<&Prepared> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Prepared> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// The session's settings may change from here on; `context`: the previous settings, if known.
    pub(crate) fn settings_may_change(&mut self, context: Option<u32>) {
        let era = ParsedUnder::Era(self.era);
        if let Some(context) = context {
            for prepared in self.named.values_mut().chain(&mut self.unnamed).filter(|p| p.under == era) {
                prepared.under = ParsedUnder::Context(context);
            }
        }
        self.era += 1;
    }

    /// The server has accepted the statement with this catalogue.
    pub(crate) fn confirm(&mut self, name: &[u8], catalog: CatalogVersion) {
        if let Some(prepared) = self.get_mut(name) {
            prepared.catalog = catalog;
        }
    }

    /// `Parse` was sent to the server.
    pub(crate) fn sent(&mut self, name: &[u8], statement: Option<Prepared>) {
        let defines = statement.as_ref().is_some_and(Prepared::defines);
        if name.is_empty() {
            self.unnamed = statement;
            self.unnamed_state = Unnamed::InStep;
            self.upstream_unnamed = true;
        } else if let Some(statement) = statement.filter(|_| self.named.len() < NAMED_MAX) {
            self.named.insert(name.into(), statement);
        } else {
            self.outlives |= defines;
            self.named.remove(name);
        }
    }

    /// Freshet answered the `Parse` of the unnamed statement.
    pub(crate) fn kept_unnamed(&mut self, statement: Prepared, parse: &[u8]) {
        self.expect_unnamed(Some(statement), parse);
    }

    /// A statement for Freshet was parsed: the server never sees it, and its unnamed statement must be dropped.
    pub(crate) fn kept_admin(&mut self, name: &[u8], statement: Prepared) {
        self.sent(name, Some(statement));
        if name.is_empty() {
            self.unnamed_state = Unnamed::Dropped;
        } else {
            self.outlives |= !self.named.contains_key(name);
        }
    }

    /// Freshet answered a `Query`: PostgreSQL would have dropped the unnamed statement.
    pub(crate) fn query_answered(&mut self) {
        if self.unnamed.take().is_some() || self.upstream_unnamed {
            self.unnamed_state = Unnamed::Dropped;
        }
    }

    /// A `Query` was sent to the server, which drops the unnamed statement.
    pub(crate) fn query_sent(&mut self) {
        self.unnamed = None;
        self.unnamed_state = Unnamed::InStep;
        self.upstream_unnamed = false;
    }

    /// A statement that was to drop another has failed.
    pub(crate) fn something_outlives(&mut self) {
        self.outlives = true;
    }

    /// Whether an unknown statement may be a forgotten one.
    pub(crate) fn may_outlive(&self) -> bool {
        self.outlives
    }

    /// A text was prepared that may define something; nothing more is known of it.
    pub(crate) fn note_unread_definition(&mut self) {
        self.has_unread_definition = true;
    }

    /// Whether an unknown statement may define something.
    pub(crate) fn may_define_unread(&self) -> bool {
        self.has_unread_definition
    }

    /// The next message is a `Parse` of the unnamed statement: the server first drops the one before it.
    pub(crate) fn unnamed_is_replaced(&mut self) {
        self.unnamed_state = Unnamed::InStep;
    }

    /// The messages that must be sent before the next message may use the unnamed statement, if any.
    pub(crate) fn catch_up(&mut self) -> Option<(Unnamed, &[u8])> {
        let state = std::mem::take(&mut self.unnamed_state);
        match state {
            Unnamed::InStep => return None,
            Unnamed::Unsent => self.upstream_unnamed = true,
            Unnamed::Dropped => self.upstream_unnamed = false,
        }
        Some((state, &self.unsent_parse))
    }

    /// The session gives its connection away: the next one must get the client's unnamed statement before it can be used, and must not show another
    /// session's. Returns whether the connection has one.
    pub(crate) fn move_unnamed(&mut self) -> bool {
        let has_one = self.upstream_unnamed;
        if self.unnamed_state == Unnamed::InStep {
            match &self.unnamed {
                Some(prepared) => {
                    self.unsent_parse.clear();
                    let statement = &prepared.statement;
                    frontend::put_parse_typed(&mut self.unsent_parse, statement.text(), &statement.types);
                    self.unnamed_state = Unnamed::Unsent;
                }
                None => self.unnamed_state = Unnamed::Dropped,
            }
        }
        self.upstream_unnamed = false;
        has_one
    }

    /// Whether the client may use an unnamed statement whose text is not known.
    pub(crate) fn has_unknown_unnamed(&self) -> bool {
        self.upstream_unnamed && self.unnamed.is_none() && self.unnamed_state == Unnamed::InStep
    }

    /// The session has a connection that may have an unnamed statement.
    pub(crate) fn meet_unnamed(&mut self, has_one: bool) {
        self.upstream_unnamed = has_one;
        if !has_one && self.unnamed_state == Unnamed::Dropped {
            self.unnamed_state = Unnamed::InStep;
        }
    }

    /// The `Parse` of the unnamed statement has failed: there is none.
    pub(crate) fn unnamed_failed(&mut self) {
        self.unnamed = None;
        self.unnamed_state = Unnamed::Dropped;
    }

    /// Whether what the client may use is known by its text, and none of it is a statement of Freshet's own. The session has no connection.
    pub(crate) fn are_all_known(&self) -> bool {
        let is_own = |prepared: &Prepared| prepared.statement.admin.is_some();
        !self.outlives
            && !self.has_unread_definition
            && !self.named.values().any(|prepared| prepared.lost || is_own(prepared))
            && !self.unnamed.as_ref().is_some_and(is_own)
    }

    /// The `Parse` of the unnamed statement that the next connection must get; empty: none. The session has no connection.
    pub(crate) fn unsent(&self) -> &[u8] {
        if self.unnamed_state == Unnamed::Unsent { &self.unsent_parse } else { &[] }
    }

    /// The client has this unnamed statement, which no connection has seen.
    pub(crate) fn expect_unnamed(&mut self, statement: Option<Prepared>, parse: &[u8]) {
        self.unnamed = statement;
        self.unnamed_state = Unnamed::Unsent;
        self.unsent_parse.clear();
        self.unsent_parse.extend_from_slice(parse);
    }

    pub(crate) fn forget(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    /// Any statement may have been dropped.
    pub(crate) fn forget_all(&mut self) {
        for prepared in self.named.values_mut() {
            prepared.lost = true;
        }
        self.unnamed = None;
    }

    /// The server may refuse any statement the next time.
    pub(crate) fn doubt_all(&mut self) {
        for prepared in self.named.values_mut().chain(&mut self.unnamed) {
            prepared.catalog = Prepared::NOT_TAKEN;
        }
    }
}
