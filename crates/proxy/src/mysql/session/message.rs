//! Messages of COM_STMT_EXECUTE: where the types of their parameters are, and how they are added.

use std::borrow::Cow;

use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::command as code;
use freshet_wire::mysql::integers::put_lenenc;
use freshet_wire::mysql::packet::{self, HEADER_BYTES, Header, PACKET_PAYLOAD_MAX};
use freshet_wire::mysql::response::{Answer, Kind};
use freshet_wire::mysql::statement::Execute;

use crate::mysql::session::prepared::Prepared;

/// Bytes of COM_STMT_EXECUTE before the parameters: command, number, flags, iterations.
pub(super) const HEAD_BYTES: usize = 10;
/// Flag of COM_STMT_EXECUTE: the message has the number and the names of the parameters, query attributes among them.
pub(super) const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;

/// Where the types of the parameters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Types<'a> {
    /// There are no parameters.
    None,
    /// In this message.
    Here(Cow<'a, [u8]>),
    /// In an earlier message.
    Earlier,
}

impl Types<'_> {
    pub(super) fn into_owned(self) -> Types<'static> {
        match self {
            Self::None => Types::None,
            Self::Here(types) => Types::Here(types.into_owned().into()),
            Self::Earlier => Types::Earlier,
        }
    }
}

/// A message of a known statement.
pub(super) struct Message<'a> {
    pub(super) execute: Execute<'a>,
    pub(super) types: Types<'a>,
    /// The message has the number and the names of the parameters.
    pub(super) named: bool,
    pub(super) attributes: bool,
}

impl<'a> Message<'a> {
    /// None if it cannot be parsed.
    pub(super) fn read(payload: &'a [u8], prepared: &Prepared, capabilities: Capabilities) -> Option<Self> {
        let execute = Execute::parse(payload).ok()?;
        let named = capabilities.has(Capabilities::QUERY_ATTRIBUTES) && execute.flags & PARAMETER_COUNT_AVAILABLE != 0;
        if !named {
            let types = plain_types(execute.tail, prepared.parameters);
            return Some(Self { execute, types, named, attributes: false });
        }
        let bound = execute.bind(prepared.parameters, capabilities, prepared.types.as_deref()).ok()?;
        let types = match (bound.values.is_empty(), bound.has_types) {
            (true, _) => Types::None,
            (false, true) => Types::Here(bound.types.into()),
            (false, false) => Types::Earlier,
        };
        let named = types != Types::None;
        Some(Self { execute, types, named, attributes: bound.has_attributes })
    }
}

/// Where the types are in a message that neither counts nor names its parameters.
pub(super) fn plain_types(tail: &[u8], parameters: u16) -> Types<'_> {
    let count = usize::from(parameters);
    if count == 0 {
        return Types::None;
    }
    let at = count.div_ceil(8);
    match (tail.get(at), tail.get(at + 1..at + 1 + 2 * count)) {
        (Some(0), _) => Types::Earlier,
        (_, Some(types)) => Types::Here(types.into()),
        _ => Types::None, // too short: the server will report it
    }
}

/// The packet with the types that it leaves out; None: they do not belong to it, or it would need several packets.
pub(super) fn with_types_of(packet: &[u8], parameters: u16, types: &[u8]) -> Option<Vec<u8>> {
    let parameters = usize::from(parameters);
    let (head, rest) = packet.split_at_checked(HEADER_BYTES + HEAD_BYTES + parameters.div_ceil(8) + 1)?;
    let types = Some(types).filter(|types| types.len() == 2 * parameters)?;
    Some([&head_with_types_of(head, Header::read(packet)?, types)?[..], rest].concat())
}

/// The beginning of a packet, up to the mark that it leaves out the types, with these types; None: it would need several packets.
pub(super) fn head_with_types_of(head: &[u8], header: Header, types: &[u8]) -> Option<Vec<u8>> {
    let payload = header.payload_bytes + types.len();
    let length = u32::try_from(payload).ok().filter(|_| !header.continues() && payload < PACKET_PAYLOAD_MAX)?;
    let [low, middle, high, _] = length.to_le_bytes();
    let (_, before) = head.get(HEADER_BYTES..)?.split_last()?;
    Some([&[low, middle, high, 0], before, &[1], types].concat())
}

/// Appends an execution with parameters of these types, all NULL. The message may have their number and names.
pub(super) fn put_nulls(out: &mut Vec<u8>, number: u32, types: &[u8], (counted, named): (bool, bool)) {
    let count = types.len() / 2;
    packet::put_with(out, &mut 0, |out| {
        out.push(code::STMT_EXECUTE);
        out.extend_from_slice(&number.to_le_bytes());
        out.push(if counted { PARAMETER_COUNT_AVAILABLE } else { 0 });
        out.extend_from_slice(&1_u32.to_le_bytes());
        if counted {
            put_lenenc(out, count as u64);
        }
        out.resize(out.len() + count.div_ceil(8), 0xff);
        out.push(1);
        for kind in types.chunks_exact(2) {
            out.extend_from_slice(kind);
            if named {
                put_lenenc(out, 0);
            }
        }
    });
}

/// The kind of answer to an execution, by its first packet.
pub(super) fn kind_of(packet: &[u8]) -> Kind {
    match Answer::to(packet.get(HEADER_BYTES..).unwrap_or_default()) {
        Answer::Packets(kind) => kind,
        Answer::None => Kind::Execute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_put_into_a_message() {
        let types = [8, 0, 253, 0];
        // Two parameters, none of them NULL; the types are left out.
        let payload = [&[code::STMT_EXECUTE, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], b"values"].concat();
        let mut packet = Vec::new();
        packet::put(&mut packet, &mut 0, &payload);
        let whole = with_types_of(&packet, 2, &types).expect("it has room");
        let header = Header::read(&packet).expect("a header");
        let (head, rest) = packet.split_at(HEADER_BYTES + HEAD_BYTES + 2);
        let rewritten = head_with_types_of(head, header, &types).expect("it has room");
        assert_eq!([&rewritten[..], rest].concat(), whole);
        let tail = whole.get(HEADER_BYTES + HEAD_BYTES..).expect("a tail");
        assert_eq!(plain_types(tail, 2), Types::Here(types[..].into()));
        let large = Header { payload_bytes: PACKET_PAYLOAD_MAX - 4, ..header };
        assert_eq!(head_with_types_of(head, large, &types), None);
        assert!(head_with_types_of(head, Header { payload_bytes: PACKET_PAYLOAD_MAX - 5, ..header }, &types).is_some());
    }
}
