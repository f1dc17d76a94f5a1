//! A client's messages as bytes (MySQL internals manual, "Client/Server Protocol"; MariaDB knowledge base, "Clients & Servers Protocol"), written by
//! hand: the tests must be able to send what no driver would send.

/// Capabilities of clients and servers.
pub(crate) mod capability {
    pub(crate) const LONG_PASSWORD: u32 = 1;
    pub(crate) const FOUND_ROWS: u32 = 1 << 1;
    pub(crate) const LONG_FLAG: u32 = 1 << 2;
    pub(crate) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(crate) const COMPRESS: u32 = 1 << 5;
    pub(crate) const LOCAL_FILES: u32 = 1 << 7;
    pub(crate) const IGNORE_SPACE: u32 = 1 << 8;
    pub(crate) const PROTOCOL_41: u32 = 1 << 9;
    pub(crate) const INTERACTIVE: u32 = 1 << 10;
    pub(crate) const SSL: u32 = 1 << 11;
    pub(crate) const TRANSACTIONS: u32 = 1 << 13;
    pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(crate) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(crate) const MULTI_RESULTS: u32 = 1 << 17;
    pub(crate) const PS_MULTI_RESULTS: u32 = 1 << 18;
    pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
    pub(crate) const CONNECT_ATTRS: u32 = 1 << 20;
    pub(crate) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    pub(crate) const SESSION_TRACK: u32 = 1 << 23;
    pub(crate) const DEPRECATE_EOF: u32 = 1 << 24;
    pub(crate) const ZSTD: u32 = 1 << 26;

    /// The capabilities of drivers of about 2005.
    pub(crate) const OLD: u32 = LONG_PASSWORD
        | LONG_FLAG
        | PROTOCOL_41
        | TRANSACTIONS
        | SECURE_CONNECTION
        | MULTI_STATEMENTS
        | MULTI_RESULTS
        | LOCAL_FILES
        | PLUGIN_AUTH;
    /// The capabilities of current drivers.
    pub(crate) const MODERN: u32 =
        OLD | PS_MULTI_RESULTS | CONNECT_ATTRS | PLUGIN_AUTH_LENENC | SESSION_TRACK | DEPRECATE_EOF;
}

/// Status flags of a session, in each OK and EOF.
pub(crate) mod status {
    pub(crate) const IN_TRANS: u16 = 1;
    pub(crate) const AUTOCOMMIT: u16 = 2;
    pub(crate) const MORE_RESULTS: u16 = 8;
    pub(crate) const CURSOR_EXISTS: u16 = 64;
    pub(crate) const SESSION_STATE_CHANGED: u16 = 0x4000;
}

/// An integer of 1, 3, 4 or 9 bytes.
pub(crate) fn integer(value: u64) -> Vec<u8> {
    let bytes = value.to_le_bytes();
    match value {
        0..=0xfa => vec![bytes[0]],
        0xfb..=0xffff => vec![0xfc, bytes[0], bytes[1]],
        0x1_0000..=0xff_ffff => vec![0xfd, bytes[0], bytes[1], bytes[2]],
        _ => [&[0xfe], bytes.as_slice()].concat(),
    }
}

/// Bytes with their length before them.
pub(crate) fn counted(bytes: &[u8]) -> Vec<u8> {
    [integer(bytes.len() as u64).as_slice(), bytes].concat()
}

fn command(code: u8, rest: &[u8]) -> Vec<u8> {
    [&[code], rest].concat()
}

pub(crate) fn quit() -> Vec<u8> {
    command(1, &[])
}

pub(crate) fn init_db(database: &str) -> Vec<u8> {
    command(2, database.as_bytes())
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    command(3, sql.as_bytes())
}

pub(crate) fn field_list(table: &str, pattern: &str) -> Vec<u8> {
    command(4, &[table.as_bytes(), &[0], pattern.as_bytes()].concat())
}

pub(crate) fn statistics() -> Vec<u8> {
    command(9, &[])
}

pub(crate) fn process_kill(connection: u32) -> Vec<u8> {
    command(12, &connection.to_le_bytes())
}

pub(crate) fn ping() -> Vec<u8> {
    command(14, &[])
}

/// A request for the binary log from a position on, as the replica with this number.
pub(crate) fn binlog_dump(position: u32, server: u32, file: &str) -> Vec<u8> {
    command(18, &[&position.to_le_bytes(), [0, 0].as_slice(), &server.to_le_bytes(), file.as_bytes()].concat())
}

pub(crate) fn register_replica(server: u32) -> Vec<u8> {
    // No host, user, password, port, rank; no primary.
    command(21, &[&server.to_le_bytes(), [0; 3 + 2 + 4 + 4].as_slice()].concat())
}

pub(crate) fn prepare(sql: &str) -> Vec<u8> {
    command(22, sql.as_bytes())
}

pub(crate) fn send_long_data(statement: u32, parameter: u16, data: &[u8]) -> Vec<u8> {
    command(24, &[&statement.to_le_bytes(), parameter.to_le_bytes().as_slice(), data].concat())
}

pub(crate) fn close(statement: u32) -> Vec<u8> {
    command(25, &statement.to_le_bytes())
}

pub(crate) fn reset_statement(statement: u32) -> Vec<u8> {
    command(26, &statement.to_le_bytes())
}

pub(crate) fn set_option(option: u16) -> Vec<u8> {
    command(27, &option.to_le_bytes())
}

pub(crate) fn fetch(statement: u32, rows: u32) -> Vec<u8> {
    command(28, &[statement.to_le_bytes(), rows.to_le_bytes()].concat())
}

pub(crate) fn reset_connection() -> Vec<u8> {
    command(31, &[])
}

/// A parameter of a prepared statement.
#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    Null,
    /// `MYSQL_TYPE_LONGLONG`
    Integer(i64),
    /// `MYSQL_TYPE_LONG`
    Int(i32),
    /// `MYSQL_TYPE_DOUBLE`
    Double(f64),
    /// `MYSQL_TYPE_VAR_STRING`
    Text(&'a str),
    /// `MYSQL_TYPE_BLOB`
    Bytes(&'a [u8]),
    /// `MYSQL_TYPE_DATE`
    Date(u16, u8, u8),
    /// `MYSQL_TYPE_DATETIME` of January 2030, by its day and its second
    January(u8, u32),
    /// The same with microseconds
    Fraction(u8, u32, u32),
    /// `MYSQL_TYPE_BLOB`, with what was sent by `COM_STMT_SEND_LONG_DATA`.
    Long,
}

impl Value<'_> {
    fn kind(&self) -> [u8; 2] {
        match self {
            Self::Null => [6, 0],
            Self::Integer(_) => [8, 0],
            Self::Int(_) => [3, 0],
            Self::Double(_) => [5, 0],
            Self::Text(_) => [253, 0],
            Self::Bytes(_) | Self::Long => [252, 0],
            Self::Date(..) => [10, 0],
            Self::January(..) | Self::Fraction(..) => [12, 0],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Null | Self::Long => Vec::new(),
            Self::Integer(value) => value.to_le_bytes().to_vec(),
            Self::Int(value) => value.to_le_bytes().to_vec(),
            Self::Double(value) => value.to_le_bytes().to_vec(),
            Self::Text(value) => counted(value.as_bytes()),
            Self::Bytes(value) => counted(value),
            Self::Date(year, month, day) => [&[4], year.to_le_bytes().as_slice(), &[*month, *day]].concat(),
            Self::January(day, seconds) => {
                let time = [seconds / 3_600, seconds / 60 % 60, seconds % 60].map(|number| number.to_le_bytes()[0]);
                [&[7, 0xee, 7, 1, *day], &time[..]].concat()
            }
            Self::Fraction(day, seconds, micros) => {
                let whole = Self::January(*day, *seconds).bytes();
                [&[11], &whole[1..], &micros.to_le_bytes()[..]].concat()
            }
        }
    }
}

/// `COM_STMT_EXECUTE` without a cursor, with types.
pub(crate) fn execute(statement: u32, values: &[Value<'_>]) -> Vec<u8> {
    execute_with(statement, 0, values, true)
}

/// The same with flags (1: a read-only cursor), and with or without the types that an earlier execution has sent.
pub(crate) fn execute_with(statement: u32, flags: u8, values: &[Value<'_>], types: bool) -> Vec<u8> {
    let mut rest = [&statement.to_le_bytes(), [flags].as_slice(), &1_u32.to_le_bytes()].concat();
    if !values.is_empty() {
        let mut nulls = vec![0; values.len().div_ceil(8)];
        for (at, _) in values.iter().enumerate().filter(|(_, value)| matches!(value, Value::Null)) {
            nulls[at / 8] |= 1 << (at % 8);
        }
        rest.extend(nulls);
        rest.push(u8::from(types));
        if types {
            rest.extend(values.iter().flat_map(Value::kind));
        }
        rest.extend(values.iter().flat_map(Value::bytes));
    }
    command(23, &rest)
}
