//! DECIMAL values: groups of nine digits in four bytes each; a group of fewer digits takes fewer bytes (`bin2decimal` in `decimal.c`).

use std::fmt::Write;

use crate::reader::{Malformed, Reader};

/// `DECIMAL_MAX_PRECISION`
pub(super) const PRECISION_MAX: u8 = 65;

const DIGITS_PER_GROUP: u8 = 9;
/// Bytes that 0 to 9 digits take.
const BYTES_OF_DIGITS: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Decodes a decimal to text: no leading zeros, and as many digits behind the point as the column has.
pub(super) fn decode(reader: &mut Reader<'_>, precision: u8, scale: u8) -> Result<String, Malformed> {
    let whole = precision.saturating_sub(scale);
    // The incomplete group is the outermost one: the first of the integer part, the last of the fraction.
    let whole_groups = [whole % DIGITS_PER_GROUP].into_iter().chain(full(whole));
    let part_groups = full(scale).chain([scale % DIGITS_PER_GROUP]);
    let bytes: usize = whole_groups.clone().chain(part_groups.clone()).map(bytes_of).sum();
    let raw = reader.bytes(bytes, "decimal")?;
    // All bits of a negative number are inverted; then the first bit of every number is inverted.
    let negative = raw.first().is_some_and(|byte| byte & 0x80 == 0);
    let mask = if negative { 0xff } else { 0 };
    let mut plain: Vec<u8> = raw.iter().map(|byte| byte ^ mask).collect();
    if let Some(first) = plain.first_mut() {
        *first ^= 0x80;
    }
    let mut reader = Reader::new(&plain);
    let whole = digits(&mut reader, whole_groups)?;
    let part = digits(&mut reader, part_groups)?;
    let whole = whole.trim_start_matches('0');
    let zero = whole.is_empty() && part.bytes().all(|digit| digit == b'0');
    let sign = if negative && !zero { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if part.is_empty() { "" } else { "." };
    Ok(format!("{sign}{whole}{point}{part}"))
}

fn full(digits: u8) -> impl Iterator<Item = u8> + Clone {
    std::iter::repeat_n(DIGITS_PER_GROUP, usize::from(digits / DIGITS_PER_GROUP))
}

fn bytes_of(digits: u8) -> usize {
    BYTES_OF_DIGITS.get(usize::from(digits)).copied().unwrap_or_default()
}

fn digits(reader: &mut Reader<'_>, groups: impl Iterator<Item = u8>) -> Result<String, Malformed> {
    let mut out = String::new();
    for group in groups.filter(|group| *group > 0) {
        let raw = reader.bytes(bytes_of(group), "decimal")?;
        let value = raw.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        if value >= 10_u64.pow(u32::from(group)) {
            return Err(Malformed::Invalid("decimal"));
        }
        // Writing to a string does not fail.
        let _ = write!(out, "{value:0width$}", width = usize::from(group));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], precision: u8, scale: u8) -> Result<String, Malformed> {
        let mut reader = Reader::new(bytes);
        let text = decode(&mut reader, precision, scale)?;
        reader.finish()?;
        Ok(text)
    }

    /// The example of `decimal2bin`: 1234567890.1234 as DECIMAL(14, 4).
    #[test]
    fn groups_of_nine_digits() {
        let positive = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let negative = [0x7e, 0xf2, 0x04, 0xc7, 0x2d, 0xfb, 0x2d];
        assert_eq!(decoded(&positive, 14, 4).as_deref(), Ok("1234567890.1234"));
        assert_eq!(decoded(&negative, 14, 4).as_deref(), Ok("-1234567890.1234"));
        assert_eq!(decoded(&positive[..6], 14, 4), Err(Malformed::Truncated("decimal")));
    }

    #[test]
    fn zeros() {
        assert_eq!(decoded(&[0x80], 1, 0).as_deref(), Ok("0"));
        assert_eq!(decoded(&[0x80], 2, 2).as_deref(), Ok("0.00"));
        assert_eq!(decoded(&[0x7f], 2, 2).as_deref(), Ok("0.00"), "no negative zero");
        assert_eq!(decoded(&[0x80, 0x07], 4, 2).as_deref(), Ok("0.07"));
        assert_eq!(decoded(&[0x80, 0xff], 4, 2), Err(Malformed::Invalid("decimal")));
        assert_eq!(decoded(&[], 0, 0).as_deref(), Ok("0"));
    }
}
