//! What a session knows of the server's counters: see [`super::counters`].

/// The session's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Statements that create temporary tables.
    pub(super) created: u64,
    /// Statements that may rename tables.
    pub(super) renamed: u64,
    /// Statements that may lock tables.
    pub(super) locked: u64,
    /// SET statements.
    pub(super) set: u64,
    /// Bytes that the server had sent.
    pub(super) sent: u64,
}

/// What is known of the session's counters.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// As they were last read; 0 at the session's beginning.
    last: Counts,
    /// Bytes that had come from the server by then.
    received: u64,
    /// Statements since then that were counted as creating tables, and are known.
    pub(crate) known: u64,
    /// Those that were counted as locking tables, and are known.
    pub(crate) known_locks: u64,
    /// Those that were counted as SET statements, and are known.
    pub(crate) known_sets: u64,
    /// The session may have had a temporary table since then.
    pub(crate) had_tables: bool,
}

/// What unknown code may have done since the counters were last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MayHave {
    /// It may have created or renamed a temporary table.
    pub(crate) made: bool,
    /// It may have locked tables.
    pub(crate) locked: bool,
    /// It may have set variables.
    pub(crate) set: bool,
}

impl Counted {
    /// A session begins: so many bytes have come from the server.
    pub(crate) fn from(received: u64) -> Self {
        Self { received, ..Self::default() }
    }

    /// The counters were read. `received`: the bytes that had come from the server before it answered.
    pub(crate) fn read(&mut self, counts: Option<Counts>, received: u64) -> MayHave {
        let Some(counts) = counts else { return MayHave { made: true, locked: true, set: true } };
        let was_reset = counts.sent <= received.saturating_sub(self.received);
        let created = counts.created != self.last.created + self.known;
        let renamed = self.had_tables && counts.renamed != self.last.renamed;
        let locked = counts.locked != self.last.locked + self.known_locks;
        let set = counts.set != self.last.set + self.known_sets;
        *self = Self { last: counts, ..Self::from(received) };
        MayHave { made: was_reset || created || renamed, locked: was_reset || locked, set: was_reset || set }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(created: u64, renamed: u64, sent: u64) -> Counts {
        Counts { created, renamed, locked: 3, set: 2, sent }
    }

    #[test]
    fn counters_that_show_nothing() {
        let mut counted = Counted { known_locks: 3, ..Counted::from(100) };
        let mut made = |counts, received, change: fn(&mut Counted)| {
            change(&mut counted);
            counted.read(counts, received).made
        };
        let nothing: fn(&mut Counted) = |_| {};
        assert!(!made(Some(counts(0, 5, 150)), 200, nothing));
        assert!(!made(Some(counts(2, 9, 1150)), 1200, |counted| counted.known = 2));
        assert!(made(Some(counts(3, 9, 2150)), 2200, nothing), "an unknown statement has created one");
        assert!(!made(Some(counts(3, 9, 3150)), 3200, nothing));
        assert!(made(Some(counts(3, 10, 4150)), 4200, |counted| counted.had_tables = true), "it has renamed one");
        assert!(!made(Some(counts(3, 11, 5150)), 5200, nothing));
        assert!(made(Some(counts(3, 11, 1000)), 6200, nothing), "FLUSH STATUS, and as many statements as before");
        assert!(!made(Some(counts(3, 11, 1100)), 6300, nothing));
        assert!(made(None, 7000, nothing));
        assert!(!made(Some(counts(3, 11, 2100)), 7300, nothing));
    }

    #[test]
    fn counters_of_locks_and_settings() {
        let mut counted = Counted { known_locks: 2, known_sets: 2, ..Counted::from(100) };
        let first = counted.read(Some(counts(0, 0, 150)), 200);
        assert!(first.locked && !first.set);
        counted.known_sets = 1;
        let second = counted.read(Some(counts(0, 0, 250)), 300);
        assert!(!second.locked && second.set, "a SET that was not counted stands for one that is not known");
        let flushed = counted.read(Some(counts(0, 0, 50)), 400);
        assert!(flushed.locked && flushed.set, "FLUSH STATUS");
    }
}
