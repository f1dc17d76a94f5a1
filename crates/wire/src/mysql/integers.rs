//! Integers and strings in this protocol's encoding: little-endian, or length-encoded (`lenenc`): the length is
//! itself an integer of varying length.

use crate::reader::{Malformed, Reader};

/// NULL in rows, in place of a length-encoded integer.
pub const NULL: u8 = 0xfb;

impl<'a> Reader<'a> {
    /// Two bytes, least significant first.
    pub fn le_u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Three bytes, least significant first.
    pub fn le_u24(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    /// Four bytes, least significant first.
    pub fn le_u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Six bytes, least significant first.
    pub fn le_u48(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(|[a, b, c, d, e, f]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// Eight bytes, least significant first.
    pub fn le_u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length-encoded integer. NULL (0xfb) and 0xff are not integers.
    pub fn lenenc(&mut self, what: &'static str) -> Result<u64, Malformed> {
        match self.u8(what)? {
            small @ 0..=0xfa => Ok(u64::from(small)),
            0xfc => self.le_u16(what).map(u64::from),
            0xfd => self.le_u24(what).map(u64::from),
            0xfe => self.le_u64(what),
            _ => Err(Malformed::Invalid(what)),
        }
    }

    /// A string behind its length.
    pub fn lenenc_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.lenenc(what)?).map_err(|_| Malformed::Truncated(what))?;
        self.bytes(length, what)
    }

    /// The value of a column in a text row: a string behind its length, or NULL.
    pub fn lenenc_value(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        let mut ahead = *self;
        if ahead.u8(what)? == NULL {
            *self = ahead;
            return Ok(None);
        }
        self.lenenc_bytes(what).map(Some)
    }
}

/// Appends a length-encoded integer.
pub fn put_lenenc(out: &mut Vec<u8>, value: u64) {
    let [a, b, c, ..] = value.to_le_bytes();
    match value {
        0..=0xfa => out.push(a),
        0xfb..=0xffff => out.extend_from_slice(&[0xfc, a, b]),
        0x1_0000..=0xff_ffff => out.extend_from_slice(&[0xfd, a, b, c]),
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Appends a string behind its length.
pub fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a zero-terminated string; zeros within it are omitted.
pub fn put_cstr(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().copied().filter(|byte| *byte != 0));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        for value in [0, 1, 0xfa, 0xfb, 0xff, 0x100, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u64::MAX] {
            let mut out = Vec::new();
            put_lenenc(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.lenenc("x"), Ok(value));
            reader.finish().unwrap();
            for end in 0..out.len() {
                assert!(Reader::new(&out[..end]).lenenc("x").is_err(), "{value} cut at {end}");
            }
        }
        assert_eq!(Reader::new(&[0xfc, 1, 2]).lenenc("x"), Ok(0x201));
        assert_eq!(Reader::new(&[0xfd, 1, 2, 3]).lenenc("x"), Ok(0x3_0201));
        assert_eq!(Reader::new(&[1, 2, 3, 4, 5, 6]).le_u48("x"), Ok(0x0605_0403_0201));
        assert!(Reader::new(&[0xfb]).lenenc("x").is_err() && Reader::new(&[0xff]).lenenc("x").is_err());
    }

    #[test]
    fn strings_do_not_go_past_the_end() {
        assert_eq!(Reader::new(b"\x02hi!").lenenc_bytes("x"), Ok(&b"hi"[..]));
        assert_eq!(Reader::new(b"\x03hi").lenenc_bytes("x"), Err(Malformed::Truncated("x")));
        assert!(Reader::new(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xffhi").lenenc_bytes("x").is_err());
        let mut row = Reader::new(b"\xfb\x00\x01a");
        assert_eq!(row.lenenc_value("x"), Ok(None));
        assert_eq!(row.lenenc_value("x"), Ok(Some(&b""[..])));
        assert_eq!(row.lenenc_value("x"), Ok(Some(&b"a"[..])));
        assert!(row.lenenc_value("x").is_err());
    }
}
