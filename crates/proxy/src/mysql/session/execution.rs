//! One execution of a statement: its key, its parameters, and the result of its look-up.

use freshet_sql::{Parameter, ParameterValue};
use freshet_types::{Reason, Value as Normal, ValueType};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::rows;
use freshet_wire::mysql::statement::{Bound, Value, types};

use crate::session::lookup::Decision;
use crate::statement::registry::Statement;

/// Capabilities that determine the form of answers.
const SHAPING: [Capabilities; 5] = [
    Capabilities::DEPRECATE_EOF,
    Capabilities::SESSION_TRACK,
    Capabilities::OPTIONAL_RESULTSET_METADATA,
    Capabilities::MARIADB_EXTENDED_METADATA,
    Capabilities::MARIADB_CACHE_METADATA,
];

/// Bytes of a date and time with microseconds.
const WITH_FRACTION: usize = 11;

/// One bit for each of [`SHAPING`], for keys.
pub(crate) fn key_capabilities(capabilities: Capabilities) -> u8 {
    let bits = SHAPING.iter().enumerate();
    bits.filter(|(_, one)| capabilities.has(**one)).fold(0, |key, (at, _)| key | 1 << at)
}

/// One execution: the part of its key that does not belong to the session.
#[derive(Clone, Copy)]
pub(crate) enum Execution<'a> {
    /// A COM_QUERY with this text.
    Text(&'a [u8]),
    /// A COM_STMT_EXECUTE.
    Bound {
        /// [`Statement::id`]
        statement: u64,
        /// Types from an earlier message; empty if they are in this one.
        types: &'a [u8],
        /// The message after the statement's number.
        tail: &'a [u8],
    },
}

/// Writes the full key: all that decides the answer's bytes. Entries are compared by it, never by a hash alone.
pub(crate) fn write_key(key: &mut Vec<u8>, context: u32, shaping: u8, execution: Execution<'_>) {
    key.clear();
    key.extend_from_slice(&context.to_le_bytes());
    key.push(shaping);
    match execution {
        Execution::Text(text) => {
            key.push(b'Q');
            key.extend_from_slice(text);
        }
        Execution::Bound { statement, types, tail } => {
            key.push(b'E');
            key.extend_from_slice(&statement.to_le_bytes());
            key.extend_from_slice(&(types.len() as u32).to_le_bytes());
            key.extend_from_slice(types);
            key.extend_from_slice(tail);
        }
    }
}

/// A fill may be begun; true: after a wait for another session's.
pub(crate) struct Joined(pub(crate) bool);

/// The result of a look-up, after its waits. A hit has been answered.
pub(crate) type Found = Decision<(), Joined>;

/// The statement's own parameters, then the literals of its text.
pub(crate) fn parameters<'a>(
    statement: &'a Statement,
    bound: Option<&'a Bound<'a>>,
) -> Result<Vec<Parameter<'a>>, Reason> {
    let own_params = usize::from(statement.own_params);
    let (values, kinds) = bound.map_or((&[][..], &[][..]), |bound| (&bound.values[..], &bound.types[..]));
    if values.len() < own_params {
        return Err(Reason::MessageShape); // the server will report it
    }
    let own =
        values.iter().zip(kinds.chunks(2).chain(std::iter::repeat(&[][..]))).take(own_params).map(|(value, kind)| {
            let value = match value {
                Value::Null => ParameterValue::Null,
                Value::Integer(number) => ParameterValue::Integer(*number),
                Value::Text(text) => ParameterValue::Text(text),
                Value::Opaque(bytes) => match kind.first() {
                    // A time behind a DATE is not read.
                    Some(&types::DATE) => ParameterValue::Moment(micros(bytes).filter(|_| bytes.len() == 4)),
                    Some(&(types::DATETIME | types::TIMESTAMP)) => moment(bytes),
                    Some(&types::TIME) => ParameterValue::Time,
                    Some(types::TINY_BLOB..=types::BLOB) => ParameterValue::Bytes(bytes),
                    _ => ParameterValue::Opaque,
                },
            };
            Parameter { value, declared_type: 0 }
        });
    let literals = statement
        .literals
        .iter()
        .map(|literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 });
    Ok(own.chain(literals).collect())
}

/// A date and time of the binary protocol. MySQL cuts fractions off that an indexed column has no place for: then `c < '10:00:00.5'` leaves out what
/// is of 10:00:00.
fn moment<'v>(bytes: &[u8]) -> ParameterValue<'v> {
    match bytes {
        [_, _, _, _] | [_, _, _, _, _, _, _] | [_, _, _, _, _, _, _, 0, 0, 0, 0] => {
            ParameterValue::Moment(micros(bytes))
        }
        _ => micros(bytes)
            .filter(|_| bytes.len() == WITH_FRACTION)
            .map_or(ParameterValue::Moment(None), ParameterValue::Fraction),
    }
}

fn micros(bytes: &[u8]) -> Option<i64> {
    match ValueType::Timestamp.normalise_text(rows::moment_text(bytes)?.as_bytes())? {
        Normal::Moment(micros) => Some(micros),
        _ => None,
    }
}
