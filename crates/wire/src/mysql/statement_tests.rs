//! Statements as drivers send them.

use super::*;

const NONE: Capabilities = Capabilities(0);
const ATTRIBUTES: Capabilities = Capabilities::QUERY_ATTRIBUTES;

#[test]
fn texts_stand_behind_their_attributes() {
    let plain = Query { text: b"SELECT 1", has_attributes: false };
    assert_eq!(Query::parse(b"\x03SELECT 1", NONE), Ok(plain));
    assert_eq!(Query::parse(b"\x03\0\x01SELECT 1", ATTRIBUTES), Ok(plain));
    // One attribute: "traceparent" = "00-ab", as Connector/J sends it.
    let message = b"\x03\x01\x01\0\x01\xfe\0\x0btraceparent\x0500-abSELECT 1";
    assert_eq!(Query::parse(message, ATTRIBUTES), Ok(Query { has_attributes: true, ..plain }));
    for end in 1..message.len() - 8 {
        assert!(Query::parse(&message[..end], ATTRIBUTES).is_err(), "{end}");
    }
    assert!(Query::parse(b"\x03\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", ATTRIBUTES).is_err());
}

const HEAD: &[u8] = b"\x17\x01\0\0\0\0\x01\0\0\0";

fn bind(rest: &[u8], parameters: u16, known: Option<&[u8]>) -> Result<Bound<'static>, Malformed> {
    let message: &'static [u8] = [HEAD, rest].concat().leak();
    Execute::parse(message)?.bind(parameters, NONE, known)
}

#[test]
fn parameters_have_types() {
    let types = b"\x01\0\x01\x80\x02\0\x03\x80\x08\0\x08\x80\x05\0\x0c\0\xfd\0\xf6\0\xfc\0\x06\0";
    let values = b"\xff\xff\xfe\xff\xff\xff\xff\xff\x85\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
        \0\0\0\0\0\0\xf8\x3f\x04\xe8\x07\x01\x02\x02hi\x031.5\x01\0";
    let rest = [&[0, 0][..], &[1], types, values].concat();
    let bound = bind(&rest, 12, None).unwrap();
    let expected = [
        Value::Integer(-1),
        Value::Integer(255),
        Value::Integer(-2),
        Value::Integer(i128::from(u32::MAX)),
        Value::Integer(-123),
        Value::Integer(i128::from(u64::MAX)),
        Value::Opaque(&[0, 0, 0, 0, 0, 0, 0xf8, 0x3f]),
        Value::Opaque(&[0xe8, 7, 1, 2]),
        Value::Text(b"hi"),
        Value::Opaque(b"1.5"),
        Value::Opaque(b"\0"),
        Value::Null,
    ];
    assert_eq!(bound.values, expected);
    assert!(bound.has_types && bound.types == types);
    // The next message leaves the types out.
    let again = [&[0, 0][..], &[0], values].concat();
    let bound = bind(&again, 12, Some(types)).unwrap();
    assert!(bound.values == expected && !bound.has_types && bound.types == types);
    assert!(bind(&again, 12, None).is_err(), "no types are known");
    for end in 0..rest.len() {
        assert!(bind(&rest[..end], 12, None).is_err(), "{end}");
    }
    assert!(bind(&[&rest[..], &[0]].concat(), 12, None).is_err(), "trailing bytes");
}

#[test]
fn nulls_have_no_bytes() {
    let bound = bind(b"\x05\x01\x03\0\xfe\0\xfd\0\x01x", 3, None).unwrap();
    assert_eq!(bound.values, [Value::Null, Value::Text(b"x"), Value::Null]);
    assert_eq!(bind(b"", 0, None).unwrap().values, []);
    assert!(bind(b"\0\x01\x0d\0\x01\0", 1, None).is_err(), "a type that servers read differently");
}

#[test]
fn attributes_stand_behind_parameters() {
    // Two values of which one is the statement's; types are followed by names.
    let message = b"\x17\x01\0\0\0\x08\x01\0\0\0\x02\0\x01\x03\0\0\xfe\0\x01n\x07\0\0\0\x02ab";
    let execute = Execute::parse(message).unwrap();
    assert!(!execute.wants_cursor());
    let bound = execute.bind(1, ATTRIBUTES, None).unwrap();
    assert_eq!((bound.values, bound.has_attributes), (vec![Value::Integer(7)], true));
    assert!(execute.bind(3, ATTRIBUTES, None).is_err());
    let cursor = Execute::parse(b"\x17\x02\0\0\0\x01\x01\0\0\0").unwrap();
    assert!(cursor.wants_cursor() && cursor.statement == 2);
}
