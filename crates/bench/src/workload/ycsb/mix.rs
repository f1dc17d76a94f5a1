//! The operations and their shares.

use crate::random::Random;

use super::Distribution;

/// One operation, which is one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    /// Reads a row and sets one field of it.
    ReadModifyWrite,
}
use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};

/// YCSB's core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CoreWorkload {
    /// 50% read, 50% update
    A,
    /// 95% read, 5% update
    B,
    /// Read only
    C,
    /// 95% read, 5% insert; the newest rows are read most
    D,
    /// 95% scan of up to 100 rows, 5% insert; SQL servers only
    E,
    /// 50% read, 50% read-modify-write
    F,
}

/// The kind of the transactions that do not read, if the share of reads is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WriteKind {
    /// New rows
    Insert,
    /// One field of a row
    Update,
}

/// A mix of operations.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Mix {
    Core(CoreWorkload),
    /// The percentage of reads, and the kind of the rest.
    Share(u32, WriteKind),
}

impl Mix {
    /// The two operations, and the percentage of the first.
    const fn parts(self) -> (Operation, u32, Operation) {
        match self {
            Self::Core(CoreWorkload::A) => (Read, 50, Update),
            Self::Core(CoreWorkload::B) => (Read, 95, Update),
            Self::Core(CoreWorkload::C) => (Read, 100, Update),
            Self::Core(CoreWorkload::D) => (Read, 95, Insert),
            Self::Core(CoreWorkload::E) => (Scan, 95, Insert),
            Self::Core(CoreWorkload::F) => (Read, 50, ReadModifyWrite),
            Self::Share(read, WriteKind::Insert) => (Read, read, Insert),
            Self::Share(read, WriteKind::Update) => (Read, read, Update),
        }
    }

    pub(super) fn draw(self, random: &mut Random) -> Operation {
        let (first, percent, second) = self.parts();
        if random.below(100) < percent as usize { first } else { second }
    }

    pub(super) const fn is_possible(self) -> bool {
        self.parts().1 <= 100
    }

    pub(super) const fn inserts(self) -> bool {
        let (_, percent, second) = self.parts();
        matches!(second, Insert) && percent < 100
    }

    pub(super) const fn scans(self) -> bool {
        matches!(self.parts().0, Scan)
    }

    /// The default distribution.
    pub(super) const fn distribution(self) -> Distribution {
        match self {
            Self::Core(CoreWorkload::D) => Distribution::Latest(0.99),
            _ => Distribution::Zipfian,
        }
    }

    pub(super) fn settings(self) -> Vec<(String, String)> {
        let texts = match self {
            Self::Core(core) => vec![("workload", name(&core))],
            Self::Share(read, kind) => vec![("read-share", read.to_string()), ("write-kind", name(&kind))],
        };
        texts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The value in the form of the command line.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
