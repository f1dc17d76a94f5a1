//! From an execution to its key, its tags and the permit to cache its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::Entry;
use freshet_sql::{Client, Parameter};
use freshet_types::{Catalog, Reason, TableId, Visible};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::ok::{Eof, Ok as OkPacket, StateChange, state_changes};
use freshet_wire::mysql::packet::{self, HEADER_BYTES, Header};
use freshet_wire::mysql::response::{Done, patch_status};
use freshet_wire::mysql::result::Form;
use freshet_wire::mysql::statement::Bound;
use freshet_wire::mysql::track::{Hidden, shown};

use crate::mysql::session::Session;
use crate::mysql::session::answer::{Answer, Fill, OWN_STATUS, without_status};
use crate::mysql::session::diagnostics::rows_found;
use crate::mysql::session::execution::{Execution, parameters, write_key};
use crate::mysql::session::known::{Allowed, Known};
use crate::mysql::session::moving::Moving;
use crate::mysql::session::shown::Shown;
use crate::mysql::session::transaction::Snapshot;
use crate::session::body::Body;
use crate::session::fill::{self, Miss, PendingFill, Read, Reading};
use crate::session::lookup::{Decision, Found};
use crate::session::moving::Limits;
use crate::statement::registry::Statement;

/// An answer with any of these flags is not a complete plain result, or depends on the session.
const STRANGE_STATUS: Status = Status(
    Status::MORE_RESULTS_EXISTS.0
        | Status::CURSOR_EXISTS.0
        | Status::LAST_ROW_SENT.0
        | Status::DB_DROPPED.0
        | Status::METADATA_CHANGED.0
        | Status::PS_OUT_PARAMS.0,
);

/// An execution that missed.
struct Missed<'a> {
    session: &'a Session,
    statement: &'a Statement,
    execution: Execution<'a>,
    bound: Option<&'a Bound<'a>>,
}

impl fill::Execution for Missed<'_> {
    type Answer = Answer;

    fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    fn limits(&self) -> Option<Limits> {
        self.session.limits_of(self.statement, (self.execution, self.bound))
    }

    fn check(&self, _: &Catalog, _: &[TableId]) -> Result<(), Reason> {
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<Parameter<'_>>, Reason> {
        parameters(self.statement, self.bound)
    }

    fn answer(&self, bound: &mut freshet_sql::Bound, limits: Option<Limits>) -> Answer {
        let moving = limits.map(|limits| Box::new(Moving::of(limits, self.execution, &self.session.key)));
        let form = if matches!(self.execution, Execution::Text(_)) { Form::Text } else { Form::Binary };
        Answer { shown: Shown::of(bound, form), moving, form }
    }

    /// The last proof was read before the query is sent, but the snapshot of the query may have been taken earlier.
    fn proof(&self) -> Option<Arc<Visible>> {
        let Session { shared, transaction, .. } = self.session;
        let too_new = transaction.may_have_snapshot() && !shared.settings.faults.proves_in_blocks;
        shared.ends.proof().filter(|_| !too_new)
    }

    /// Commits that wait for a visibility proof are not proven to anybody yet.
    fn can_ask_proof(&self) -> bool {
        false
    }

    /// The binlog has all tables.
    fn not_published(&self, _: &[TableId]) {}
}

impl Session {
    /// Whether the session may use the cache now.
    pub(crate) fn allowed(&mut self) -> Allowed {
        let allowed = self.allowed_if_known();
        let settings = &self.server.settings;
        if matches!(allowed, Allowed::Pass(_)) {
            allowed
        } else if settings.temporaries.may_be_any() {
            Allowed::Pass(Reason::MayHaveTemporary)
        } else if settings.one_shot || settings.temporaries.may_set_next() {
            Allowed::Pass(Reason::InTransaction)
        } else {
            allowed
        }
    }

    /// The same if all code that the session ran were known.
    pub(crate) fn allowed_if_known(&mut self) -> Allowed {
        let shared = &self.shared;
        if shared.switches.bypass() {
            return Allowed::Pass(Reason::SwitchedOff);
        }
        let settings = &self.server.settings;
        if settings.locked {
            return Allowed::Pass(Reason::InTransaction);
        }
        if let Some(setting) = settings.watched {
            return Allowed::Pass(Reason::Setting(setting));
        }
        if let Some(reason) = self.transaction.obstacle(shared.settings.faults.hits_after_write) {
            return Allowed::Pass(reason);
        }
        let Some(server) = self.server.settings.compare_server(shared) else { return Allowed::Ask };
        if let Err(reason) = server {
            return Allowed::Pass(reason);
        }
        self.server.follow_rules(shared);
        match &self.server.settings.known {
            Known::Unknowable(reason) => Allowed::Pass(reason.clone()),
            // A right may have changed at an unknown time.
            Known::Context(_, catalog) if *catalog != shared.catalog_version() => Allowed::Ask,
            Known::Context(context, _) => match &context.obstacle {
                Some(reason) => Allowed::Pass(reason.clone()),
                None => Allowed::Cache(context.id),
            },
            Known::Nothing => Allowed::Ask,
        }
    }

    /// Looks up an execution.
    pub(crate) fn look_up(&mut self, context: u32, execution: Execution<'_>) -> Found {
        self.key.clear();
        match self.set_snapshot() {
            Err(reason) => return Decision::Pass(reason),
            Ok(false) => return self.look_up_question(context, execution),
            Ok(true) => {}
        }
        write_key(&mut self.key, context, self.server.shaping, execution);
        self.look_up_key(|_| true)
    }

    /// Notes the snapshot that a look-up must fit; false: it is not taken yet, so no entry can fit.
    pub(crate) fn set_snapshot(&mut self) -> Result<bool, Reason> {
        self.watermark.set_snapshot(None);
        match self.transaction.snapshot(&self.server.settings)? {
            Snapshot::ToBeTaken => return Ok(false),
            Snapshot::None => {}
            Snapshot::Of(bounds) => self.watermark.set_snapshot(Some(bounds)),
        }
        Ok(true)
    }

    /// Looks up the key, and answers with the entry.
    pub(crate) fn look_up_key(&mut self, answers: impl FnOnce(&Body) -> bool) -> Found {
        if !self.watermark.committed().is_empty() {
            self.settle_committed();
        }
        let now = self.now();
        let mut found = self.shared.look_up(&self.key, self.watermark.get(), now, |body| Ok(answers(body)));
        if let Decision::Hit(entry) = &found
            && let Err(reason) = self.check_snapshot_and_tables(&entry.payload)
        {
            found = Decision::Pass(reason);
        }
        match &found {
            // The session's own commit is about to be applied, and serves as well.
            Decision::Pass(Reason::Watermark) if !self.watermark.committed().is_empty() => {}
            Decision::Pass(Reason::Fence | Reason::Watermark | Reason::NotYetApplied) => self.shared.want_log_end(),
            Decision::Pass(_) | Decision::Wait(_) => {}
            Decision::Hit(entry) => {
                self.last.looked_up_at = now;
                self.patience.gain();
                if self.watermark.take_behind_passed() {
                    entry.payload.source.query.figures.hits_after_pass.fetch_add(1, Relaxed);
                }
                if self.watermark.snapshot().is_none() && self.shared.verifier.samples() {
                    return Decision::Fill(()); // see [`crate::session::verify`]
                }
            }
            Decision::Fill(()) => self.patience.gain(),
        }
        found
    }

    /// Err if the entry must not be served in the current state of the session's transaction.
    fn check_snapshot_and_tables(&mut self, body: &Body) -> Result<(), Reason> {
        if self.watermark.snapshot().is_some() && !self.settle_snapshot() {
            return Err(Reason::Snapshot);
        }
        if self.server.settings.temporaries.are_none() {
            return Ok(());
        }
        self.reads_temporary(&body.source.query)
    }

    /// Looks up an execution that takes the snapshot of its transaction, unless it reads no table.
    fn look_up_question(&mut self, context: u32, execution: Execution<'_>) -> Found {
        write_key(&mut self.key, context, self.server.shaping, execution);
        let accepts = |body: &Body| Ok(!body.source.query.template.names_relations());
        let now = self.now();
        match self.shared.look_up(&self.key, self.watermark.get(), now, accepts) {
            Decision::Hit(entry) => {
                self.last.looked_up_at = now;
                Decision::Hit(entry)
            }
            _ => Decision::Fill(()),
        }
    }

    /// Begins a fill, before the query is sent. Err: why the answer is not cached.
    pub(crate) fn begin_fill(
        &mut self,
        statement: &Arc<Statement>,
        execution: Execution<'_>,
        bound: Option<&Bound<'_>>,
    ) -> Result<Fill, Reason> {
        if let Err(reason) = self.reads_temporary(&statement.query) {
            self.shared.want_log_end();
            return Err(reason);
        }
        let Known::Context(context, known_under) = &self.server.settings.known else {
            return Err(Reason::SettingsUnknown);
        };
        let Client { utf8, raw, .. } = context.client;
        if !(utf8 || raw || statement.ascii) {
            return Err(Reason::SettingsUnknown);
        }
        if statement.query.is_disabled() {
            return Err(Reason::Disabled);
        }
        write_key(&mut self.key, context.id, self.server.shaping, execution);
        let missed = Missed { session: self, statement, execution, bound };
        let miss = Miss {
            shared: &self.shared,
            statement,
            key: &self.key,
            context: (context, *known_under),
            who: self.server.who(),
            after_own_write: false,
            snapshot: self.watermark.snapshot().map(|snapshot| snapshot.lo),
            is_joinable: true,
        };
        let registered = miss.begin_fill(&missed)?;
        let counters = self.shared.metrics.worker(self.worker);
        registered.confirm(|| self.server.settings.compare_server(&self.shared), counters)
    }

    /// The answer is complete: if it can be cached, it waits for a log end.
    pub(crate) fn finish_fill(&mut self, mut fill: Fill, done: &Done) {
        if !self.is_plain(done, &mut fill.stage.frames) {
            if done.warnings > 0 && done.error.is_none() {
                fill.stage.source.query.note_not_cached(Reason::Construct("an answer with warnings"));
            }
            return;
        }
        if !self.confirm_polled(&fill) {
            return;
        }
        let PendingFill { permit, mut join_keys, proof, expected, stage } = fill;
        let Reading { source, mut frames, started, answer: Answer { shown, moving, form: _ } } = stage;
        let told = shown.map(|shown| shown.tags(&frames, self.capabilities(), join_keys.as_deref_mut()));
        let reached = moving.and_then(|moving| moving.reached(&frames, self.capabilities()));
        let status_places = without_status(&mut frames, done);
        let now = self.now();
        let took = now.saturating_sub(started);
        self.shared.waits.answered_in(took);
        self.count_answer(took.into());
        let own = source.query.figures.fill_took(took, self.shared.waits.turn());
        let mut body = Body::new((done.rows, frames), source, (started, own));
        (body.status_places, body.reached) = (status_places, reached);
        body.found_rows = body.source.query.template.counts_found_rows().then(Arc::default);
        body.rows = rows_found(&body.source.query, done);
        self.replay.found_rows.clone_from(&body.found_rows);
        let stage = Read { told, body, refreshed: false };
        self.shared.await_end(PendingFill { permit, join_keys, proof, expected, stage });
        self.shared.want_log_end();
    }

    /// Whether these packets are a complete answer that can be cached. State that the client has not agreed to receive is removed.
    pub(crate) fn is_plain(&self, done: &Done, frames: &mut Vec<u8>) -> bool {
        let plain = done.error.is_none()
            && (done.results, done.result_sets, done.warnings) == (1, 1, 0)
            && !done.cursor
            && !done.sent_file
            && (!done.without_definitions || self.capabilities().has(Capabilities::MARIADB_CACHE_METADATA))
            && done.status.is_some_and(|status| status.0 & STRANGE_STATUS.0 == 0)
            && done.status_places.len() <= 2;
        if !plain || frames.len() as u64 != done.bytes {
            return false;
        }
        let tells = done.status.is_some_and(|status| status.has(Status::SESSION_STATE_CHANGED));
        !tells || self.tells_no_change(frames)
    }

    /// Whether the answer shows only the session's current database as changed state, as MariaDB does for views of another database. Clients that
    /// have not agreed to receive state must not: it is removed.
    fn tells_no_change(&self, frames: &mut Vec<u8>) -> bool {
        let at = last_packet(frames);
        let Some((head, payload)) = frames.get(at..).and_then(|packet| packet.split_first_chunk::<HEADER_BYTES>())
        else {
            return false;
        };
        if Eof::parse(payload).is_ok() {
            // It has space for the flag only. An answer that is cached belongs to a statement that changes nothing.
            return self.server.about.version.is_mariadb;
        }
        let Ok(ok) = OkPacket::parse(payload, Capabilities::SESSION_TRACK) else { return false };
        let same =
            |change: &StateChange<'_>| matches!(change, StateChange::Schema(name) if self.server.settings.is_in(name));
        if !state_changes(ok.state).is_ok_and(|changes| changes.iter().all(same)) {
            return false;
        }
        let hidden = Hidden { all: self.hidden().all, commits: false };
        if let Some(payload) = shown(payload, hidden) {
            let [.., mut sequence] = *head;
            frames.truncate(at);
            packet::put(frames, &mut sequence, &payload);
        }
        true
    }

    /// Answers from the cache.
    pub(crate) fn answer_hit(&mut self, entry: &Entry<Body>) {
        let frames = entry.payload.frames();
        let reads = entry.payload.source.query.template.names_relations();
        self.put_kept(frames, entry.payload.status_places, reads);
        self.count_hit(&entry.payload);
    }
}

impl Session {
    /// Writes a cached answer, with this session's state in its places. `reads`: the statement reads tables.
    pub(crate) fn put_kept(&mut self, frames: &[u8], status_places: [u32; 2], reads: bool) {
        // Without autocommit, a read opens a transaction, as the client sees it.
        let is_unseen = !self.autocommits() && !self.status.has(Status::IN_TRANS);
        self.replay.hit(reads, reads && is_unseen);
        let is_open = self.replay.has_opened();
        let status = if is_open { self.status.with(Status::IN_TRANS) } else { self.status };
        let out = self.client.output.buffer();
        let start = out.len();
        out.extend_from_slice(frames);
        let places = status_places.map(u64::from);
        let used = if places[1] == 0 { &places[..1] } else { &places[..] };
        patch_status(out.get_mut(start..).unwrap_or_default(), used, status, OWN_STATUS);
    }
}

/// The position of the last of these packets; the end if they are incomplete.
fn last_packet(frames: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = frames.get(at..).and_then(Header::read) {
        let next = at + header.packet_bytes();
        if next == frames.len() {
            return at;
        }
        at = next;
    }
    frames.len()
}
