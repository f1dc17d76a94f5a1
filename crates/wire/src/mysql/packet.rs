//! Packet boundaries: three bytes of length, one byte of sequence number, then the payload.
//!
//! A payload of 16 MiB - 1 or more is split. Another packet, possibly empty, follows each packet of the greatest
//! length. Pass-through decodes no more than this.

use std::borrow::Cow;

/// Bytes of a packet's length and sequence number.
pub const HEADER_BYTES: usize = 4;
/// The most that one packet carries. A packet of this size is not the last of its payload.
pub const PACKET_PAYLOAD_MAX: usize = 0xff_ffff;

/// A packet's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the packet behind its head.
    pub payload_bytes: usize,
    /// Counts the packets of both directions from 0 at the start of each command.
    pub sequence: u8,
}

impl Header {
    /// Reads the head of the packet at the start of `bytes`; None if it is incomplete. Every head is valid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, sequence, ..] = *bytes else { return None };
        Some(Self { payload_bytes: u32::from_le_bytes([a, b, c, 0]) as usize, sequence })
    }

    /// Bytes of the packet, head included.
    pub fn packet_bytes(self) -> usize {
        HEADER_BYTES + self.payload_bytes
    }

    /// Whether the next packet continues the payload.
    pub fn continues(self) -> bool {
        self.payload_bytes == PACKET_PAYLOAD_MAX
    }
}

/// A whole payload at the start of some bytes, with all its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Bytes of all its packets, heads included.
    pub bytes: usize,
    /// Bytes of the payload.
    pub payload_bytes: usize,
    /// Sequence number of its last packet.
    pub sequence: u8,
}

impl Whole {
    /// Checks whether all packets of a payload are present; None if not.
    pub fn find(bytes: &[u8]) -> Option<Self> {
        let (mut end, mut payload_bytes) = (0_usize, 0);
        loop {
            let header = Header::read(bytes.get(end..)?)?;
            end += header.packet_bytes();
            payload_bytes += header.payload_bytes;
            if end > bytes.len() {
                return None;
            }
            if !header.continues() {
                return Some(Self { bytes: end, payload_bytes, sequence: header.sequence });
            }
        }
    }

    /// The payload, from the bytes in which it was found. Several packets are joined.
    pub fn payload(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        let bytes = bytes.get(..self.bytes).unwrap_or(bytes);
        if self.payload_bytes < PACKET_PAYLOAD_MAX {
            return Cow::Borrowed(bytes.get(HEADER_BYTES..).unwrap_or_default());
        }
        let mut payload = Vec::with_capacity(bytes.len());
        for packet in bytes.chunks(HEADER_BYTES + PACKET_PAYLOAD_MAX) {
            payload.extend_from_slice(packet.get(HEADER_BYTES..).unwrap_or_default());
        }
        Cow::Owned(payload)
    }
}

/// Appends a payload in as many packets as needed, and sets the sequence number of the next one.
pub fn put(out: &mut Vec<u8>, sequence: &mut u8, payload: &[u8]) {
    let mut rest = payload;
    loop {
        let (head, tail) = rest.split_at_checked(PACKET_PAYLOAD_MAX).unwrap_or((rest, &[]));
        let [a, b, c, ..] = (head.len() as u32).to_le_bytes();
        out.extend_from_slice(&[a, b, c, *sequence]);
        out.extend_from_slice(head);
        *sequence = sequence.wrapping_add(1);
        if head.len() < PACKET_PAYLOAD_MAX {
            return;
        }
        rest = tail;
    }
}

/// Like [`put`], for a payload that `write` appends.
pub fn put_with(out: &mut Vec<u8>, sequence: &mut u8, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let length = out.len() - at - HEADER_BYTES;
    if length >= PACKET_PAYLOAD_MAX {
        let payload = out.split_off(at + HEADER_BYTES);
        out.truncate(at);
        return put(out, sequence, &payload);
    }
    let [a, b, c, ..] = (length as u32).to_le_bytes();
    if let Some(head) = out.get_mut(at..at + HEADER_BYTES) {
        head.copy_from_slice(&[a, b, c, *sequence]);
    }
    *sequence = sequence.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_when_whole() {
        assert_eq!(Header::read(b"\x01\0\0"), None);
        let header = Header::read(b"\x01\0\0\x03\x0e").unwrap();
        assert_eq!((header.payload_bytes, header.sequence, header.packet_bytes()), (1, 3, 5));
        assert!(!header.continues() && Header::read(b"\xff\xff\xff\0").unwrap().continues());
    }

    #[test]
    fn small_payloads_are_lent() {
        let mut out = Vec::new();
        let mut sequence = 255;
        put(&mut out, &mut sequence, b"\x0e");
        put_with(&mut out, &mut sequence, |out| out.extend_from_slice(b"hi"));
        assert_eq!((&out[..], sequence), (&b"\x01\0\0\xff\x0e\x02\0\0\0hi"[..], 1));
        for end in 0..5 {
            assert_eq!(Whole::find(&out[..end]), None, "{end}");
        }
        let first = Whole::find(&out).unwrap();
        assert_eq!(first, Whole { bytes: 5, payload_bytes: 1, sequence: 255 });
        assert!(matches!(first.payload(&out), Cow::Borrowed(b"\x0e")));
        assert_eq!(Whole::find(b"\0\0\0\x02"), Some(Whole { bytes: 4, payload_bytes: 0, sequence: 2 }));
    }

    #[test]
    fn great_payloads_are_split_and_joined() {
        for length in [PACKET_PAYLOAD_MAX - 1, PACKET_PAYLOAD_MAX, PACKET_PAYLOAD_MAX + 1, 2 * PACKET_PAYLOAD_MAX] {
            let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let (mut out, mut sequence) = (Vec::new(), 0);
            put(&mut out, &mut sequence, &payload);
            let packets = length / PACKET_PAYLOAD_MAX + 1;
            assert_eq!((out.len(), usize::from(sequence)), (length + packets * HEADER_BYTES, packets));
            let whole = Whole::find(&out).unwrap();
            assert_eq!((whole.bytes, whole.payload_bytes), (out.len(), length));
            assert_eq!(Whole::find(&out[..out.len() - 1]), None);
            assert!(whole.payload(&out) == payload);
            let (mut again, mut sequence) = (Vec::new(), 0);
            put_with(&mut again, &mut sequence, |out| out.extend_from_slice(&payload));
            assert!(again == out && usize::from(sequence) == packets);
        }
    }
}
