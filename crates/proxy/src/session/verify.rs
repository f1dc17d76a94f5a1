//! `--verify`: a sample of hits is also executed by the database, and the answers are compared.
//!
//! A simple comparison finds false differences, since the data may have changed meanwhile. So a sampled hit becomes an ordinary fill of the same key,
//! which replaces the entry. If it may be installed, and is still installed once the stream has passed the position at which it was read, no relevant
//! commit is between the two readings, and both must have the same rows. Otherwise the comparison is undecided. Rows are compared in any order.
//!
//! A difference means that a rule was broken, either by Freshet or by the statement (an answer that its text does not determine, such as LIMIT with
//! ties). In both cases the statement is no longer cached until Freshet is restarted. With an unordered LIMIT other rows may be correct as well: the
//! comparison is undecided.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use freshet_cache::{Cache, Entry};
use freshet_types::{Dialect, End, is_drawn};
use freshet_wire::mysql::packet::{HEADER_BYTES, Header};
use freshet_wire::postgres::frame;

use crate::session::body::Body;

/// Limit of waiting comparisons; further ones are skipped.
const WAITING_MAX: usize = 1000;

/// Two readings of one key.
#[derive(Debug)]
struct Comparison {
    before: Arc<Entry<Body>>,
    after: Arc<Entry<Body>>,
    /// The log end after the second reading.
    read_end: End,
}

/// The sampling and its outcomes.
#[derive(Debug)]
pub struct Verifier {
    /// Samples one hit of this many; 0: none.
    every: AtomicU64,
    dialect: Dialect,
    /// Counts the hits, if any are sampled.
    hits: AtomicU64,
    waiting: Mutex<VecDeque<Comparison>>,
    /// Equal answers.
    pub equal: AtomicU64,
    /// Undecided comparisons, since the data may have changed.
    pub undecided: AtomicU64,
    /// Different answers.
    pub different: AtomicU64,
}

/// One hit in how many; 0: none. `rate`: the share of hits, between 0 and 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of sane size")]
fn every(rate: f64) -> u64 {
    if rate > 0.0 { (1.0 / rate).round().max(1.0) as u64 } else { 0 }
}

impl Verifier {
    /// `rate`: the share of hits, between 0 and 1.
    pub(crate) fn new(rate: f64, dialect: Dialect) -> Self {
        let every = every(rate).into();
        let (hits, waiting) = (AtomicU64::new(0), Mutex::default());
        let (equal, undecided, different) = Default::default();
        Self { every, dialect, hits, waiting, equal, undecided, different }
    }

    /// Sets the share of hits.
    pub fn set_rate(&self, rate: f64) {
        self.every.store(every(rate), Relaxed);
    }

    /// Whether any hits are sampled.
    pub(crate) fn is_on(&self) -> bool {
        self.every.load(Relaxed) > 0
    }

    /// Whether the next hit must also be executed by the database.
    pub(crate) fn samples(&self) -> bool {
        let every = self.every.load(Relaxed);
        every > 0 && is_drawn(self.hits.fetch_add(1, Relaxed), every)
    }

    /// The second reading has replaced the first one.
    pub(crate) fn compare(&self, before: Arc<Entry<Body>>, after: Arc<Entry<Body>>, read_end: End) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push_back(Comparison { before, after, read_end });
        }
    }

    /// Decides the comparisons that can be decided by now.
    pub(crate) fn decide(&self, cache: &Cache<Body>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return;
        }
        let (decided, rest) = waiting.drain(..).partition(|comparison| cache.has_passed(comparison.read_end));
        *waiting = rest;
        drop(waiting);
        let decided: VecDeque<Comparison> = decided;
        for Comparison { before, after, .. } in decided {
            let (before, query) = (&before.payload, &after.payload.source.query);
            let same = || same_rows(self.dialect, before.frames(), after.payload.frames());
            let is_open = query.template.leaves_rows_open();
            if !cache.is_kept(&after) || (is_open && !same()) {
                self.undecided.fetch_add(1, Relaxed);
            } else if same() {
                self.equal.fetch_add(1, Relaxed);
            } else {
                self.different.fetch_add(1, Relaxed);
                query.disable();
                tracing::error!(
                    digest = query.digest_text(),
                    statement = &*query.text,
                    "ALARM: an answer from the cache differs from the database's; the statement is not cached any more"
                );
            }
        }
    }
}

/// Whether two answers have the same messages, in any order.
fn same_rows(dialect: Dialect, a: &[u8], b: &[u8]) -> bool {
    let sorted = if dialect.is_mysql_family() { sorted_packets } else { sorted_frames };
    a == b || (a.len() == b.len() && sorted(a) == sorted(b))
}

/// Packets are numbered, so two rows in another order have each other's numbers.
fn sorted_packets(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while let Some(head) = Header::read(bytes)
        && let Some((packet, rest)) = bytes.split_at_checked(head.packet_bytes())
    {
        payloads.push(packet.get(HEADER_BYTES..).unwrap_or_default());
        bytes = rest;
    }
    payloads.push(bytes);
    payloads.sort_unstable();
    payloads
}

fn sorted_frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Ok(Some(head)) = frame::header(bytes)
        && let Some((frame, rest)) = bytes.split_at_checked(head.frame_bytes)
    {
        frames.push(frame);
        bytes = rest;
    }
    frames.push(bytes);
    frames.sort_unstable();
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_in_any_order() {
        let (a, b, c) = (b"D\0\0\0\x05a".as_slice(), b"D\0\0\0\x05b".as_slice(), b"D\0\0\0\x05c".as_slice());
        assert!(same_rows(Dialect::Postgres, &[a, b].concat(), &[b, a].concat()));
        assert!(!same_rows(Dialect::Postgres, &[a, b].concat(), &[a, c].concat()));
        assert!(!same_rows(Dialect::Postgres, &[a, a].concat(), a));
        assert!(same_rows(Dialect::Postgres, b"", b""));
        let (first, second) = (b"\x01\0\0\x01a\x01\0\0\x02b".as_slice(), b"\x01\0\0\x01b\x01\0\0\x02a".as_slice());
        assert!(same_rows(Dialect::MySql, first, second) && !same_rows(Dialect::Postgres, first, second));
        assert!(!same_rows(Dialect::MySql, first, b"\x01\0\0\x01a\x01\0\0\x02c"));
    }

    #[test]
    fn the_rate_is_met() {
        for (rate, expected) in [(0.0, 0..=0), (1.0, 100_000..=100_000), (0.01, 800..=1200), (0.5, 45_000..=55_000)] {
            let verifier = Verifier::new(rate, Dialect::Postgres);
            let sampled = (0..100_000).filter(|_| verifier.samples()).count();
            assert_eq!(verifier.is_on(), rate > 0.0);
            verifier.set_rate(0.0);
            assert!(!verifier.samples() && !verifier.is_on());
            assert!(expected.contains(&sampled), "{rate}: {sampled}");
        }
    }
}
