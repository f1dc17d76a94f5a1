//! Positions and snapshots: a snapshot that proves too much is a stale answer, so it is compared with its
//! definition.

#![no_main]

use freshet_fuzz::bounded;
use freshet_types::{Lsn, Snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(lsn) = bounded(256, || Lsn::parse(text)) {
        assert_eq!(Lsn::parse(&lsn.to_string()), Some(lsn));
        let rounded = lsn.without_page_header(16 << 20);
        assert!(rounded <= lsn && lsn.0 - rounded.0 <= 40);
        assert_eq!(rounded.without_page_header(16 << 20), rounded);
    }
    let mut snapshots = text.split('|').map(|part| bounded(part.len() * 16 + 256, || Snapshot::parse(part)));
    let (Some(Some(a)), texts) = (snapshots.next(), text.split('|').collect::<Vec<_>>()) else { return };
    let a_parts = Parts::of(texts[0]);
    a_parts.agrees(&a);
    assert!(a.covers(&a));
    if let Some(Some(b)) = snapshots.next() {
        let b_parts = Parts::of(texts[1]);
        // What the one shows and the other hides, if there is such an id near a bound or in a list.
        let witness = b_parts.interesting().find(|id| b_parts.shows(*id) && !a_parts.shows(*id));
        let more = a_parts.interesting().find(|id| b_parts.shows(*id) && !a_parts.shows(*id));
        assert_eq!(a.covers(&b), witness.or(more).is_none());
    }
});

/// A snapshot as its text says, by its definition in PostgreSQL's manual.
struct Parts {
    xmax: u64,
    in_progress: Vec<u64>,
}

impl Parts {
    fn of(text: &str) -> Self {
        let mut parts = text.split(':').skip(1);
        let xmax = parts.next().and_then(|part| part.parse().ok()).expect("it was parsed");
        let in_progress = parts.next().into_iter().flat_map(|list| list.split(',')).filter_map(|x| x.parse().ok());
        Self { xmax, in_progress: in_progress.collect() }
    }

    fn shows(&self, id: u64) -> bool {
        id < self.xmax && !self.in_progress.contains(&id)
    }

    /// Every id at which the answer may change.
    fn interesting(&self) -> impl Iterator<Item = u64> {
        let ids = self.in_progress.iter().copied().chain([self.xmax, 0]);
        ids.flat_map(|id| [id.saturating_sub(1), id, id.saturating_add(1)])
    }

    fn agrees(&self, parsed: &Snapshot) {
        for id in self.interesting() {
            // The stream carries 32 bits; what is further away than half of them is another transaction.
            if id.abs_diff(self.xmax) < 1 << 31 {
                assert_eq!(parsed.proves(id as u32), self.shows(id), "{id}");
            }
        }
    }
}
