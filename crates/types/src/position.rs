//! Positions in an upstream's log, and the engine's time.

use std::collections::BTreeMap;
use std::fmt;

/// Nanoseconds on the process's monotonic clock. Time is a parameter: the engine has no clock.
pub type Nanos = u64;

/// A PostgreSQL transaction id as the change stream carries it: 32 bits, without its epoch.
pub type Xid = u32;

/// The generation of the change stream. Positions of different epochs do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Identifies a committed transaction for visibility proofs. GTIDs are identities, never an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommitId {
    /// PostgreSQL: its top-level transaction id.
    Xid(Xid),
    /// MariaDB: the end of its group in the binlog.
    Position(Lsn),
    /// MySQL: its GTID.
    Gtid {
        /// The UUID of the server that committed it first.
        source: u128,
        /// Its number on that server, from 1.
        number: u64,
    },
}

/// A position in the upstream's log: a byte offset in PostgreSQL's write-ahead log, or file and offset in a binlog
/// (see [`Self::in_binlog`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Parses PostgreSQL's `XXXXXXXX/XXXXXXXX` text form.
    pub fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let high = u32::from_str_radix(high, 16).ok()?;
        let low = u32::from_str_radix(low, 16).ok()?;
        Some(Self(u64::from(high) << 32 | u64::from(low)))
    }

    const BINLOG_OFFSET_BITS: u32 = 40;

    /// The position in the binlog file of this number (`binlog.000012`: 12). None beyond 1 TiB in a file, or beyond
    /// file 16,777,215.
    pub fn in_binlog(file_number: u64, offset: u64) -> Option<Self> {
        let fits = file_number >> (64 - Self::BINLOG_OFFSET_BITS) == 0 && offset >> Self::BINLOG_OFFSET_BITS == 0;
        fits.then_some(Self(file_number << Self::BINLOG_OFFSET_BITS | offset))
    }

    /// File number and offset of a position in the binlog.
    pub fn binlog_parts(self) -> (u64, u64) {
        (self.0 >> Self::BINLOG_OFFSET_BITS, self.0 & ((1 << Self::BINLOG_OFFSET_BITS) - 1))
    }

    /// The largest position the stream can reach that is not past `self`.
    ///
    /// An insert position right behind a page header covers no record of that page yet. (A header has 24 bytes, 40 at
    /// the start of a segment; see `SizeOfXLogShortPHD` and `SizeOfXLogLongPHD` in PostgreSQL's `xlog_internal.h`.)
    /// The stream stops at the page boundary, so a wait for the offset would last until the next write.
    #[must_use]
    pub fn without_page_header(self, segment_bytes: u64) -> Self {
        const PAGE_BYTES: u64 = 8192;
        let in_page = self.0 % PAGE_BYTES;
        let start = self.0 - in_page;
        let header = if segment_bytes > 0 && start.is_multiple_of(segment_bytes) { 40 } else { 24 };
        if in_page <= header { Self(start) } else { self }
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// An upper bound on everything visible when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The stream generation the position belongs to.
    pub epoch: Epoch,
    /// The insert position, without a bare page header.
    pub lsn: Lsn,
}

/// A lower bound on what any later query sees. Visibility only grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// `pg_current_snapshot()` of a PostgreSQL primary.
    Snapshot(Snapshot),
    /// Every commit that ends at this position of MariaDB's binlog or before: `binlog_snapshot_file` and
    /// `binlog_snapshot_position`.
    UpTo(Lsn),
    /// MySQL's `@@GLOBAL.gtid_executed`.
    Gtids(GtidSet),
}

impl Visible {
    /// Parses the text form of PostgreSQL's `pg_snapshot`.
    pub fn of_snapshot(text: &str) -> Option<Self> {
        Snapshot::parse(text).map(Self::Snapshot)
    }

    /// Whether this committed transaction is visible to every later query. A proof of another kind proves nothing.
    pub fn proves(&self, commit: CommitId) -> bool {
        match (self, commit) {
            (Self::Snapshot(snapshot), CommitId::Xid(xid)) => snapshot.proves(xid),
            (Self::UpTo(position), CommitId::Position(end)) => end <= *position,
            (Self::Gtids(executed), CommitId::Gtid { source, number }) => executed.contains(source, number),
            _ => false,
        }
    }
}

/// PostgreSQL's snapshot: full 64-bit transaction ids. A commit X is visible if X < xmax and X is not in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    xmax: u64,
    /// Sorted ids of the top-level transactions in progress.
    in_progress: Vec<u64>,
}

impl Snapshot {
    /// A snapshot from its parts: the first unassigned id and the ids in progress.
    pub fn new(xmax: u64, mut in_progress: Vec<u64>) -> Self {
        in_progress.sort_unstable();
        Self { xmax, in_progress }
    }

    /// Parses the text form of `pg_snapshot`: `xmin:xmax:xip,xip,…`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let _xmin: u64 = parts.next()?.parse().ok()?;
        let xmax = parts.next()?.parse().ok()?;
        let list = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let in_progress = if list.is_empty() {
            Vec::new()
        } else {
            list.split(',').map(|x| x.parse().ok()).collect::<Option<_>>()?
        };
        Some(Self::new(xmax, in_progress))
    }

    /// Whether the committed transaction `xid` is visible to every later query.
    ///
    /// The stream carries 32-bit ids. The full id is the one within 2^31 of `xmax`.
    pub fn proves(&self, xid: Xid) -> bool {
        let distance = xid.wrapping_sub(self.xmax as u32).cast_signed();
        let Some(full) = self.xmax.checked_add_signed(i64::from(distance)) else { return false };
        full < self.xmax && self.in_progress.binary_search(&full).is_err()
    }

    /// All transactions with lower ids have ended, and are visible if they have committed.
    pub fn all_ended_below(&self) -> u64 {
        self.in_progress.first().copied().unwrap_or(self.xmax)
    }

    /// Whether this snapshot shows everything that `older` shows.
    pub fn covers(&self, older: &Self) -> bool {
        let hidden_here = |x: &u64| *x < older.xmax && older.in_progress.binary_search(x).is_err();
        !self.in_progress.iter().any(hidden_here) && (self.xmax..older.xmax).all(|x| !hidden_here(&x))
    }
}

/// A set of MySQL's GTIDs: ranges of numbers for each source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet {
    /// The first and last number of each range, sorted, with a gap between ranges.
    ranges: BTreeMap<u128, Vec<(u64, u64)>>,
}

impl GtidSet {
    /// Parses `uuid:1-5:7,uuid:1` with line breaks, as `@@gtid_executed` prints it. None for anything else, such as
    /// the tags of MySQL 8.3.
    pub fn parse(text: &str) -> Option<Self> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (source, ranges) = part.split_once(':')?;
            let source = parse_uuid(source.trim())?;
            for range in ranges.split(':') {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
                if first == 0 || last < first {
                    return None;
                }
                set.add_range(source, first, last);
            }
        }
        Some(set)
    }

    /// Adds a GTID.
    pub fn add(&mut self, source: u128, number: u64) {
        self.add_range(source, number, number);
    }

    fn add_range(&mut self, source: u128, first: u64, last: u64) {
        let ranges = self.ranges.entry(source).or_default();
        // Earlier ranges end more than one below it; later ranges begin more than one above.
        let start = ranges.partition_point(|(_, end)| end.saturating_add(1) < first);
        let end = ranges.partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        let joined = ranges.get(start..end).unwrap_or_default();
        let first = joined.first().map_or(first, |range| range.0.min(first));
        let last = joined.last().map_or(last, |range| range.1.max(last));
        ranges.splice(start..end.max(start), [(first, last)]);
    }

    /// Whether it is in the set.
    pub fn contains(&self, source: u128, number: u64) -> bool {
        self.holds(source, number, number)
    }

    fn holds(&self, source: u128, first: u64, last: u64) -> bool {
        let Some(ranges) = self.ranges.get(&source) else { return false };
        let at = ranges.partition_point(|(_, end)| *end < first);
        ranges.get(at).is_some_and(|range| range.0 <= first && last <= range.1)
    }

    /// Whether the other set contains this one.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.iter().all(|(source, first, last)| other.holds(source, first, last))
    }

    /// All ranges: source, first and last number.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u64, u64)> {
        self.ranges.iter().flat_map(|(source, ranges)| ranges.iter().map(|(first, last)| (*source, *first, *last)))
    }
}

/// Prints the set like `@@gtid_executed`, in one line.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (source, ranges)) in self.ranges.iter().enumerate() {
            let hex = format!("{source:032x}");
            let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default());
            f.write_str(if at > 0 { "," } else { "" })?;
            f.write_str(&parts.join("-"))?;
            for (first, last) in ranges {
                if first == last { write!(f, ":{first}")? } else { write!(f, ":{first}-{last}")? }
            }
        }
        Ok(())
    }
}

fn parse_uuid(text: &str) -> Option<u128> {
    let digits: String = text.split('-').collect();
    let valid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| u128::from_str_radix(&digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_text_round_trips() {
        let lsn = Lsn::parse("16/B374D848").unwrap();
        assert_eq!(lsn, Lsn(0x16_B374_D848));
        assert_eq!(lsn.to_string(), "16/B374D848");
        assert_eq!(Lsn::parse("16B374D848"), None);
    }

    #[test]
    fn page_headers_are_rounded_down() {
        let segment = 16 << 20;
        assert_eq!(Lsn(8192 + 24).without_page_header(segment), Lsn(8192));
        assert_eq!(Lsn(8192 + 25).without_page_header(segment), Lsn(8192 + 25));
        assert_eq!(Lsn(segment + 40).without_page_header(segment), Lsn(segment));
        assert_eq!(Lsn(8192 + 40).without_page_header(segment), Lsn(8192 + 40));
    }

    #[test]
    fn snapshots_prove_what_is_committed_and_not_in_progress() {
        let seen = Snapshot::parse("10:20:12,15").unwrap();
        assert!(seen.proves(9) && seen.proves(13) && seen.proves(19));
        assert!(!seen.proves(12) && !seen.proves(15) && !seen.proves(20) && !seen.proves(21));
        assert_eq!(Snapshot::parse("10:20"), None);
        assert_eq!(Snapshot::parse("10:20:a"), None);
    }

    #[test]
    fn transaction_ids_compare_across_the_wrap() {
        let wrap = 1_u64 << 32;
        let seen = Snapshot::new(wrap + 5, vec![wrap + 1]);
        assert!(seen.proves(u32::MAX), "one before the wrap");
        assert!(seen.proves(0) && !seen.proves(1) && seen.proves(4) && !seen.proves(5));
        assert!(!Snapshot::new(3, vec![]).proves(u32::MAX), "no id before the first");
    }

    #[test]
    fn covering_means_showing_at_least_as_much() {
        let older = Snapshot::new(20, vec![12, 15]);
        assert!(Snapshot::new(20, vec![12, 15]).covers(&older));
        assert!(Snapshot::new(25, vec![12, 22]).covers(&older));
        assert!(!Snapshot::new(25, vec![13]).covers(&older), "13 was shown before");
        assert!(!Snapshot::new(18, vec![12, 15]).covers(&older), "18 and 19 were shown before");
        assert!(Snapshot::new(18, vec![]).covers(&Snapshot::new(20, vec![18, 19])));
    }

    #[test]
    fn binlog_positions_have_an_order() {
        let at = |file, offset| Lsn::in_binlog(file, offset).unwrap();
        assert!(at(1, 4) < at(1, 5) && at(1, u64::from(u32::MAX) + 1) < at(2, 4));
        assert_eq!(at(12, 345).binlog_parts(), (12, 345));
        assert_eq!((Lsn::in_binlog(1 << 24, 0), Lsn::in_binlog(0, 1 << 40)), (None, None));
    }

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "00000000-0000-0000-0000-000000000001";

    #[test]
    fn gtid_sets_are_read_and_written() {
        let set = GtidSet::parse(&format!("{A}:1-5:7,\n{B}:3")).unwrap();
        assert_eq!(set.to_string(), format!("{B}:3,{A}:1-5:7"));
        assert_eq!(GtidSet::parse(&set.to_string()), Some(set.clone()));
        assert!(set.contains(1, 3) && !set.contains(1, 4) && !set.contains(2, 3));
        assert_eq!(GtidSet::parse("").map(|set| set.to_string()).as_deref(), Some(""));
        for wrong in ["x", "x:1", &format!("{A}:0"), &format!("{A}:5-1"), &format!("{A}:tag:1"), A] {
            assert_eq!(GtidSet::parse(wrong), None, "{wrong}");
        }
        let proof = Visible::Gtids(set);
        assert!(proof.proves(CommitId::Gtid { source: 1, number: 3 }) && !proof.proves(CommitId::Xid(3)));
    }

    #[test]
    fn gtid_sets_grow_in_any_order() {
        let mut numbers: Vec<u64> = (1..=40).collect();
        let mut seed = 1_u64;
        for _ in 0..200 {
            for at in (1..numbers.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                numbers.swap(at, (seed >> 33) as usize % (at + 1));
            }
            let (mut set, mut before) = (GtidSet::default(), GtidSet::default());
            for (at, number) in numbers.iter().enumerate() {
                set.add(7, *number);
                assert!(before.is_subset_of(&set) && !set.is_subset_of(&before));
                assert!((1..=40).all(|n| set.contains(7, n) == numbers[..=at].contains(&n)));
                before = set.clone();
            }
            assert_eq!(set.iter().collect::<Vec<_>>(), [(7, 1, 40)]);
        }
    }
}
