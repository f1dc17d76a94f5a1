//! The life of a fill, for both families.
//!
//! | name | is |
//! |---|---|
//! | [`FillRequest`] | the request to the cache before the query is sent: the key, and the tags of the result |
//! | [`FillPermit`] | the right to install this result; dropping it abandons the fill |
//! | [`PendingFill`] | the permit with the answer, while it is read ([`Reading`]) and until it may be installed ([`Read`]) |
//! | [`Entry`] | the installed result |
//!
//! # The order of the steps
//!
//! [`Miss::begin_fill`] has all steps in the order that keeps results consistent:
//!
//! 1. Tags are derived from the catalogue under which the session's context was read, before the query is sent.
//! 2. A known proof is taken before the request: everything that it shows was visible before the query is sent.
//! 3. The request is made before anything is sent, so that each later commit is tested with the fill.
//! 4. The server is compared with that of the change stream after the request ([`Registered::confirm`]). The stream may have changed to another
//!    server since this session was compared with it; the epoch of the permit began after its identity was published.
//!
//! Only `confirm` returns a `PendingFill<Reading>` to a session. PostgreSQL's background refresh takes the same steps itself
//! (`postgres/service/refresh/reader.rs`).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use freshet_cache::{Entry, FillPermit, FillRequest, Proven, admission};
use freshet_sql::{Bound, JoinKeys, Parameter};
use freshet_types::{Catalog, CatalogVersion, Nanos, Reason, TableId, Tag, Visible};

use crate::metrics::WorkerCounters;
use crate::rules::{Caching, Who};
use crate::session::body::{Body, Source};
use crate::session::context::Context;
use crate::session::moving::Limits;
use crate::shared::Shared;
use crate::statement::registry::Statement;

/// A fill in flight.
#[derive(Debug)]
pub(crate) struct PendingFill<S> {
    /// The right to install the result.
    pub(crate) permit: FillPermit<Body>,
    /// The join keys to read before that.
    pub(crate) join_keys: Option<Box<JoinKeys>>,
    /// A proof whose answer had arrived before the query was sent.
    pub(crate) proof: Option<Arc<Visible>>,
    /// The entry to compare the answer with: see [`crate::session::verify`].
    pub(crate) expected: Option<Arc<Entry<Body>>>,
    /// Its state: [`Reading`] or [`Read`].
    pub(crate) stage: S,
}

/// Its answer is being read.
#[derive(Debug)]
pub(crate) struct Reading<A> {
    pub(crate) source: Source,
    pub(crate) frames: Vec<u8>,
    /// Before the query was sent.
    pub(crate) started: Nanos,
    /// What the family stores of the answer.
    pub(crate) answer: A,
}

/// Its answer has been read.
#[derive(Debug)]
pub(crate) struct Read {
    /// The deferred tags from its own last row.
    pub(crate) told: Option<Vec<Tag>>,
    /// The answer to install.
    pub(crate) body: Body,
    /// Freshet itself sent the query: see [`crate::service::refreshes`].
    pub(crate) refreshed: bool,
}

impl<A> PendingFill<Reading<A>> {
    /// Adds a part of the answer. False: the result cannot be cached, and the fill must be dropped at once.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        let Reading { source, frames, .. } = &mut self.stage;
        match self.permit.grow(frames.len() + bytes.len()) {
            Ok(()) => frames.extend_from_slice(bytes),
            Err(reason) => {
                source.query.note_not_cached(reason);
                return false;
            }
        }
        true
    }
}

/// The family's view of an execution that missed.
pub(crate) trait Execution {
    /// What it stores of the answer.
    type Answer;

    /// Whether it has the number of a prepared statement.
    fn is_bound(&self) -> bool;

    /// Its moving limits, if its statement is known to have some.
    fn limits(&self) -> Option<Limits>;

    /// An error if the family does not cache it.
    fn check(&self, catalog: &Catalog, tables: &[TableId]) -> Result<(), Reason>;

    fn parameters(&self) -> Result<Vec<Parameter<'_>>, Reason>;

    /// Takes from the dependencies of the execution those that its answer will give.
    fn answer(&self, bound: &mut Bound, limits: Option<Limits>) -> Self::Answer;

    /// What is proven visible by now.
    fn proof(&self) -> Option<Arc<Visible>>;

    /// Whether a proof can be requested before the query is sent.
    fn can_ask_proof(&self) -> bool;

    /// These tables are not published.
    fn not_published(&self, tables: &[TableId]);
}

/// The session's facts about a miss.
pub(crate) struct Miss<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) statement: &'a Arc<Statement>,
    pub(crate) key: &'a [u8],
    /// The session's context, and the catalogue under which it was read.
    pub(crate) context: (&'a Context, CatalogVersion),
    /// Who sent the statement, for the rules.
    pub(crate) who: Who<'a>,
    /// It directly follows a write of the session.
    pub(crate) after_own_write: bool,
    /// The snapshot that it reads.
    pub(crate) snapshot: Option<Proven>,
    /// Other sessions may wait for the fill.
    pub(crate) is_joinable: bool,
}

impl Miss<'_> {
    /// Registers a fill, before anything is sent. An error: why the answer will not be cached.
    pub(crate) fn begin_fill<E: Execution>(&self, execution: &E) -> Result<Registered<E::Answer>, Reason> {
        let Self { shared, statement, .. } = *self;
        let generation = shared.rules.generation();
        let (caching, ttl) = shared.rules.caching(statement.subject(), &self.who);
        if caching == Caching::Never {
            return Err(Reason::Rule);
        }
        let registered = match ttl {
            Some(ttl) => self.begin_fill_under_ttl(execution, caching, ttl)?,
            None => self.begin_exact_fill(execution, caching)?,
        };
        // A change of rules fails the fills that it finds. It may have missed this one.
        if shared.rules.generation() == generation { Ok(registered) } else { Err(Reason::Rule) }
    }

    /// The same where a `ttl` holds, which exact results do not need.
    fn begin_fill_under_ttl<E: Execution>(
        &self,
        execution: &E,
        caching: Caching,
        ttl: Nanos,
    ) -> Result<Registered<E::Answer>, Reason> {
        let Self { shared, statement, .. } = *self;
        let query = &statement.query;
        // First, since what is not cached by itself must not count for its admission.
        let verdict = query.resolve(&shared.catalog.load(), self.context.0);
        if verdict.read_set.is_err_and(|reason| reason.yields_to_ttl()) {
            return self.begin_fill_by_ttl(execution, ttl);
        }
        // Parameters may be a clock reading.
        match self.begin_exact_fill(execution, caching) {
            Err(reason) if reason.yields_to_ttl() => self.begin_fill_by_ttl(execution, ttl),
            exact => exact,
        }
    }

    /// Registers a fill whose result every commit invalidates that affects it.
    fn begin_exact_fill<E: Execution>(&self, execution: &E, caching: Caching) -> Result<Registered<E::Answer>, Reason> {
        let Self { shared, statement, key, context: (context, known_under), snapshot, .. } = *self;
        let query = &statement.query;
        let limits = execution.limits();
        let counted = Limits::counted(limits.as_ref(), key);
        let miss = admission::Miss { key: counted, after_own_write: self.after_own_write, known: execution.is_bound() };
        if caching == Caching::Always {
            query.figures.worth.always_pays();
        }
        shared.passes_suspended(query, miss)?;
        let catalog = shared.catalog.load_full();
        if catalog.version != known_under {
            return Err(Reason::CatalogStale);
        }
        let read_set = query.resolve(&catalog, context).read_set?;
        execution.check(&catalog, &read_set.tables)?;
        let expected = shared.expected(key);
        if expected.is_none() && caching != Caching::Always {
            shared.admits(query, miss)?;
        }
        let limits = limits.or_else(|| execution.limits());
        let mut bound = read_set.bind(&execution.parameters()?, context.client)?;
        let answer = execution.answer(&mut bound, limits);
        let Bound { tags, join_keys, .. } = bound;
        let proof = execution.proof();
        let started = shared.clock.now();
        let join_until = if self.is_joinable { started + query.figures.join_wait() } else { 0 };
        let request = FillRequest { key, tags, catalog: catalog.version, now: started, snapshot, join_until };
        let begun = shared.cache.begin_fill(request);
        if begun.as_ref().is_err_and(|reason| *reason == Reason::NotPublished) {
            execution.not_published(&read_set.tables);
        }
        let permit = begun?;
        if permit.needs_proof() && !execution.can_ask_proof() {
            return Err(Reason::Unproven);
        }
        let join_keys = join_keys.filter(|_| permit.wants_deferred()).map(Box::new);
        query.note_ttl(None);
        let stage = Reading { source: self.source(execution), frames: Vec::new(), started, answer };
        Ok(Registered(PendingFill { permit, join_keys, proof, expected, stage }))
    }

    /// Registers a fill whose result is served until a time, since changes do not invalidate it.
    fn begin_fill_by_ttl<E: Execution>(&self, execution: &E, ttl: Nanos) -> Result<Registered<E::Answer>, Reason> {
        let Self { shared, statement, key, context: (context, known_under), snapshot, .. } = *self;
        let query = &statement.query;
        let catalog = shared.catalog.load_full();
        if catalog.version != known_under {
            return Err(Reason::CatalogStale);
        }
        if self.who.sets_clock {
            return Err(Reason::Setting("timestamp"));
        }
        let tags = query.tags_by_ttl(&catalog, context)?;
        execution.check(&catalog, &[])?;
        let mut bound = Bound { tags, join_keys: None, limit_bound: None, keys: None, derived_limit: None };
        let answer = execution.answer(&mut bound, None);
        let started = shared.clock.now();
        let join_until = if self.is_joinable { started + query.figures.join_wait() } else { 0 };
        let request =
            FillRequest { key, tags: bound.tags, catalog: catalog.version, now: started, snapshot, join_until };
        let permit = shared.cache.begin_fill_until(request, started + ttl)?;
        query.note_ttl(Some(ttl));
        query.figures.worth.always_pays();
        let stage = Reading { source: self.source(execution), frames: Vec::new(), started, answer };
        Ok(Registered(PendingFill { permit, join_keys: None, proof: None, expected: None, stage }))
    }

    fn source<E: Execution>(&self, execution: &E) -> Source {
        let statement = if execution.is_bound() { Arc::downgrade(self.statement) } else { Weak::new() };
        Source { query: self.statement.query.clone(), statement }
    }
}

/// A registered fill.
pub(crate) struct Registered<A>(PendingFill<Reading<A>>);

impl<A> Registered<A> {
    /// `server`: whether the connection leads to the server of the change stream.
    pub(crate) fn confirm(
        self,
        server: impl FnOnce() -> Option<Result<(), Reason>>,
        counters: Option<&WorkerCounters>,
    ) -> Result<PendingFill<Reading<A>>, Reason> {
        let Self(fill) = self;
        if !matches!(server(), Some(Ok(()))) {
            return Err(Reason::OtherServer);
        }
        fill.stage.source.query.figures.fill_begins();
        if let Some(counters) = counters {
            counters.fills.fetch_add(1, Relaxed);
        }
        Ok(fill)
    }
}
