//! The position of a stream in the binlog.

use freshet_types::Lsn;

/// A file and an offset in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The file's name, such as `binlog.000012`.
    pub(super) file: String,
    number: u64,
    /// Where the last event ended.
    pub(super) offset: u64,
}

impl Place {
    /// None if the name does not end in a number.
    pub(super) fn new(file: &[u8], offset: u64) -> Option<Self> {
        let file = std::str::from_utf8(file).ok()?;
        let (_, number) = file.rsplit_once('.')?;
        Some(Self { file: file.to_owned(), number: number.parse().ok()?, offset })
    }

    /// None if the position has no such form.
    pub(super) fn lsn(&self) -> Option<Lsn> {
        Lsn::in_binlog(self.number, self.offset)
    }

    /// An event ended at `end`, the low 32 bits of the offset. False if that is before the last event's end.
    ///
    /// MySQL skips known transactions, so there are gaps. A gap of 2 GiB cannot be distinguished from a step back. It would take a transaction of
    /// this size, behind which the server begins the next file at once.
    #[must_use]
    pub(super) fn reach(&mut self, end: u32) -> bool {
        let beyond = end.wrapping_sub(self.offset as u32);
        let forward = beyond < 1 << 31;
        if forward {
            self.offset += u64::from(beyond);
        }
        forward
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_go_on_beyond_32_bits() {
        let mut place = Place::new(b"mysql-bin.000012", 4).unwrap();
        for (end, offset) in
            [(200, 200), (1 << 31, 1 << 31), (u32::MAX - 5, u64::from(u32::MAX) - 5), (3, (1 << 32) + 3)]
        {
            assert!(place.reach(end));
            assert_eq!(place.lsn(), Lsn::in_binlog(12, offset));
        }
        assert!(place.reach(3) && !place.reach(2));
        assert_eq!(place.offset, (1 << 32) + 3);
        assert_eq!(Place::new(b"binlog", 4), None);
        assert_eq!(Place::new(b"a.b.x", 4), None);
    }
}
