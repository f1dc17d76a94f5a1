//! Looking a key up, once for both families.

use std::convert::Infallible;
use std::sync::Arc;

use freshet_cache::{Entry, Lookup, Watermark};
use freshet_types::{Nanos, Reason};

use crate::session::body::Body;
use crate::shared::Shared;

/// What becomes of an execution. The look-up, admission and the state of the session decide one after the other, each for what the one
/// before has left open.
#[derive(Debug)]
pub(crate) enum Decision<H, F = (), W = Infallible> {
    /// It is served from the cache.
    Hit(H),
    /// It is sent, and its result may be cached.
    Fill(F),
    /// It is decided again once something has come.
    Wait(W),
    /// It is sent.
    Pass(Reason),
}

/// What a look-up comes to.
pub(crate) type Found = Decision<Arc<Entry<Body>>>;

impl Shared {
    /// Looks a key up. `accepts` is asked for what is found: false if another fill is to take its place.
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
