//! Positions in an upstream's history, and time as the engine sees it.

use std::fmt;

/// Nanoseconds on the process's monotonic clock. The engine has no clock of its own: time is a parameter.
pub type Nanos = u64;

/// A PostgreSQL transaction id as the change stream carries it: 32 bits, without its epoch.
pub type Xid = u32;

/// Generation of the change stream. Positions of different epochs do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Byte offset in PostgreSQL's write-ahead log.
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

    /// The largest position the stream can reach that is not past `self`.
    ///
    /// An insert position that stands right behind a page header (24 bytes, 40 at the start of a segment;
    /// `SizeOfXLogShortPHD` and `SizeOfXLogLongPHD` in PostgreSQL's `xlog_internal.h`) covers no record of
    /// that page yet: the stream stops at the boundary, so waiting for the offset would wait for the next write.
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

/// A lower bound on what any later query sees: `pg_current_snapshot()` of a primary.
///
/// Full 64-bit transaction ids. A commit X is proven visible if X < xmax and X is not in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    xmax: u64,
    /// Sorted ids of the top-level transactions in progress.
    in_progress: Vec<u64>,
}

impl Visible {
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
    /// The stream carries 32-bit ids; the id meant is the one within 2^31 of `xmax`.
    pub fn proves(&self, xid: Xid) -> bool {
        let distance = xid.wrapping_sub(self.xmax as u32).cast_signed();
        let Some(full) = self.xmax.checked_add_signed(i64::from(distance)) else { return false };
        full < self.xmax && self.in_progress.binary_search(&full).is_err()
    }

    /// Whether everything that `older` shows is shown here too.
    pub fn covers(&self, older: &Self) -> bool {
        let hidden_here = |x: &u64| *x < older.xmax && older.in_progress.binary_search(x).is_err();
        !self.in_progress.iter().any(hidden_here) && (self.xmax..older.xmax).all(|x| !hidden_here(&x))
    }
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
        let seen = Visible::parse("10:20:12,15").unwrap();
        assert!(seen.proves(9) && seen.proves(13) && seen.proves(19));
        assert!(!seen.proves(12) && !seen.proves(15) && !seen.proves(20) && !seen.proves(21));
        assert_eq!(Visible::parse("10:20"), None);
        assert_eq!(Visible::parse("10:20:a"), None);
    }

    #[test]
    fn transaction_ids_compare_across_the_wrap() {
        let wrap = 1_u64 << 32;
        let seen = Visible::new(wrap + 5, vec![wrap + 1]);
        assert!(seen.proves(u32::MAX), "one before the wrap");
        assert!(seen.proves(0) && !seen.proves(1) && seen.proves(4) && !seen.proves(5));
        assert!(!Visible::new(3, vec![]).proves(u32::MAX), "no id before the first");
    }

    #[test]
    fn covering_means_showing_at_least_as_much() {
        let older = Visible::new(20, vec![12, 15]);
        assert!(Visible::new(20, vec![12, 15]).covers(&older));
        assert!(Visible::new(25, vec![12, 22]).covers(&older));
        assert!(!Visible::new(25, vec![13]).covers(&older), "13 was shown before");
        assert!(!Visible::new(18, vec![12, 15]).covers(&older), "18 and 19 were shown before");
        assert!(Visible::new(18, vec![]).covers(&Visible::new(20, vec![18, 19])));
    }
}
