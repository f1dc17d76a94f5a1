//! Decompression of events.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::reader::{Malformed, Reader};

/// An event that would be larger than this is not decompressed.
pub const UNPACKED_BYTES_MAX: usize = 64 << 20;

/// MariaDB's form (`binlog_buf_uncompress` in `sql/log_event.cc`): a byte with the number of length bytes, the length in big-endian order, a zlib
/// stream. None if the result would be too large.
pub(super) fn zlib(bytes: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut reader = Reader::new(bytes);
    let head = reader.u8("compressed data")?;
    // Bit 7 is always set; the algorithm, in the bits behind it, is always zlib.
    if head & 0xf8 != 0x80 {
        return Err(Malformed::UnknownTag { what: "compression", tag: head });
    }
    let length = reader.bytes(usize::from(head & 7), "unpacked length")?;
    let length = length.iter().try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add(usize::from(*byte)));
    let length = length.ok_or(Malformed::Invalid("unpacked length"))?;
    if length > UNPACKED_BYTES_MAX {
        return Ok(None);
    }
    let mut out = Vec::new();
    let limit = length as u64 + 1;
    ZlibDecoder::new(reader.rest()).take(limit).read_to_end(&mut out).map_err(|_| Malformed::Invalid("zlib data"))?;
    if out.len() == length { Ok(Some(out)) } else { Err(Malformed::Invalid("unpacked length")) }
}

/// The body of MySQL's TRANSACTION_PAYLOAD: fields of type, length and value, then the data. None if the result would be too large.
pub(super) fn payload(mut reader: Reader<'_>) -> Result<Option<Cow<'_, [u8]>>, Malformed> {
    const END: u64 = 0;
    const SIZE: u64 = 1;
    const COMPRESSION: u64 = 2;
    const COMPRESSION_ZSTD: u64 = 0;
    const COMPRESSION_NONE: u64 = 255;
    let (mut size, mut compression) = (None, None);
    loop {
        let field = reader.lenenc("payload field")?;
        if field == END {
            break;
        }
        let value = reader.lenenc_bytes("payload field")?;
        match field {
            SIZE => size = Some(Reader::new(value).lenenc("payload size")?),
            COMPRESSION => compression = Some(Reader::new(value).lenenc("payload compression")?),
            // The uncompressed size is informative only.
            _ => {}
        }
    }
    let size = size.and_then(|size| usize::try_from(size).ok()).ok_or(Malformed::Invalid("payload size"))?;
    let data = reader.bytes(size, "payload")?;
    reader.finish()?;
    match compression {
        Some(COMPRESSION_NONE) => Ok(Some(data.into())),
        Some(COMPRESSION_ZSTD) => Ok(zstd(data)?.map(Cow::Owned)),
        _ => Err(Malformed::Invalid("payload compression")),
    }
}

/// Decompresses one or more frames.
fn zstd(mut data: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut out = Vec::new();
    while !data.is_empty() {
        let decoder = StreamingDecoder::new(&mut data).map_err(|_| Malformed::Invalid("zstd data"))?;
        let limit = (UNPACKED_BYTES_MAX + 1).saturating_sub(out.len()) as u64;
        decoder.take(limit).read_to_end(&mut out).map_err(|_| Malformed::Invalid("zstd data"))?;
        if out.len() > UNPACKED_BYTES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(out))
}
