//! What keeps to the memory limit, also when that becomes another while the program runs.
//!
//! Entries are weighed with all that belongs to them, and yet that is not what the process takes. Where small results went and
//! large ones came, every page keeps some of the small ones, and the rest of it is of no use to the large: half as much again as
//! was weighed, as measured. Statements, buffers of connections and tables come on top. So the process is measured: what it has taken
//! since its start beyond the weight of the entries is set aside, and entries have the rest of the limit. Looked at so often
//! that little comes between.
//!
//! It is a control loop that cannot run away: entries make room for the excess, as much as there is. If half of that is holes, half of
//! the excess is left, for the next time.

use std::sync::Arc;
use std::time::Duration;

use crate::shared::Shared;

const EVERY: Duration = Duration::from_millis(100);

impl Shared {
    /// Another limit from now on; returns what it was before. What has no room any more goes soon.
    pub fn set_memory(&self, bytes: u64) -> u64 {
        let before = self.cache.set_memory(bytes);
        self.registry.set_memory(bytes);
        self.memory_changed.notify_one();
        before
    }

    /// Bytes of the statements that are known.
    pub fn statement_bytes(&self) -> u64 {
        self.registry.bytes()
    }
}

/// Keeps the cache within its room, for ever. `taken`: bytes that the process has taken since its start, if that is known; else
/// those of statements are set aside.
pub async fn keep_memory(shared: Arc<Shared>, taken: impl Fn() -> Option<u64>) {
    loop {
        let aside = taken().map(|bytes| bytes.saturating_sub(shared.cache.bytes()));
        shared.cache.set_aside(aside.unwrap_or_else(|| shared.statement_bytes()));
        while !shared.cache.make_room() {
            // The change stream comes between.
            tokio::task::yield_now().await;
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.memory_changed.notified() => {}
        }
    }
}
