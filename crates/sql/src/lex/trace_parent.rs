//! The trace that a statement belongs to, as its comments say.
//!
//! sqlcommenter writes `traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'` into a comment, percent-encoded (W3C Trace Context,
//! "traceparent header"): version, trace, span of the application, flags.

use memchr::memmem;

/// What names the value.
const NAME: &[u8] = b"traceparent='";
/// Longest value that is read. Version 00 has 55 bytes; later versions may have more.
const BYTES_MAX: usize = 128;
/// The flag that the application records this trace.
const SAMPLED: u8 = 1;

/// The trace of a statement, and the span in it that caused the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// The application records it.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads it from the comments around a text; `bare` is the text without them. The last one counts.
    pub fn of(text: &[u8], bare: &[u8]) -> Option<Self> {
        let start = bare.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        let (before, behind) = (text.get(..start)?, text.get(start + bare.len()..)?);
        in_comments(behind).or_else(|| in_comments(before))
    }
}

fn in_comments(comments: &[u8]) -> Option<TraceParent> {
    let at = memmem::rfind(comments, NAME)?;
    let is_whole_name = !comments.get(..at)?.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let value = comments.get(at + NAME.len()..)?.split(|byte| *byte == b'\'').next()?;
    parse(&decoded(value)?).filter(|_| is_whole_name)
}

/// Without its percent-encoding; None: it is too long, or encoded wrongly.
fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    if value.len() > BYTES_MAX {
        return None;
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            plain.push(*first);
            continue;
        }
        let [code] = bytes::<1>(behind.get(..2)?, u8::is_ascii_hexdigit)?;
        plain.push(code);
        rest = behind.get(2..)?;
    }
    Some(plain)
}

fn parse(value: &[u8]) -> Option<TraceParent> {
    let mut parts = value.split(|byte| *byte == b'-');
    let is_lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let [version] = bytes::<1>(parts.next()?, is_lower)?;
    let (trace, span) = (bytes::<16>(parts.next()?, is_lower)?, bytes::<8>(parts.next()?, is_lower)?);
    let [flags] = bytes::<1>(parts.next()?, is_lower)?;
    let is_known = version != 0xff && (version > 0 || parts.next().is_none());
    let is_valid = is_known && trace != [0; 16] && span != [0; 8];
    is_valid.then_some(TraceParent { trace, span, is_sampled: flags & SAMPLED != 0 })
}

/// Reads exactly so many bytes in hexadecimal.
fn bytes<const N: usize>(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.iter().all(is_digit) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let mut read = [0; N];
    for (at, byte) in read.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::without_outer_comments;

    const TRACE: &str = "00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01";

    fn of(text: &str) -> Option<TraceParent> {
        TraceParent::of(text.as_bytes(), without_outer_comments(text.as_bytes()))
    }

    #[test]
    fn it_is_read_from_comments() {
        let expected = TraceParent {
            trace: 0x5bd6_6ef5_0953_69c7_b0d1_f8f4_bd33_716a_u128.to_be_bytes(),
            span: 0xc532_cb40_98ac_3dd2_u64.to_be_bytes(),
            is_sampled: true,
        };
        for text in [
            format!("select 1 /*action='a',traceparent='{TRACE}',tracestate='x%3D1'*/"),
            format!("select 1 /* traceparent='{TRACE}' */;"),
            format!("select 1 /*traceparent='{}'*/", TRACE.replace('-', "%2D")),
            format!("/*traceparent='{TRACE}'*/ select 1"),
            format!("/*traceparent='{}'*/ select 1 /*traceparent='{TRACE}'*/", TRACE.replace('5', "6")),
            format!("select 1 /*traceparent='01{}-more'*/", &TRACE[2..]),
        ] {
            assert_eq!(of(&text), Some(expected), "{text}");
        }
        let unsampled = format!("select 1 /*traceparent='{}0'*/", &TRACE[..TRACE.len() - 1]);
        assert_eq!(of(&unsampled), Some(TraceParent { is_sampled: false, ..expected }));
    }

    #[test]
    fn what_is_none_is_left_alone() {
        let zeros = "0".repeat(32);
        for value in [
            "",
            "00",
            "%",
            "%2",
            "%zz",
            &TRACE[1..],
            &format!("{TRACE}-more"),
            &TRACE.to_uppercase(),
            &format!("ff{}", &TRACE[2..]),
            &format!("00-{zeros}-c532cb4098ac3dd2-01"),
            &format!("00-5bd66ef5095369c7b0d1f8f4bd33716a-{}-01", &zeros[..16]),
            &"a".repeat(1000),
        ] {
            assert_eq!(of(&format!("select 1 /*traceparent='{value}'*/")), None, "{value}");
        }
        for text in [
            "select 1".to_owned(),
            format!("select 1 /*traceparent={TRACE}*/"),
            format!("select 1 /*my_traceparent='{TRACE}'*/"),
            format!("select 1 /*traceparent='{TRACE}"),
            format!("select '/*traceparent=''{TRACE}''*/'"),
        ] {
            assert_eq!(of(&text), None, "{text}");
        }
    }
}
