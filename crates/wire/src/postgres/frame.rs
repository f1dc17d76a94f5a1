//! Frame boundaries: a tag byte, then four bytes of length that include themselves but not the tag.
//!
//! Pass-through decodes no more than this, so unknown tags pass, too.

use thiserror::Error;

/// Bytes of a frame's tag and length.
pub const HEADER_BYTES: usize = 5;

/// The largest length field: PostgreSQL refuses more (`PQ_LARGE_MESSAGE_LIMIT`, `MaxAllocSize` in `libpq/pqcomm.c`).
const LENGTH_MAX: u32 = 0x3fff_ffff;

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of message.
    pub tag: u8,
    /// Bytes of the whole frame, tag and length field included.
    pub frame_bytes: usize,
}

/// An impossible length field: the peer has lost frame synchronisation.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("message '{}' has the impossible length {length}", .tag.escape_ascii())]
pub struct BadLength {
    tag: u8,
    length: u32,
}

/// Reads the head of the frame at the start of `bytes`; None if it is incomplete.
pub fn header(bytes: &[u8]) -> Result<Option<Header>, BadLength> {
    let Some([tag, length @ ..]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (tag, length) = (*tag, u32::from_be_bytes(*length));
    if !(4..=LENGTH_MAX).contains(&length) {
        return Err(BadLength { tag, length });
    }
    Ok(Some(Header { tag, frame_bytes: length as usize + 1 }))
}

/// Appends a frame whose body `write` appends.
pub fn put(out: &mut Vec<u8>, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    put_sized(out, write);
}

/// Appends a body behind its length field, without a tag.
pub(crate) fn put_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// Appends a zero-terminated string.
pub(crate) fn put_cstr(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().copied().filter(|byte| *byte != 0));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_when_whole() {
        assert_eq!(header(b"Z\0\0\0"), Ok(None));
        assert_eq!(header(b"Z\0\0\0\x05I"), Ok(Some(Header { tag: b'Z', frame_bytes: 6 })));
        assert_eq!(header(b"S\0\0\0\x04"), Ok(Some(Header { tag: b'S', frame_bytes: 5 })));
        assert!(header(b"S\0\0\0\x03").is_err());
        assert!(header(b"\x16\x03\x01\x02\x00").unwrap().is_some());
        assert!(header(b"S\xff\xff\xff\xff").is_err());
    }
}
