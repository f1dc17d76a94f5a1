//! Looks up a key, for both families.

use std::convert::Infallible;
use std::sync::Arc;

use freshet_cache::{Entry, Lookup, Watermark};
use freshet_types::{Nanos, Reason};

use crate::session::body::Body;
use crate::shared::Shared;

/// The decision about an execution. The look-up, admission and the state of the session decide one after the other, each about the cases that the one
/// before leaves open.
#[derive(Debug)]
pub(crate) enum Decision<H, F = (), W = Infallible> {
    /// It is served from the cache.
    Hit(H),
    /// It is sent, and its result may be cached.
    Fill(F),
    /// It is decided again once something has changed.
    Wait(W),
    /// It is sent.
    Pass(Reason),
}

/// The result of a look-up.
pub(crate) type Found = Decision<Arc<Entry<Body>>>;

impl Shared {
    /// Looks up a key. `accepts` is called with the entry: false if another fill must replace it.
    pub(crate) fn look_up(
        &self,
        key: &[u8],
        watermark: &Watermark,
        now: Nanos,
        accepts: impl FnOnce(&Body) -> Result<bool, Reason>,
    ) -> Found {
        match self.cache.lookup(key, watermark, now) {
            Lookup::Miss => Decision::Fill(()),
            Lookup::Bypass(reason) => Decision::Pass(reason),
            Lookup::Hit(entry) => match accepts(&entry.payload) {
                Ok(true) => Decision::Hit(entry),
                Ok(false) => Decision::Fill(()),
                Err(reason) => Decision::Pass(reason),
            },
        }
    }
}
