//! The answers that the server still has to give: one unit for each `ReadyForQuery`, in order.

use std::sync::Arc;

use freshet_sql::TraceParent;
use freshet_types::{CatalogVersion, Nanos};
use freshet_wire::postgres::backend;

use crate::latency::Took;
use crate::postgres::session::mark::{Leaves, Locally, Mark};
use crate::postgres::session::moving::Moving;
use crate::postgres::session::prefetch::Place;
use crate::postgres::session::renamed::Renamed;
use crate::postgres::session::shown::Shown;
use crate::session::commit_wait::Counted;
use crate::session::fill::{PendingFill, Reading};
use crate::statement::registry::{NormalizedQuery, Statement};

/// Limit of statement names remembered for a unit, since a batch may never end.
pub(crate) const NAMES_MAX: usize = 1024;

/// A part of the server's answers that ends with `ReadyForQuery`.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few at a time, and nearly all are the client's")]
pub(crate) enum Unit {
    /// A unit of the client: forwarded.
    Client(ClientUnit),
    /// A unit of Freshet: dropped.
    Own {
        /// The query.
        ask: Ask,
        /// The row of its answer, as a whole frame.
        row: Option<Box<[u8]>>,
    },
    /// The server's answers to messages of the client that were answered from the cache: dropped. It has no `ReadyForQuery`.
    Unseen {
        /// The number of answers to come.
        answers: usize,
    },
}

impl Unit {
    pub(crate) fn as_client(&mut self) -> Option<&mut ClientUnit> {
        match self {
            Self::Client(unit) => Some(unit),
            Self::Own { .. } | Self::Unseen { .. } => None,
        }
    }

    /// Where to put the next row, if it answers a query of Freshet's own.
    pub(crate) fn own_row(&mut self) -> Option<&mut Option<Box<[u8]>>> {
        match self {
            Self::Own { row, .. } => Some(row),
            Self::Unseen { .. } => None,
            Self::Client(unit) => unit.fills.end.as_mut().filter(|end| end.is_next()).map(|end| &mut end.row),
        }
    }

    /// Whether the next message is the answer to a query of Freshet's own, or an error.
    pub(crate) fn is_own_next(&self) -> bool {
        match self {
            Self::Own { .. } => true,
            Self::Unseen { .. } => false,
            Self::Client(unit) => unit.fills.end.as_ref().is_some_and(EndWithin::is_next),
        }
    }

    pub(crate) fn own(ask: Ask) -> Self {
        Self::Own { ask, row: None }
    }
}

/// Freshet's queries on a session's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What is visible (a proof): before the fills of the next unit.
    Proof,
    /// The log end: after the fills of the last unit, or for the watermark only.
    End,
    /// The session's context.
    Context,
    /// The context within a block that has changed settings for itself.
    Local,
    /// Both, after a write that may have changed the context, for a session that also reads.
    EndAndContext {
        /// [`crate::postgres::session::statements::Statements::era`] when it was sent.
        era: u64,
        /// The catalogue in use then.
        under: CatalogVersion,
    },
    /// See [`super::listening`].
    Listening(OfListening),
    /// What lives on the connection: see [`crate::postgres::pooling::rest_question`].
    Rest,
    /// A query that reads nothing, in a transaction block in which the server has executed none.
    Query,
    /// Restores the server's statements as the client expects them; it has no answer.
    UnnamedStatement,
    /// Prepares a statement of the client's: see [`super::renaming`]. A row stands for an error.
    Prepare {
        /// The number of its entry.
        entry: u64,
    },
}

/// Freshet's statements about channels to which a connection listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfListening {
    /// Which there are.
    Channels,
    /// The same, behind a transaction in which they were taken back.
    ChannelsBehind,
    /// Hands them over to the listener.
    HandOver,
    /// Ends the listening there.
    End,
    /// Takes channels back, or sends a marker behind that.
    TakeBack,
    /// Ends the listening to markers.
    EndMarkers,
}

impl Ask {
    /// Whether its answer is a row, unless it fails.
    pub(crate) fn has_row(self) -> bool {
        !matches!(
            self,
            Self::UnnamedStatement
                | Self::Prepare { .. }
                | Self::Listening(
                    OfListening::HandOver | OfListening::End | OfListening::TakeBack | OfListening::EndMarkers
                )
        )
    }

    /// Whether the answer contains the log end.
    pub(crate) fn tells_end(self) -> bool {
        matches!(self, Self::End | Self::EndAndContext { .. })
    }
}

/// The kind of the client's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The start-up: the session has read nothing yet.
    Startup,
    /// `Query` or `FunctionCall`.
    #[default]
    Query,
    /// Messages of the extended protocol.
    Batch,
    /// A `Sync` alone.
    Sync,
    /// Messages whose `ReadyForQuery` cannot be counted: everything is forwarded from here on.
    Raw,
}

/// The client's messages up to a `Sync` or `Query`.
#[derive(Debug, Default)]
pub(crate) struct ClientUnit {
    /// Their kind.
    pub(crate) kind: Kind,
    pub(crate) sent: Sent,
    pub(crate) response: Response,
    pub(crate) copy: Copy,
    pub(crate) effects: Effects,
    pub(crate) statements: Named,
    pub(crate) renamed: Renamed,
    pub(crate) portals: Portals,
    pub(crate) fills: Fills,
    /// The statement that was executed last, among those with a known prefetch record.
    pub(crate) place: Place,
    /// The statement to which its time is attributed.
    pub(crate) passed: Option<Passed>,
    /// The message of the rule that refuses a statement in it: see [`Session::send_refused`](crate::postgres::session::Session::send_refused).
    pub(crate) refusal: Option<Box<str>>,
    /// After so long the server is asked to cancel it.
    pub(crate) timeout: Option<Nanos>,
    /// The trace that it belongs to.
    pub(crate) trace: Option<TraceParent>,
}

/// The last statement that passed in a unit. All the time of the unit is attributed to it.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) query: Arc<NormalizedQuery>,
    /// The label of the reason.
    pub(crate) reason: &'static str,
    sent_at: Nanos,
}

impl Passed {
    /// It has been answered; returns the time that the database took.
    pub(crate) fn answered(&self, now: Nanos) -> Took {
        let took = now.saturating_sub(self.sent_at).into();
        self.query.figures.pass_answers.note(took);
        took
    }
}

/// What has been sent of a unit.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each message that matters, and all may have been sent")]
pub(crate) struct Sent {
    /// A message of a batch that passes.
    pub(crate) begun: bool,
    /// `Bind` or `Execute`.
    pub(crate) bound_or_executed: bool,
    /// A `Flush`, which asks for the answers so far.
    pub(crate) flushed: bool,
    /// Its `Sync`.
    pub(crate) synced: bool,
}

/// How far the server has answered a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The number of its messages that are still to be answered, as far as they are counted.
    Owed(usize),
    /// An error came: the server skips the rest of it.
    Failed,
}

impl Default for Response {
    fn default() -> Self {
        Self::Owed(0)
    }
}

impl Response {
    /// Adds messages to be answered.
    pub(crate) fn owe(&mut self, more: usize) {
        if let Self::Owed(owed) = self {
            *owed += more;
        }
    }

    fn answered(&mut self) {
        if let Self::Owed(owed) = self {
            *owed = owed.saturating_sub(1);
        }
    }
}

/// The COPY of a unit.
#[derive(Debug, Default)]
pub(crate) struct Copy {
    /// The data that the client sends.
    pub(crate) data: CopyData,
    /// A `Sync` counts as ignored by the server, which is true only if the COPY has read that far.
    pub(crate) swallowed_sync: bool,
    /// The server has sent COPY data.
    pub(crate) out: bool,
}

/// The state of a COPY's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CopyData {
    #[default]
    NotAsked,
    /// The server has asked for it.
    Asked,
    /// The same, and the client has ended it.
    Ended,
}

impl Copy {
    /// The server has asked for data.
    pub(crate) fn is_asked(&self) -> bool {
        self.data != CopyData::NotAsked
    }

    /// The client ends its data.
    pub(crate) fn end(&mut self) {
        if self.is_asked() {
            self.data = CopyData::Ended;
        }
    }
}

/// What a unit may do to the database and the session.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "effects that are independent of each other")]
pub(crate) struct Effects {
    /// It cannot write or change the session.
    pure: bool,
    /// Further facts about that.
    pub(crate) mark: Mark,
    /// Its effect on the settings of the open block. The context is asked for after it.
    pub(crate) locally: Locally,
    /// It may have changed the catalogue.
    pub(crate) forgets: bool,
    /// It may have changed a definition that only a check of the catalogue finds: see
    /// [`Session::is_looked_for`](crate::postgres::session::Session::is_looked_for).
    pub(crate) redefines: bool,
    /// Its answers may show data.
    pub(crate) tells: bool,
    /// It may write, or end a transaction that wrote.
    pub(crate) writing: Option<Counted>,
}

/// The effects of a unit on prepared statements.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Statements whose `Parse` is in it: unknown again if the unit fails.
    pub(crate) parsed: Vec<Box<[u8]>>,
    /// `ParseComplete`s received.
    parses_done: usize,
    /// Statements whose `Bind` is in it, and the catalogue then: accepted with it if the unit succeeds.
    pub(crate) bound: Vec<(Box<[u8]>, CatalogVersion)>,
    /// It deallocated or closed a statement.
    pub(crate) forgot: bool,
}

/// The portals of a unit.
#[derive(Debug, Default)]
pub(crate) struct Portals {
    /// It bound the unnamed portal to a statement that shows no data.
    pub(crate) is_silent: bool,
    /// It bound a named portal, which may stay open.
    pub(crate) binds_named: bool,
    /// A portal has more rows.
    pub(crate) is_suspended: bool,
}

/// The fills of a unit, and the log-end probe that they need.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    /// One for each execution, None for those that are not cached.
    pub(crate) results: Vec<Option<Fill>>,
    /// Its only execution is described by its statement, before `Bind`.
    pub(crate) describes_statement: bool,
    /// The execution whose answer is being received; in a batch `BindComplete` counts it, from 1.
    execution: usize,
    /// The last execution whose answer is complete, counted in the same way.
    ended: usize,
    /// The statement that failed while its result was to be cached, and when it was sent.
    pub(crate) failed: Option<(Arc<NormalizedQuery>, Nanos)>,
    /// Freshet asks for the log end before its `Sync`.
    pub(crate) end: Option<EndWithin>,
    /// Its results wait for the next log-end probe of the lease service.
    pub(crate) awaits_end: bool,
    /// The unit has only cacheable reads, and a `Flush`, so it may end before the client ends it.
    pub(crate) may_end: bool,
}

impl Fills {
    /// The answer of the execution that was bound last is complete.
    pub(crate) fn has_ended(&self) -> bool {
        self.execution > 0 && self.ended == self.execution
    }
}

/// A query of Freshet's own within a client's batch.
#[derive(Debug)]
pub(crate) struct EndWithin {
    /// Number of executions whose answers come first.
    pub(crate) completions: usize,
    /// The row of its answer, as a whole frame.
    pub(crate) row: Option<Box<[u8]>>,
}

impl EndWithin {
    pub(crate) fn is_next(&self) -> bool {
        self.completions == 1
    }

    /// A message of an answer within the unit came.
    pub(crate) fn note(&mut self, tag: u8) {
        let ends = matches!(tag, backend::COMMAND_COMPLETE | backend::PORTAL_SUSPENDED | backend::EMPTY_QUERY);
        self.completions = self.completions.saturating_sub(usize::from(ends));
    }
}

impl ClientUnit {
    /// A statement of it passes, for a reason with this label.
    pub(crate) fn passes(&mut self, statement: Option<&Arc<Statement>>, reason: &'static str, now: Nanos) {
        if let Some(statement) = statement {
            let sent_at = self.passed.as_ref().map_or(now, |passed| passed.sent_at);
            self.passed = Some(Passed { query: statement.query.clone(), reason, sent_at });
        }
    }

    /// An error came: nothing of it is cached.
    pub(crate) fn fail(&mut self) {
        self.response = Response::Failed;
        // In a batch, `Bind` or `Execute` of the first execution that is not complete.
        let is_counted = self.kind == Kind::Batch && !self.fills.describes_statement;
        let at = if self.fills.has_ended() { self.fills.execution } else { self.fills.execution.saturating_sub(1) };
        let failed = self.fills.results.drain(..).nth(if is_counted { at } else { 0 }).flatten();
        if let Some(fill) = failed {
            self.fills.failed = Some((fill.stage.source.query.clone(), fill.stage.started));
        }
    }

    /// The digest of a statement in it; 0: none is known.
    pub(crate) fn digest(&self) -> u64 {
        let passed = self.passed.as_ref().map(|passed| passed.query.digest);
        let filled = || self.fills.results.iter().flatten().next().map(|fill| fill.stage.source.query.digest);
        passed.or_else(filled).unwrap_or_default()
    }

    pub(crate) fn new(kind: Kind, pure: bool) -> Self {
        Self { kind, effects: Effects { pure, ..Effects::default() }, ..Self::default() }
    }

    /// Whether it cannot write or change the session.
    pub(crate) fn is_pure(&self) -> bool {
        self.effects.pure
    }

    /// It may write or change the session; returns whether that is new. [`super::pipeline`] counts such units.
    pub(crate) fn taint(&mut self) -> bool {
        std::mem::replace(&mut self.effects.pure, false)
    }

    /// Whether its answers may show data. Those of a login, of a `Sync` alone and of statements that are only prepared do not.
    pub(crate) fn tells_of_data(&self) -> bool {
        match self.kind {
            Kind::Startup | Kind::Sync => false,
            Kind::Raw => true,
            Kind::Query | Kind::Batch => self.effects.tells,
        }
    }

    /// Whether the client may learn that a part of it is committed while its `ReadyForQuery` is still to come.
    pub(crate) fn may_be_told_early(&self) -> bool {
        match (self.kind, self.effects.mark.leaves) {
            (Kind::Batch, Leaves::Closed | Leaves::Unknown) => !self.sent.synced,
            (_, Leaves::Unknown) => true,
            _ => false,
        }
    }

    /// A message came that is the answer to one message of the extended protocol, or the last of several.
    pub(crate) fn answered_once(&mut self, tag: u8) {
        self.response.answered();
        self.renamed.note_answered();
        self.statements.parses_done += usize::from(tag == backend::PARSE_COMPLETE);
        self.portals.is_suspended |= tag == backend::PORTAL_SUSPENDED;
        self.fills.execution += usize::from(tag == backend::BIND_COMPLETE);
        if matches!(tag, backend::COMMAND_COMPLETE | backend::PORTAL_SUSPENDED) {
            self.fills.ended = self.fills.execution;
        }
        if let Some(end) = &mut self.fills.end {
            end.note(tag);
        }
    }

    /// The names whose `Parse` was not answered by `ParseComplete`: the server skipped those after it.
    pub(crate) fn unparsed(&self) -> &[Box<[u8]>] {
        // If there are more than are remembered, it is unknown which ones.
        let done = if self.statements.parsed.len() < NAMES_MAX { self.statements.parses_done } else { 0 };
        self.statements.parsed.get(done..).unwrap_or_default()
    }

    /// An error came.
    pub(crate) fn has_failed(&self) -> bool {
        self.response == Response::Failed
    }

    /// Whether the client is sending COPY data.
    pub(crate) fn is_within_copy_data(&self) -> bool {
        self.copy.data == CopyData::Asked && !self.has_failed()
    }

    /// The fill whose answer is being received.
    pub(crate) fn current_fill(&mut self) -> Option<&mut Option<Fill>> {
        let counted = self.kind == Kind::Batch && !self.fills.describes_statement;
        let at = if counted { self.fills.execution.checked_sub(1)? } else { 0 };
        self.fills.results.get_mut(at)
    }
}

/// The properties of an answer that is being cached.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) shown: Option<Box<Shown>>,
    pub(crate) moving: Option<Box<Moving>>,
    /// The time of the unit's end; 0 before it.
    pub(crate) took: Nanos,
    /// `CommandComplete` was received.
    pub(crate) complete: bool,
}

/// A fill whose answer comes on a session's connection.
pub(crate) type Fill = PendingFill<Reading<Answer>>;

impl Fill {
    /// The answer is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.stage.answer.complete
    }
}
