//! A cursor over untrusted bytes.
//!
//! Every decoder of this crate reads through it, so that lengths are checked in one place. No read goes past the end,
//! no length field is trusted, and nothing is copied. Leftover bytes are an error ([`Reader::finish`]), since a
//! message that is longer than expected was not understood.

/// Why bytes were not understood. Either the peer is at fault, or this version does not know the form of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message ends before the value it announces.
    #[error("message ends within {0}")]
    Truncated(&'static str),
    /// The message goes on after its last field.
    #[error("{0} bytes left at the end of a message")]
    Trailing(usize),
    /// A tag that is not known in this place.
    #[error("unknown {what} {tag:#04x}")]
    UnknownTag {
        /// What the tag selects.
        what: &'static str,
        /// The byte that was read.
        tag: u8,
    },
    /// A field has an invalid value.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// The unread rest of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// How many bytes are unread.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes. `what` names the field in the error.
    pub const fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(Malformed::Truncated(what)),
        }
    }

    /// The next `N` bytes as an array.
    pub const fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(Malformed::Truncated(what)),
        }
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array(what).map(u8::from_be_bytes)
    }

    /// Two bytes, most significant first, as all integers of PostgreSQL's protocol.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// Two bytes, signed.
    pub fn i16(&mut self, what: &'static str) -> Result<i16, Malformed> {
        self.array(what).map(i16::from_be_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, what: &'static str) -> Result<i32, Malformed> {
        self.array(what).map(i32::from_be_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// The bytes up to the next zero byte. The zero byte is consumed and not returned.
    pub fn cstr(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        if let [0, rest @ ..] = self.rest {
            self.rest = rest; // as names mostly are
            return Ok(&[]);
        }
        let end = memchr::memchr(0, self.rest).ok_or(Malformed::Truncated(what))?;
        let whole = self.bytes(end + 1, what)?;
        Ok(whole.split_last().map_or(whole, |(_, text)| text))
    }

    /// As [`Self::cstr`], in UTF-8.
    pub fn cstr_utf8(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.cstr(what)?).map_err(|_| Malformed::Invalid(what))
    }

    /// A four-byte length and that many bytes; the length must not be negative.
    pub fn sized(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.i32(what)?).map_err(|_| Malformed::Invalid(what))?;
        self.bytes(len, what)
    }

    /// Everything unread.
    pub const fn rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Ends the message. Unread bytes are an error.
    pub const fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing(self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_end() {
        let mut reader = Reader::new(&[1, 0, 2, b'a', 0, 9]);
        assert_eq!(reader.u8("a"), Ok(1));
        assert_eq!(reader.u16("b"), Ok(2));
        assert_eq!(reader.cstr_utf8("c"), Ok("a"));
        assert_eq!(reader.finish(), Err(Malformed::Trailing(1)));
        assert_eq!(reader.u32("d"), Err(Malformed::Truncated("d")));
        assert_eq!(reader.cstr("e"), Err(Malformed::Truncated("e")));
        assert_eq!(reader.remaining(), 1, "a failed read takes nothing");
        assert_eq!(reader.bytes(usize::MAX, "f"), Err(Malformed::Truncated("f")));
        assert_eq!(reader.u8("g"), Ok(9));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn lengths_are_not_trusted() {
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff]).sized("x"), Err(Malformed::Invalid("x")));
        assert_eq!(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 1]).sized("x"), Err(Malformed::Truncated("x")));
        assert_eq!(Reader::new(&[0, 0, 0, 1, 7]).sized("x"), Ok(&[7][..]));
    }
}
