//! A connection that answers as any session of an entry's context would.
//!
//! A context is everything that affects an answer besides the statement: database, roles, search path, settings. The reader sets what can be set.
//! Then the context is read from the server with the same query as for a session, and the answer must equal the entry's context exactly. So the
//! spelling of a setting and its side effects do not matter. Only a superuser can become other roles. A context that is refused or differs is not
//! tried again before the catalogue changes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use freshet_cache::{FillPermit, FillRequest, Lookup, Watermark};
use freshet_net::postgres::{Client, Error, Rows, quote_identifier};
use freshet_sql::Bound;
use freshet_types::{CatalogVersion, End, Lsn, Reason, Visible};
use freshet_wire::postgres::{backend, frontend};
use tokio::time::timeout;

use crate::postgres::Pg;
use crate::postgres::question::{self as context, Answer, Recipe};
use crate::postgres::service::connection::{ServiceError, connect};
use crate::postgres::session::batch::Describe;
use crate::postgres::session::execution::{Execution, parameters, write_key};
use crate::postgres::session::moving::{Moving, limits};
use crate::postgres::session::shown::Shown;
use crate::service::refreshes::{Job, Outcome};
use crate::session::body::Body;
use crate::session::context::{Context, ContextKey};
use crate::session::fill::{PendingFill, Read};
use crate::shared::ServerIdentity;
use crate::statement::registry::Statement;

/// Time limit of one refresh.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// The server's own limit comes first. No statement here writes, or needs to see more than committed rows.
const MANNERS: &str = "SET statement_timeout = '10s'; SET default_transaction_read_only = on; \
    SET default_transaction_isolation = 'read committed'";
/// Returns to the login role.
const BACK: &str = "RESET SESSION AUTHORIZATION; RESET ROLE";
/// The most contexts that are remembered as closed.
const CLOSED_MAX: usize = 10_000;

/// The connection.
pub(super) struct Reader {
    shared: Arc<Pg>,
    link: Option<Link>,
    /// Contexts that could not be entered, with the catalogue of that time.
    closed: (CatalogVersion, HashSet<u32>),
}

struct Link {
    client: Client,
    identity: ServerIdentity,
    /// The connection's login role.
    user: String,
    entered: Option<Entered>,
}

/// The context of the connection.
struct Entered {
    id: u32,
    /// The version of the catalogue before the context was read.
    catalog: CatalogVersion,
    /// [`Answer::configuration`]
    configuration: String,
}

/// When a result may be read whose change is unproven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// At once: new snapshots show nearly all delivered changes.
    AtOnce,
    /// Once no change can prevent it.
    Quiet,
    /// Once no change is known to prevent it.
    Proven,
}

impl Timing {
    fn is_too_soon(self, permit: &FillPermit<Body>) -> bool {
        match self {
            Self::AtOnce => false,
            Self::Quiet => permit.may_need_proof(),
            Self::Proven => permit.needs_proof(),
        }
    }
}

/// An entry's key, decomposed.
enum Key<'a> {
    Query(&'a [u8]),
    Bound { describe: Describe, rows_max: u32, tail: &'a [u8] },
}

impl Reader {
    pub(super) fn new(shared: Arc<Pg>) -> Self {
        Self { shared, link: None, closed: (CatalogVersion::default(), HashSet::new()) }
    }

    pub(super) async fn refresh(&mut self, job: &Job, timing: Timing) -> Result<Outcome, ServiceError> {
        // The look-up finds nothing if there is no stream. It finds an entry if a reader was faster.
        let found = self.shared.cache.lookup(&job.key, &Watermark::default(), self.shared.clock.now());
        if matches!(found, Lookup::Bypass(Reason::Fence | Reason::LeaseExpired)) {
            return Ok(Outcome::TooSoon);
        }
        let Some((context, statement)) = matches!(found, Lookup::Miss).then(|| self.read_job(job)).flatten() else {
            return Ok(Outcome::NotAsked);
        };
        let (Some(key), true) = (read_key(&job.key), context.obstacle.is_none() && context.client.utf8) else {
            return Ok(Outcome::NotAsked);
        };
        let execution = match key {
            Key::Query(text) => Execution::Query(text),
            Key::Bound { describe, rows_max, tail } => {
                Execution::Bound { statement: &statement, tail, describe, rows_max }
            }
        };
        // The keys differ if the number of the statement or of the context is not the entry's.
        let mut written = Vec::new();
        write_key(&mut written, context.id, execution);
        if written[..] != job.key[..] || !self.enter(&context).await? {
            return Ok(Outcome::NotAsked);
        }
        let outcome = self.read(job, &context, (&statement, execution), timing).await;
        if outcome.is_err() {
            self.link = None;
        }
        outcome
    }

    fn read_job(&self, job: &Job) -> Option<(Arc<Context>, Arc<Statement>)> {
        let (id, _) = job.key.split_first_chunk::<4>()?;
        let (context, _) = self.shared.contexts.get(u32::from_le_bytes(*id))?;
        let statement = match read_key(&job.key)? {
            // The text may also have been read with backslashes as escapes.
            Key::Query(text) if text.contains(&b'\\') => return None,
            Key::Query(text) => self.shared.registry.statement(text, &[]).ok()?,
            Key::Bound { .. } => job.source.statement.upgrade()?,
        };
        // The text of a `Query` may have been read differently.
        let same = statement.query.text == job.source.query.text;
        (same && !statement.query.is_disabled()).then_some((context, statement))
    }

    // --- the context ---------------------------------------------------------------------------------------

    /// Enters the context. False if this is not possible.
    async fn enter(&mut self, context: &Context) -> Result<bool, ServiceError> {
        let catalog = self.shared.catalog_version();
        if self.closed.0 != catalog || self.closed.1.len() > CLOSED_MAX {
            self.closed = (catalog, HashSet::new());
        }
        let Some((_, key)) = self.shared.contexts.get(context.id) else { return Ok(false) };
        if self.closed.1.contains(&context.id) {
            return Ok(false);
        }
        let mut link = match self.link.take() {
            Some(link) if !link.client.is_dead() && Some(&link.identity) == self.shared.identity().as_deref() => link,
            _ => Link::open(&self.shared).await?,
        };
        let there = link.entered.as_ref().is_some_and(|entered| entered.id == context.id && entered.catalog == catalog);
        let entered = if there { true } else { link.enter(context.id, &key, catalog).await? };
        self.link = Some(link);
        if !entered {
            self.closed.1.insert(context.id);
        }
        Ok(entered)
    }

    // --- the answer ----------------------------------------------------------------------------------------

    async fn read(
        &mut self,
        job: &Job,
        context: &Context,
        (statement, execution): (&Statement, Execution<'_>),
        timing: Timing,
    ) -> Result<Outcome, ServiceError> {
        let shared = &self.shared;
        let Some(Link { client, identity, entered: slot, .. }) = &mut self.link else { return Ok(Outcome::NotAsked) };
        let Some(entered) = &*slot else { return Ok(Outcome::NotAsked) };
        let catalog = shared.catalog.load_full();
        if catalog.version != entered.catalog {
            return Ok(Outcome::NotAsked);
        }
        let Ok(read_set) = statement.query.resolve(&catalog, context).read_set else { return Ok(Outcome::NotAsked) };
        let bound = || read_set.bind(&parameters(statement, execution)?, context.client);
        let Ok(mut bound) = bound() else { return Ok(Outcome::NotAsked) };
        let moving = limits(&read_set, (statement, context), execution);
        let moving = moving.map(|limits| Moving::of(limits, execution, &job.key));
        let shown = Shown::of(&mut bound, execution);
        let Bound { tags, mut join_keys, .. } = bound;
        let started = shared.clock.now();
        let (catalog, snapshot) = (catalog.version, None);
        let join_until = started + statement.query.figures.join_wait();
        let request = FillRequest { key: &job.key, tags, catalog, now: started, snapshot, join_until };
        let permit = match shared.cache.begin_fill(request) {
            Ok(permit) if timing.is_too_soon(&permit) => return Ok(Outcome::TooSoon),
            Ok(permit) => permit,
            Err(_) => return Ok(Outcome::NotAsked),
        };
        // The permit's epoch began after its server was known.
        if shared.identity().as_deref() != Some(identity) {
            return Ok(Outcome::NotAsked);
        }
        let mut hearing = Hearing::new(usize::try_from(shared.cache.limits().entry_bytes_max).unwrap_or(usize::MAX));
        hearing.describes_statement = matches!(execution, Execution::Bound { describe: Describe::Statement, .. });
        let messages = messages(statement, execution);
        let conversation = client.converse(&messages, 3, |tag, body| hearing.hear(tag, body));
        timeout(ANSWER_TIMEOUT, conversation).await.unwrap_or(Err(Error::Timeout(ANSWER_TIMEOUT)))?;
        let took = shared.clock.now().saturating_sub(started);
        let configuration = std::mem::take(&mut hearing.configuration);
        if configuration.as_ref() != Some(&entered.configuration) {
            *slot = None;
            return Ok(Outcome::Read);
        }
        let (Some(proof), Some(end), Some(frames)) = (hearing.proof, hearing.end, hearing.frames) else {
            return Ok(Outcome::Read);
        };
        if !hearing.complete {
            return Ok(Outcome::Read);
        }
        if timing == Timing::AtOnce && !permit.is_shown(&proof) {
            return Ok(Outcome::TooSoon);
        }
        let told = shown.map(|shown| shown.tags(&frames, join_keys.as_mut()));
        let own = job.source.query.figures.worth.own(took, shared.waits.turn());
        let reached = moving.and_then(|moving| moving.reached(&frames));
        let mut body = Body::new((backend::rows_of(&frames), frames), job.source.clone(), (started, own));
        body.reached = reached;
        let end = end.without_page_header(shared.wal_segment_bytes());
        let proof = Some(Arc::new(proof));
        let Some(epoch) = shared.cache.epoch() else { return Ok(Outcome::Read) };
        let join_keys = join_keys.filter(|_| permit.wants_deferred()).map(Box::new);
        let stage = Read { told, body, refreshed: true };
        let complete = PendingFill { permit, join_keys, proof, expected: None, stage };
        // The result is served once the stream has passed this position.
        shared.install(complete, End { epoch, lsn: end });
        Ok(Outcome::Read)
    }
}

impl Link {
    async fn open(shared: &Pg) -> Result<Self, ServiceError> {
        if shared.identity().is_none() {
            return Err(ServiceError::NoStream);
        }
        let (mut client, identity) = connect(shared).await?;
        if Some(&identity) != shared.identity().as_deref() {
            return Err(ServiceError::OtherServer);
        }
        client.query_timeout(MANNERS, ANSWER_TIMEOUT).await?;
        let answer = client.query_timeout(&context::question(false, &[]), ANSWER_TIMEOUT).await?;
        let answer = read_answer(&answer).ok_or(ServiceError::UnexpectedAnswer("the context"))?;
        Ok(Self { client, identity, user: answer.session_user, entered: None })
    }

    /// Enters the context. False if the server does not allow this connection to do so.
    async fn enter(&mut self, id: u32, key: &ContextKey, catalog: CatalogVersion) -> Result<bool, ServiceError> {
        self.entered = None;
        let Some(recipe) = Recipe::of(key) else { return Ok(false) };
        match self.follow(&recipe).await {
            Ok(answer) => {
                let Some(answer) = read_answer(&answer).filter(|answer| answer.has_key(key)) else { return Ok(false) };
                self.entered = Some(Entered { id, catalog, configuration: answer.configuration });
                Ok(true)
            }
            Err(Error::Server(_)) if !self.client.is_dead() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn follow(&mut self, recipe: &Recipe<'_>) -> Result<Rows, Error> {
        let client = &mut self.client;
        client.query_timeout(BACK, ANSWER_TIMEOUT).await?;
        let call =
            |(at, (name, _)): (usize, &(&str, &str))| format!("pg_catalog.set_config('{name}', ${}, false)", at + 1);
        let calls: Vec<String> = recipe.settings.iter().enumerate().map(call).collect();
        let values: Vec<&str> = recipe.settings.iter().map(|(_, value)| *value).collect();
        let sql = format!("SELECT {}", calls.join(", "));
        let set = client.query_with(&sql, &values);
        timeout(ANSWER_TIMEOUT, set).await.unwrap_or(Err(Error::Timeout(ANSWER_TIMEOUT)))?;
        if recipe.session_user != self.user {
            let sql = format!("SET SESSION AUTHORIZATION {}", quote_identifier(recipe.session_user));
            client.query_timeout(&sql, ANSWER_TIMEOUT).await?;
        }
        if recipe.current_user != recipe.session_user {
            client
                .query_timeout(&format!("SET ROLE {}", quote_identifier(recipe.current_user)), ANSWER_TIMEOUT)
                .await?;
        }
        client.query_timeout(&context::question(false, &[]), ANSWER_TIMEOUT).await
    }
}

fn read_answer(rows: &Rows) -> Option<Answer> {
    let row: Vec<Option<&[u8]>> = rows.first()?.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
    Answer::read(&row)
}

/// Decomposes a key of [`write_key`].
fn read_key(key: &[u8]) -> Option<Key<'_>> {
    match key.get(4..)?.split_first()? {
        (b'Q', text) => Some(Key::Query(text)),
        (tag, rest) => {
            let describe = match tag {
                b'E' => Describe::Nothing,
                b'D' => Describe::Portal,
                b'S' => Describe::Statement,
                _ => return None,
            };
            let (_statement, rest) = rest.split_first_chunk::<8>()?;
            let (rows_max, tail) = rest.split_first_chunk::<4>()?;
            Some(Key::Bound { describe, rows_max: u32::from_le_bytes(*rows_max), tail })
        }
    }
}

/// The messages of the snapshot query, the statement and the log-end probe, each with its own ReadyForQuery.
fn messages(statement: &Statement, execution: Execution<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let own = |out: &mut Vec<u8>, sql: &str| {
        frontend::put_parse(out, b"", sql.as_bytes());
        frontend::put_bind_execute(out, b"", &[]);
        frontend::put_sync(out);
    };
    own(&mut out, "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text");
    match execution {
        Execution::Query(text) => frontend::put_query(&mut out, text),
        Execution::Bound { tail, describe, rows_max, .. } => {
            frontend::put_parse_typed(&mut out, statement.text(), &statement.types);
            if describe == Describe::Statement {
                frontend::put_describe_statement(&mut out);
            }
            frontend::put_execution(&mut out, tail, describe == Describe::Portal, rows_max);
            frontend::put_sync(&mut out);
        }
    }
    let configuration = context::CONFIGURATION;
    own(&mut out, &format!("SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text, {configuration}"));
    out
}

/// The server's answers to [`messages`].
struct Hearing {
    /// Number of complete answers.
    answers: usize,
    proof: Option<Visible>,
    /// The answer in the form of a session's entries; None if it cannot be cached.
    frames: Option<Vec<u8>>,
    describes_statement: bool,
    bytes_max: usize,
    complete: bool,
    end: Option<Lsn>,
    configuration: Option<String>,
}

impl Hearing {
    fn new(bytes_max: usize) -> Self {
        let frames = Some(Vec::new());
        let (describes_statement, complete) = (false, false);
        Self {
            answers: 0,
            proof: None,
            frames,
            describes_statement,
            bytes_max,
            complete,
            end: None,
            configuration: None,
        }
    }

    fn hear(&mut self, tag: u8, body: &[u8]) {
        if tag == backend::READY {
            self.answers += 1;
        } else if self.answers == 1 {
            self.hear_statement(tag, body);
        } else if tag == backend::DATA_ROW {
            let mut frame = Vec::new();
            backend::put_message(&mut frame, tag, body);
            let columns = backend::data_row(&frame).unwrap_or_default();
            let text = |at: usize| columns.get(at).copied().flatten().and_then(|text| std::str::from_utf8(text).ok());
            if self.answers == 0 {
                self.proof = text(0).and_then(Visible::of_snapshot);
            } else {
                self.end = text(0).and_then(Lsn::parse);
                self.configuration = text(1).map(str::to_owned);
            }
        }
    }

    fn hear_statement(&mut self, tag: u8, body: &[u8]) {
        let of_statement = matches!(tag, backend::PARAMETER_DESCRIPTION | backend::BIND_COMPLETE);
        match tag {
            backend::PARSE_COMPLETE => {}
            backend::BIND_COMPLETE if !self.describes_statement => {}
            _ if self.describes_statement && of_statement => self.keep(tag, body),
            backend::ROW_DESCRIPTION | backend::DATA_ROW | backend::COMMAND_COMPLETE | backend::PORTAL_SUSPENDED => {
                self.complete = matches!(tag, backend::COMMAND_COMPLETE | backend::PORTAL_SUSPENDED);
                self.keep(tag, body);
            }
            // An answer with a notice is not repeatable, and one with an error is not a result. Other messages do not occur here.
            _ => self.frames = None,
        }
    }

    fn keep(&mut self, tag: u8, body: &[u8]) {
        if let Some(frames) = &mut self.frames {
            backend::put_message(frames, tag, body);
        }
        if self.frames.as_ref().is_some_and(|frames| frames.len() > self.bytes_max) {
            self.frames = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::registry::Registry;

    #[test]
    fn keys_are_taken_apart_as_they_were_put_together() {
        let statement =
            Registry::new(1 << 20, freshet_types::Dialect::Postgres).statement(b"select $1", &[0, 0, 0, 23]).unwrap();
        let mut key = Vec::new();
        write_key(&mut key, 7, Execution::Query(b"select 1"));
        assert!(matches!(read_key(&key), Some(Key::Query(b"select 1"))));
        for describe in [Describe::Portal, Describe::Statement, Describe::Nothing] {
            let execution = Execution::Bound { statement: &statement, tail: b"tail", describe, rows_max: 5 };
            write_key(&mut key, 7, execution);
            let Some(Key::Bound { describe: read, rows_max: 5, tail: b"tail" }) = read_key(&key) else { panic!() };
            assert_eq!(read, describe);
        }
        write_key(
            &mut key,
            7,
            Execution::Bound { statement: &statement, tail: b"tail", describe: Describe::Nothing, rows_max: 5 },
        );
        for end in 0..17 {
            assert!(read_key(&key[..end]).is_none(), "{end}");
        }
    }

    #[test]
    fn only_a_whole_answer_without_a_notice_is_kept() {
        let heard_of = |tags: &[u8], describes_statement| {
            let mut hearing = Hearing { describes_statement, ..Hearing::new(100) };
            hearing.hear(backend::READY, b"I");
            for tag in tags {
                hearing.hear(*tag, b"0123456789");
            }
            (hearing.frames.map(|frames| frames.len()), hearing.complete)
        };
        let heard = |tags: &[u8]| heard_of(tags, false);
        assert_eq!(heard_of(b"1tT2DC", true), (Some(75), true));
        assert_eq!(heard(b"tT2DC").0, None);
        assert_eq!(heard(b"12TDC"), (Some(45), true));
        assert_eq!(heard(b"TD"), (Some(30), false));
        assert_eq!(heard(b"2Ds"), (Some(30), true));
        assert_eq!(heard(b"TDNC").0, None);
        assert_eq!(heard(b"TDE").0, None);
        assert_eq!(heard(b"TSDC").0, None);
        assert_eq!(heard(b"TDDDDDDDC").0, None);
    }
}
