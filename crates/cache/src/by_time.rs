//! Results that are served until a time, by a rule of the operator, since changes do not invalidate them.
//!
//! They are filled and stored as others are, with tags for definitions alone. The lease holds for them as for others, and a new epoch voids them.
//! Position of the stream and watermark of the session do not matter: they may be older than what the session has read or written. An ordinary hit
//! costs nothing more, since [`Entry::servable`] is false for them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_types::{Epoch, Nanos, Reason};

use crate::entry::{Entry, Payload};
use crate::flight::FillRequest;
use crate::freshness::Watermark;
use crate::permit::FillPermit;
use crate::{Cache, Lookup};

impl<P: Payload> Cache<P> {
    /// An entry that is not served by the position of the stream may be served by time ([`Self::begin_fill_until`]).
    #[cold]
    pub(crate) fn lookup_by_time(
        &self,
        entry: Arc<Entry<P>>,
        epoch: Epoch,
        watermark: &Watermark,
        now: Nanos,
    ) -> Lookup<P> {
        match entry.until() {
            None => Lookup::Bypass(Reason::NotYetApplied),
            Some(_) if watermark.snapshot.is_some() => Lookup::Bypass(Reason::Snapshot),
            Some(until) if now < until && entry.epoch() == epoch => {
                self.counters.hits_by_ttl.fetch_add(1, Relaxed);
                Lookup::Hit(entry)
            }
            Some(_) => Lookup::Miss,
        }
    }

    /// As [`Self::begin_fill`], for a result that is served until this time, to any session whose lease holds, although commits invalidate it only by its tags. It is
    /// not for a query on an older snapshot.
    pub fn begin_fill_until(self: &Arc<Self>, request: FillRequest<'_>, until: Nanos) -> Result<FillPermit<P>, Reason> {
        if request.snapshot.is_some() {
            return Err(Reason::Snapshot);
        }
        Ok(self.begin_fill(request)?.lasting(until))
    }
}
