//! How far the change stream is behind the log, and what its slot makes the server keep. For metrics only.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freshet_types::{Dialect, End, Lsn};

/// Not known.
const UNKNOWN: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub struct LogLag {
    end: AtomicU64,
    retained: AtomicU64,
    /// Positions are those of a binlog.
    is_binlog: bool,
}

impl LogLag {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let is_binlog = dialect.is_mysql_family();
        Self { end: AtomicU64::new(UNKNOWN), retained: AtomicU64::new(UNKNOWN), is_binlog }
    }

    /// The end of the log was read.
    pub(crate) fn note_end(&self, end: Lsn) {
        self.end.store(end.0, Relaxed);
    }

    /// The slot makes the server keep so many bytes of its log.
    pub fn note_retained(&self, bytes: u64) {
        self.retained.store(bytes, Relaxed);
    }

    /// There is no stream.
    pub(crate) fn forget(&self) {
        self.end.store(UNKNOWN, Relaxed);
        self.retained.store(UNKNOWN, Relaxed);
    }

    /// Bytes that the slot makes the server keep; None: not known.
    pub fn retained(&self) -> Option<u64> {
        Some(self.retained.load(Relaxed)).filter(|bytes| *bytes != UNKNOWN)
    }

    /// Bytes between the stream's position and the end of the log, as it was last read; None: not known. In a binlog of several files only those
    /// of the last file are known.
    pub fn behind(&self, applied: Option<End>) -> Option<u64> {
        let end = Some(self.end.load(Relaxed)).filter(|end| *end != UNKNOWN)?;
        let applied = applied?.lsn;
        if !self.is_binlog {
            return Some(end.saturating_sub(applied.0));
        }
        let ((file, end), (applied_file, applied)) = (Lsn(end).binlog_parts(), applied.binlog_parts());
        Some(match file.cmp(&applied_file) {
            std::cmp::Ordering::Greater => end,
            std::cmp::Ordering::Equal => end.saturating_sub(applied),
            std::cmp::Ordering::Less => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use freshet_types::Epoch;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "a position as it is given")]
    fn at(lsn: Lsn) -> Option<End> {
        Some(End { epoch: Epoch(1), lsn })
    }

    #[test]
    fn lag_is_known_while_there_is_a_stream() {
        let lag = LogLag::new(Dialect::Postgres);
        assert_eq!((lag.behind(at(Lsn(5))), lag.retained()), (None, None));
        lag.note_end(Lsn(100));
        lag.note_retained(70);
        assert_eq!((lag.behind(at(Lsn(60))), lag.behind(at(Lsn(101))), lag.behind(None)), (Some(40), Some(0), None));
        assert_eq!(lag.retained(), Some(70));
        lag.forget();
        assert_eq!((lag.behind(at(Lsn(60))), lag.retained()), (None, None));
    }

    #[test]
    fn positions_of_a_binlog_have_files() {
        let lag = LogLag::new(Dialect::MySql);
        let position = |file, offset| Lsn::in_binlog(file, offset).unwrap();
        lag.note_end(position(3, 500));
        let behind = |file, offset| lag.behind(at(position(file, offset)));
        assert_eq!((behind(3, 200), behind(2, 900), behind(4, 4)), (Some(300), Some(500), Some(0)));
    }
}
