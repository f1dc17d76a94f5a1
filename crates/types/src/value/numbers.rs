//! Values of MySQL and MariaDB that are numbers of some bytes: BIT, UUID, INET4 and INET6.
//!
//! The binlog carries their bytes, UUID and addresses without the zeros at their end; answers and constants spell UUIDs and addresses as
//! texts. Both come here, so each value must be one of them for sure.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{Value, ValueType, decimal, uuid};

/// The bytes of the stream, or the text of an answer.
pub(super) fn of_mysql(value_type: ValueType, text: &[u8]) -> Option<Value> {
    match value_type {
        ValueType::Bit if text.len() <= 8 => {
            let number = text.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
            decimal(&number.to_string())
        }
        ValueType::MariadbUuid => match padded(text) {
            Some(bytes) => of_uuid(bytes),
            None => match uuid(text)? {
                Value::Uuid(bits) => of_uuid(bits.to_be_bytes()),
                _ => None,
            },
        },
        ValueType::Inet4 => {
            let shown = || Some(Ipv4Addr::from_str(std::str::from_utf8(text).ok()?).ok()?.octets());
            let bytes = padded(text).or_else(shown)?;
            Some(Value::Int(u32::from_be_bytes(bytes).into()))
        }
        ValueType::Inet6 if is_like_text(text) => {
            let address: Ipv6Addr = std::str::from_utf8(text).ok()?.parse().ok()?;
            of_inet6(address.octets())
        }
        ValueType::Inet6 => of_inet6(padded(text)?),
        _ => None,
    }
}

/// All of a value's bytes.
pub(super) fn of_bytes(value_type: ValueType, bytes: &[u8]) -> Option<Value> {
    match value_type {
        ValueType::MariadbUuid => of_uuid(bytes.try_into().ok()?),
        ValueType::Inet4 => Some(Value::Int(u32::from_be_bytes(bytes.try_into().ok()?).into())),
        ValueType::Inet6 => of_inet6(bytes.try_into().ok()?),
        _ => None,
    }
}

/// The order of the bytes in the binlog depends on the server's version and on the version of the UUID: so the form is the same in any
/// order.
#[expect(clippy::unnecessary_wraps, reason = "as its kin")]
fn of_uuid(mut bytes: [u8; 16]) -> Option<Value> {
    bytes.sort_unstable();
    Some(Value::Uuid(u128::from_be_bytes(bytes)))
}

/// None of those whose bytes in the binlog may be the text of another one.
fn of_inet6(bytes: [u8; 16]) -> Option<Value> {
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let stored = bytes.get(..bytes.len() - zeros)?;
    (!is_like_text(stored)).then(|| Value::Uuid(u128::from_be_bytes(bytes)))
}

fn is_like_text(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte))
}

/// With the zeros that the binlog leaves out at the end.
fn padded<const N: usize>(stored: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes.get_mut(..stored.len())?.copy_from_slice(stored);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_binlog_and_answers_show_has_one_form() {
        let form = |value_type: ValueType, text: &[u8]| value_type.normalise_text(text);
        let one = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a00";
        let stored = b"\x6b\xb9\xbd\x38\x0a\x00\xbb\x6d\x4e\xf8\x9c\x0b\xa0\xee\xbc\x99";
        let plain = b"\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\x0a";
        for spelling in [one.as_bytes(), one.to_uppercase().as_bytes(), stored, plain] {
            assert_eq!(form(ValueType::MariadbUuid, spelling), form(ValueType::MariadbUuid, one.as_bytes()));
        }
        assert!(form(ValueType::MariadbUuid, one.as_bytes()).is_some());
        assert_eq!(form(ValueType::MariadbUuid, b""), ValueType::MariadbUuid.normalise_binary(&[0; 16]));
        assert_eq!(form(ValueType::MariadbUuid, b"a0eebc999c0b4ef8bb6d"), None);
        let seven = Some(Value::Int(7));
        assert_eq!([form(ValueType::Bit, b"\x07"), form(ValueType::Bit, b"\0\x07")], [seven.clone(), seven]);
        assert_eq!(form(ValueType::Bit, &[0xff; 8]), form(ValueType::Numeric, b"18446744073709551615"));
        assert_eq!(form(ValueType::Bit, &[0; 9]), None);
        assert_eq!(form(ValueType::Inet4, b"\x0a\x00\x01"), form(ValueType::Inet4, b"10.0.1.0"));
        assert_ne!(form(ValueType::Inet4, b"10.0.0.1"), form(ValueType::Inet4, b"10.0.1.0"));
        for (text, stored) in [("::", &b""[..]), ("2001:db8::", b"\x20\x01\x0d\xb8"), ("::ffff:1.2.3.4", &mapped())] {
            let found = form(ValueType::Inet6, text.as_bytes());
            assert!(found.is_some() && found == form(ValueType::Inet6, stored), "{text}");
        }
    }

    fn mapped() -> [u8; 16] {
        "::ffff:1.2.3.4".parse::<Ipv6Addr>().unwrap().octets()
    }

    #[test]
    fn no_address_is_taken_for_another_one() {
        // The binlog shows the one as the other's text.
        let one: Ipv6Addr = "3a3a:3100::".parse().unwrap();
        assert_eq!(&one.octets()[..3], b"::1");
        let form = |text: &str| ValueType::Inet6.normalise_text(text.as_bytes());
        assert_eq!(form("3a3a:3100::"), None);
        assert_eq!(ValueType::Inet6.normalise_binary(&one.octets()), None);
        assert!(form("::1").is_some());
    }
}
