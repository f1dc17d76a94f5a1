//! Entries that are removed one by one, for what they are and not for what a commit has changed.

use crate::Cache;
use crate::core::Core;
use crate::entry::{Entry, Payload};

impl<P: Payload> Cache<P> {
    /// Removes the entries with these answers, which the operator's rules no longer allow, true as they are. No query that is under way will be cached,
    /// since it may have begun under the rules of before. Hits need none of the locks that this holds while it looks at all entries.
    pub fn discard(&self, is_discarded: impl Fn(&P) -> bool) {
        let mut core = self.core();
        core.fail_flights();
        self.drop_where(&mut core, |entry| is_discarded(&entry.payload));
    }

    pub(crate) fn drop_where(&self, core: &mut Core, is_dropped: impl Fn(&Entry<P>) -> bool) {
        for (key, entry) in self.store.entries() {
            if is_dropped(&entry) {
                core.forget(entry.id());
                self.drop_flushed(vec![key]);
            }
        }
    }
}
