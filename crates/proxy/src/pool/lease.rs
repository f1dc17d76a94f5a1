//! The right to have one connection.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::pool::{Group, PoolKey, Pools};

/// Connections that were opened since the last RECONNECT. Each of them has a clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation(Arc<()>);

impl Generation {
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn downgrade(&self) -> Weak<()> {
        Arc::downgrade(&self.0)
    }
}

/// What is known of a connection while it is idle.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) group: Group,
    pub(super) generation: Generation,
    pub(super) born: Instant,
}

impl Terms {
    pub(super) fn new(group: Group, generation: Generation) -> Self {
        Self { group, generation, born: Instant::now() }
    }
}

/// The right to have one connection, and the connection until it is taken out. Dropping it gives back what it has.
pub(crate) struct Lease<C> {
    /// None: nothing is to be given back.
    inner: Option<Inner<C>>,
}

struct Inner<C> {
    pools: Arc<Pools<C>>,
    key: Arc<PoolKey>,
    terms: Terms,
    connection: Option<C>,
}

impl<C> Lease<C> {
    pub(super) fn of(pools: Arc<Pools<C>>, key: Arc<PoolKey>, terms: Terms, connection: Option<C>) -> Self {
        Self { inner: Some(Inner { pools, key, terms, connection }) }
    }

    /// Takes the connection out, which is the caller's from now on; None: the caller opens one.
    pub(crate) fn take(&mut self) -> Option<C> {
        self.inner.as_mut()?.connection.take()
    }

    /// The connection that was in it was of no use, and the caller opens another one in its place.
    pub(crate) fn renew(&mut self) {
        if let Some(inner) = &mut self.inner {
            let generation = inner.pools.generation(&inner.key);
            inner.terms = Terms::new(inner.terms.group.clone(), generation);
        }
    }

    /// There is no connection for now: nobody waits for its end.
    pub(crate) fn forget(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.terms.generation = Generation::default();
        }
    }

    /// The connection is now like those of this group.
    pub(crate) fn regroup(&mut self, group: Group) {
        if let Some(inner) = &mut self.inner {
            inner.terms.group = group;
        }
    }

    /// The connection can be used by another session.
    pub(crate) fn give_back(mut self, connection: C) {
        if let Some(Inner { pools, key, terms, .. }) = self.inner.take() {
            pools.came_back(&key, terms, connection);
        }
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        match self.inner.take() {
            None => {}
            Some(Inner { pools, key, terms, connection: Some(connection) }) => {
                pools.came_back(&key, terms, connection);
            }
            Some(Inner { pools, key, .. }) => pools.was_closed(&key),
        }
    }
}

impl<C> fmt::Debug for Lease<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.inner.as_ref().map(|inner| &inner.key)).finish_non_exhaustive()
    }
}
