//! Settings that statements read by name, such as `current_setting('request.jwt.claims', true)` of PostgREST and Hasura.
//!
//! The server does not list settings that an application made up. So the query for a session's context also reads those that a statement has read
//! before, up to a limit. Hashes of their values are in the keys of the statements that read them ([`super::session`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use arc_swap::ArcSwap;

/// Limit of settings that are read.
const NAMES_MAX: usize = 16;
/// Limit of consecutive failed queries, after which no such setting is read any more: the session may lack the privilege to read one.
const FAILURES_MAX: u32 = 8;

/// The names of the settings, in the order in which they were seen.
#[derive(Debug, Default)]
pub(crate) struct Named {
    names: ArcSwap<Vec<Box<str>>>,
    failures: AtomicU32,
    /// Consecutive questions within transaction blocks that failed.
    failures_in_blocks: AtomicU32,
}

impl Named {
    /// Whether questions may be asked within transaction blocks, which end with a question that fails.
    pub(crate) fn may_ask_in_blocks(&self) -> bool {
        self.failures_in_blocks.load(Relaxed) <= FAILURES_MAX
    }

    /// A question within a transaction block has failed, or was answered.
    pub(crate) fn asked_in_block(&self, failed: bool) {
        if failed {
            self.failures_in_blocks.fetch_add(1, Relaxed);
        } else if self.failures_in_blocks.load(Relaxed) > 0 {
            self.failures_in_blocks.store(0, Relaxed);
        }
    }

    /// The names to read. Two different lists never have the same length.
    pub(crate) fn names(&self) -> Arc<Vec<Box<str>>> {
        if self.failures.load(Relaxed) > FAILURES_MAX { Arc::default() } else { self.names.load_full() }
    }

    /// A query with some of them failed.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// A query with them was answered.
    pub(crate) fn answered(&self) {
        if self.failures.load(Relaxed) <= FAILURES_MAX {
            self.failures.store(0, Relaxed);
        }
    }

    /// The place of a setting in the list.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names.load().iter().position(|known| known.eq_ignore_ascii_case(name))
    }

    /// The place of a setting that a statement reads, which may be a new one; None if it is not read.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        if self.failures.load(Relaxed) > FAILURES_MAX {
            return None;
        }
        let name = name.to_ascii_lowercase();
        if self.find(&name).is_none() && is_made_up(&name) {
            self.names.rcu(|names| {
                let mut names = names.to_vec();
                if names.len() < NAMES_MAX && !names.iter().any(|known| **known == *name) {
                    names.push(name.as_str().into());
                }
                names
            });
        }
        self.find(&name)
    }
}

/// The name has a dot, as the server requires for such settings; the session may not be allowed to read others. Each part may be in quotes.
fn is_made_up(name: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-'))
    };
    // These settings appear when their extension is loaded, which any statement may do.
    let loads = ["hnsw.", "ivfflat.", "pg_trgm.", "plpgsql.", "postgis."].iter().any(|prefix| name.starts_with(prefix));
    name.len() <= 128 && name.contains('.') && name.split('.').all(word) && !loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_places() {
        let named = Named::default();
        assert_eq!(
            (named.place("app.tenant"), named.place("App.User"), named.place("APP.tenant")),
            (Some(0), Some(1), Some(0))
        );
        for name in ["timezone", "a.", ".b", "a..b", "a.b'c", "a.b\\", "ä.b", "pg_trgm.x", ""] {
            assert_eq!(named.place(name), None, "{name}");
        }
        for number in 0..100 {
            named.place(&format!("app.n{number}"));
        }
        assert_eq!(named.names().len(), NAMES_MAX);
        assert_eq!((named.place("app.n0"), named.place("app.n99")), (Some(2), None));
        (0..=FAILURES_MAX).for_each(|_| named.failed());
        assert_eq!((named.place("app.tenant"), named.names().len()), (None, 0));
    }
}
