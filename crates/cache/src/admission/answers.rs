//! What the database takes for the answers of a statement, and what they weigh in the store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freshet_types::Nanos;

/// Times and sizes of one statement's answers. Of two updates at once one may be lost.
#[derive(Debug)]
pub(super) struct Answers {
    /// The shortest since the last verdict, and up to then.
    shortest: AtomicU64,
    shortest_before: AtomicU64,
    /// Seven of eight take longer.
    eighth: AtomicU64,
    /// Averages. 0: not known.
    nanos: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            shortest: AtomicU64::new(u64::MAX),
            shortest_before: AtomicU64::default(),
            eighth: AtomicU64::default(),
            nanos: AtomicU64::default(),
            bytes: AtomicU64::default(),
        }
    }
}

impl Answers {
    /// The database's shortest answer lately; 0: not known.
    pub(super) fn shortest(&self) -> u64 {
        match self.shortest.load(Relaxed) {
            u64::MAX => self.shortest_before.load(Relaxed),
            nanos => nanos,
        }
    }

    /// From now on only new answers count as the shortest, once there is one.
    pub(super) fn forget_shortest(&self) {
        let shortest = self.shortest();
        if self.shortest.swap(u64::MAX, Relaxed) < u64::MAX {
            self.shortest_before.store(shortest, Relaxed);
        }
    }

    /// Seven of eight answers take longer.
    pub(super) fn eighth(&self) -> u64 {
        self.eighth.load(Relaxed)
    }

    /// The average time.
    pub(super) fn nanos(&self) -> u64 {
        self.nanos.load(Relaxed)
    }

    /// The average size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// See [`super::Worth::own`].
    pub(super) fn own(&self, took: Nanos, turn: Nanos) -> Nanos {
        took.saturating_sub(turn).max(self.shortest()).min(took)
    }

    /// Returns [`Self::own`].
    pub(super) fn note(&self, took: Nanos, turn: Nanos) -> Nanos {
        if took < self.shortest.load(Relaxed) {
            self.shortest.fetch_min(took, Relaxed);
        }
        let own = self.own(took, turn);
        note_average(&self.nanos, own);
        note_eighth(&self.eighth, own);
        own
    }

    pub(super) fn weigh(&self, bytes: u64) {
        note_average(&self.bytes, bytes);
    }
}

/// Moves a mean by a sixteenth of the difference.
fn note_average(mean: &AtomicU64, value: u64) {
    let before = mean.load(Relaxed);
    let after = if before == 0 { value } else { before - before / 16 + value / 16 };
    mean.store(after.max(1), Relaxed);
}

/// Moves the value that seven of eight are above: up by a little, or down by seven times as much.
fn note_eighth(eighth: &AtomicU64, value: u64) {
    let before = eighth.load(Relaxed);
    let step = before / 256;
    let after = match before {
        0 => value,
        _ if value > before => before + step,
        _ => before - 7 * step,
    };
    eighth.store(after.max(256), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_answers_are_quick() {
        let eighth = AtomicU64::default();
        let mut random = 1;
        for _ in 0..10_000 {
            random = rapidhash::v3::rapidhash_v3(&u64::to_le_bytes(random));
            note_eighth(&eighth, random % 1_000_000);
        }
        let found = eighth.load(Relaxed);
        assert!((80_000..170_000).contains(&found), "{found}");
        (0..1_000).for_each(|_| note_eighth(&eighth, 40_000));
        assert!((38_000..=40_200).contains(&eighth.load(Relaxed)), "{eighth:?}");
    }
}
