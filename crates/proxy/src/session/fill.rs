//! The life of a fill, once for both families.
//!
//! | name | is |
//! |---|---|
//! | [`FillRequest`] | what the cache is asked before the query is sent: the key, and the tags of the result |
//! | [`FillPermit`] | the right to install that result; dropping it abandons the fill |
//! | [`PendingFill`] | the permit with the answer, while it is read ([`Reading`]) and until it may be installed ([`Read`]) |
//! | [`Entry`] | the installed result |
//!
//! # The order of the steps
//!
//! [`Miss::begin_fill`] has all steps in the order that keeps results true:
//!
//! 1. Tags are derived from the catalogue under which the session's context was read, before the query is sent.
//! 2. A proof that is known already is taken before the request: what it shows was visible before the query is sent.
//! 3. The request is made before anything is sent, so that each later commit is a candidate of the fill.
//! 4. The server is compared with that of the change stream after the request ([`Registered::confirm`]). The stream may have moved to
//!    another server since this session was compared with it; the epoch that the permit belongs to began after its identity was published.
//!
//! Sessions get a `PendingFill<Reading>` from `confirm` alone. PostgreSQL's background refresh takes the same steps itself
//! (`postgres/service/refresh/reader.rs`).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use freshet_cache::{Entry, FillPermit, FillRequest, Proven, admission};
use freshet_sql::{Bound, JoinKeys, Parameter, ReadSet};
use freshet_types::{Catalog, CatalogVersion, Nanos, Reason, TableId, Tag, Visible};

use crate::metrics::WorkerCounters;
use crate::session::body::{Body, Source};
use crate::session::context::Context;
use crate::session::moving::Limits;
use crate::shared::Shared;
use crate::statement::registry::Statement;

/// A fill under way.
#[derive(Debug)]
pub(crate) struct PendingFill<S> {
    /// The right to install the result.
    pub(crate) permit: FillPermit<Body>,
    /// What is to be read before that.
    pub(crate) join_keys: Option<Box<JoinKeys>>,
    /// A proof whose answer had arrived before the query was sent.
    pub(crate) proof: Option<Arc<Visible>>,
    /// See [`crate::session::verify`]: what the answer is to be compared with.
    pub(crate) expected: Option<Arc<Entry<Body>>>,
    /// How far it has come: [`Reading`] or [`Read`].
    pub(crate) stage: S,
}

/// Its answer is being read.
#[derive(Debug)]
pub(crate) struct Reading<A> {
    pub(crate) source: Source,
    pub(crate) frames: Vec<u8>,
    /// Before the query was sent.
    pub(crate) started: Nanos,
    /// What the family notes of the answer.
    pub(crate) answer: A,
}

/// Its answer has been read.
#[derive(Debug)]
pub(crate) struct Read {
    /// The deferred tags that it tells itself, by its last row.
    pub(crate) told: Option<Vec<Tag>>,
    /// What is to be installed.
    pub(crate) body: Body,
    /// Freshet itself asked for it: see [`crate::service::refreshes`].
    pub(crate) refreshed: bool,
}

impl<A> PendingFill<Reading<A>> {
    /// A part of the answer has come; false: the result cannot be cached, and the fill is to be dropped at once.
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

/// An execution that missed, as its family sees it.
pub(crate) trait Execution {
    /// What is noted of the answer.
    type Answer;

    /// It is of a prepared statement, which has a number.
    fn is_bound(&self) -> bool;

    /// Its moving limits, if its statement is known to have such.
    fn limits(&self) -> Option<Limits>;

    /// An error if the family does not cache it.
    fn check(&self, catalog: &Catalog, read_set: &ReadSet) -> Result<(), Reason>;

    fn parameters(&self) -> Result<Vec<Parameter<'_>>, Reason>;

    /// Takes from what the execution depends on what its answer will tell.
    fn answer(&self, bound: &mut Bound, limits: Option<Limits>) -> Self::Answer;

    /// What was proven visible by now.
    fn proof(&self) -> Option<Arc<Visible>>;

    /// A proof can be asked for before the query is sent.
    fn can_ask_proof(&self) -> bool;

    /// These tables are not published.
    fn not_published(&self, tables: &[TableId]);
}

/// What a session knows of a miss.
pub(crate) struct Miss<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) statement: &'a Arc<Statement>,
    pub(crate) key: &'a [u8],
    /// The session's context, and the catalogue under which it was read.
    pub(crate) context: (&'a Context, CatalogVersion),
    /// It comes right behind a write of the session.
    pub(crate) late: bool,
    /// The snapshot that it reads.
    pub(crate) snapshot: Option<Proven>,
    /// Others may wait for its end.
    pub(crate) is_joinable: bool,
}

impl Miss<'_> {
    /// Registers a fill, before anything is sent. An error: why the answer is not to be cached.
    pub(crate) fn begin_fill<E: Execution>(&self, execution: &E) -> Result<Registered<E::Answer>, Reason> {
        let Self { shared, statement, key, context: (context, known_under), snapshot, .. } = *self;
        let query = &statement.query;
        let limits = execution.limits();
        let counted = Limits::counted(limits.as_ref(), key);
        let miss = admission::Miss { key: counted, after_own_write: self.late, known: execution.is_bound() };
        shared.passes_suspended(query, miss)?;
        let catalog = shared.catalog.load_full();
        if catalog.version != known_under {
            return Err(Reason::CatalogStale);
        }
        let read_set = query.resolve(&catalog, context).read_set?;
        execution.check(&catalog, &read_set)?;
        let expected = shared.expected(key);
        if expected.is_none() {
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
        let number = if execution.is_bound() { Arc::downgrade(statement) } else { Weak::new() };
        let source = Source { query: query.clone(), statement: number };
        let stage = Reading { source, frames: Vec::new(), started, answer };
        Ok(Registered(PendingFill { permit, join_keys, proof, expected, stage }))
    }
}

/// A fill that is registered.
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
