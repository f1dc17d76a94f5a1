//! The parameters of one execution, by their numbers: the statement's own, then the literals of its text, then the constants of the views that it
//! reads.

use freshet_types::Value;

use crate::lex::literal::Literal;
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::Operand;

/// Farther from UTC than any zone of a PostgreSQL session, in microseconds. PostgreSQL takes zones up to 168 hours away, and one more hour in summer
/// (`src/timezone/localtime.c`).
const ZONE_REACH: i64 = 8 * 86_400_000_000;

/// Settings of the client's session for reading and printing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub struct Client {
    /// Its encoding is UTF-8. In another encoding the server's text has other bytes.
    pub utf8: bool,
    /// MySQL and MariaDB: its texts are compared with the bytes that the client sent.
    pub as_sent: bool,
    /// MySQL and MariaDB: its texts are compared in a character set in which ASCII has other bytes.
    pub wide: bool,
    /// MySQL and MariaDB: its texts are bytes, which nothing converts, and names in them are UTF-8.
    pub raw: bool,
    /// MySQL and MariaDB: `\` does not escape.
    pub plain_backslash: bool,
    /// PostgreSQL: its time zone is UTC. MySQL and MariaDB: its zone is a fixed offset from UTC.
    pub utc: bool,
}

impl Client {
    /// UTF-8, with an unknown time zone.
    pub const PLAIN: Self =
        Self { utf8: true, as_sent: true, wide: false, raw: false, plain_backslash: false, utc: false };
}

/// The parameters of one execution.
#[derive(Clone, Copy)]
pub(crate) struct Params<'p> {
    pub(crate) values: &'p [Parameter<'p>],
    /// Those of views: see [`VIEWS_BASE`].
    pub(crate) constants: &'p [Literal],
    pub(crate) client: Client,
}

impl<'p> Params<'p> {
    pub(crate) fn get(&self, operand: Operand) -> Option<Parameter<'p>> {
        self.get_number(operand.parameter)
    }

    pub(crate) fn get_number(&self, number: u32) -> Option<Parameter<'p>> {
        let at = |base: u32| usize::try_from(number.checked_sub(base)?.checked_sub(1)?).ok();
        let constant = |literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 };
        match at(VIEWS_BASE) {
            Some(at) => self.constants.get(at).map(constant),
            None => self.values.get(at(0)?).copied(),
        }
    }

    /// How far from UTC the zone of a PostgreSQL session may be, in microseconds.
    pub(crate) fn zone_reach(&self) -> i64 {
        if self.client.utc { 0 } else { ZONE_REACH }
    }

    pub(crate) fn readable(&self, value: &Value) -> bool {
        self.client.utf8 || !matches!(value, Value::Text(text) if !text.is_ascii())
    }
}

/// A parameter of one execution: the statement's own, then the literals of its text.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Its value.
    pub value: ParameterValue<'a>,
    /// The type OID in Parse; 0 if the server chooses the type (also for literals).
    pub declared_type: u32,
}

/// A parameter's value.
#[derive(Clone, Copy, Debug)]
pub enum ParameterValue<'a> {
    /// NULL
    Null,
    /// In text format.
    Text(&'a [u8]),
    /// In binary format.
    Binary(&'a [u8]),
    /// From the statement's text.
    Literal(&'a Literal),
    /// MySQL and MariaDB: an integer of the binary protocol.
    Integer(i128),
    /// MySQL and MariaDB: DATE, DATETIME or TIMESTAMP of the binary protocol, as [`freshet_types::Value::Moment`] if it has whole seconds and both
    /// servers accept it.
    Moment(Option<i64>),
    /// MySQL and MariaDB: DATETIME or TIMESTAMP of the binary protocol with a fraction of a second, in microseconds. MySQL may compare it without the fraction,
    /// where an indexed column has none.
    Fraction(i64),
    /// MySQL and MariaDB: TIME of the binary protocol, which the current date may complete.
    Time,
    /// MySQL and MariaDB: bytes of the binary protocol.
    Bytes(&'a [u8]),
    /// MySQL and MariaDB: anything else of the binary protocol: floats, values sent in pieces, unknown types.
    Opaque,
}
