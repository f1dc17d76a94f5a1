//! MySQL and MariaDB, through mysql_async.
//!
//! It is one connection, not from the driver's pool, and without the driver's own statements. The driver would otherwise read settings of the server
//! at each connect, or change to its Unix socket.
//!
//! The two protocols return values in two forms. Stored values are converted to the form of the text protocol, so that the answers of both can be
//! compared. Exceptions are values that the server itself rounds for text (FLOAT) or pads (ZEROFILL).

use std::io::Write as _;
use std::sync::Arc;

use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Column, Conn, Error, Opts, OptsBuilder, Params, QueryResult, Value as Raw};

use super::{Failure, Protocol, Row, Rows};
use crate::statement::Statement;
use crate::target::Family;
use crate::value::Value;

/// Longest packet in bytes that the driver sends or accepts. The server has its own limit.
const LONGEST: usize = 64 << 20;

/// The number of decimals that marks a column without a fixed number of them.
const NOT_FIXED: u8 = 31;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    server: Conn,
    statements: Arc<[Statement]>,
    /// Prepared statements by index. Empty for the text protocol.
    prepared: Vec<mysql_async::Statement>,
    /// The last text sent.
    text: String,
    /// Whether an answer is outstanding. If its caller was dropped, the driver would take it for the answer to the next statement.
    owed: bool,
}

impl Connection {
    /// Connects, and prepares the statements unless the protocol is text.
    pub async fn open(url: &str, statements: &Arc<[Statement]>, protocol: Protocol) -> Result<Self, Failure> {
        let options = options(url, statements.len())?;
        let place = format!("{}:{}", options.ip_or_hostname(), options.tcp_port());
        let server = Conn::new(options).await.map_err(|error| {
            let failure = failure(&error);
            Failure { text: format!("{place}: {}", failure.text), usable: false, ..failure }
        })?;
        let statements = Arc::clone(statements);
        let mut opened = Self { server, statements, prepared: Vec::new(), text: String::new(), owed: false };
        if protocol == Protocol::Prepared {
            for statement in opened.statements.iter() {
                let prepared = opened.server.prep(statement.prepared_text(Family::Mysql)).await.map_err(|error| {
                    let failure = failure(&error);
                    Failure { text: format!("statement {:?}: {}", statement.name, failure.text), ..failure }
                })?;
                opened.prepared.push(prepared);
            }
        }
        Ok(opened)
    }

    /// Runs a statement.
    pub async fn run(&mut self, index: usize, values: &[Value], rows: Rows<'_>) -> Result<u64, Failure> {
        self.begin_request()?;
        let Some(statement) = self.statements.get(index) else {
            return Err(Failure::connection(&format_args!("no statement {index}")));
        };
        let outcome = if let Some(prepared) = self.prepared.get(index) {
            let mentioned = |index| values.get(index).map_or(Raw::NULL, parameter);
            let values: Vec<_> = statement.mentions().map(mentioned).collect();
            let parameters = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
            match self.server.exec_iter(prepared, parameters).await {
                Ok(answer) => take(answer, rows).await,
                Err(error) => Err(error),
            }
        } else {
            self.text.clear();
            statement.write_text(Family::Mysql, values, &mut self.text);
            match self.server.query_iter(self.text.as_str()).await {
                Ok(answer) => take(answer, rows).await,
                Err(error) => Err(error),
            }
        };
        self.owed = false;
        outcome.map_err(|error| failure(&error))
    }

    /// Sends a text.
    pub async fn send_text(&mut self, sql: &str, rows: Rows<'_>) -> Result<u64, Failure> {
        self.begin_request()?;
        let outcome = match self.server.query_iter(sql).await {
            Ok(answer) => take(answer, rows).await,
            Err(error) => Err(error),
        };
        self.owed = false;
        outcome.map_err(|error| failure(&error))
    }

    /// Runs a command.
    pub async fn command(&mut self, sql: &str) -> Result<(), Failure> {
        self.begin_request()?;
        let outcome = self.server.query_drop(sql).await;
        self.owed = false;
        outcome.map_err(|error| failure(&error))
    }

    fn begin_request(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.owed, true) {
            return Err(Failure::connection(&"an earlier request was dropped before its answer arrived"));
        }
        Ok(())
    }
}

fn options(url: &str, statements: usize) -> Result<Opts, Failure> {
    let mut url = url.replacen("mariadb://", "mysql://", 1);
    if let Some((account, place)) = url.rsplit_once('@')
        && let Some(account) = account.strip_prefix("mysql://")
    {
        url = format!("mysql://{}@{place}", account.replace('@', "%40"));
    }
    let options = Opts::from_url(&url).map_err(|error| Failure::connection(&error))?;
    if options.ssl_opts().is_some() {
        return Err(Failure::connection(&"the URL asks for TLS, which this program does not speak"));
    }
    let options = OptsBuilder::from_opts(options)
        .prefer_socket(false)
        .max_allowed_packet(Some(LONGEST))
        .wait_timeout(Some(28_800))
        .stmt_cache_size(statements + 1);
    Ok(options.into())
}

/// Reads an answer to its end.
async fn take<P>(mut answer: QueryResult<'_, '_, P>, rows: Rows<'_>) -> Result<u64, Error>
where
    P: mysql_async::prelude::Protocol,
{
    if answer.columns_ref().is_empty() {
        let count = answer.affected_rows();
        answer.drop_result().await?;
        return Ok(count);
    }
    let mut count = 0;
    let rows = match rows {
        Rows::Described(columns, kept) => {
            *columns = answer.columns_ref().iter().map(described).collect();
            Rows::Kept(kept)
        }
        other => other,
    };
    match rows {
        Rows::Counted => answer.for_each(|_| count += 1).await?,
        Rows::Kept(kept) | Rows::Described(_, kept) => {
            let keep = |row| {
                kept.push(canonical_row(row));
                count += 1;
            };
            answer.for_each(keep).await?;
        }
    }
    answer.drop_result().await?;
    Ok(count)
}

/// The column with its type. Types are named as in the protocol, without `MYSQL_TYPE_`.
fn described(column: &Column) -> super::Column {
    let kind = format!("{:?}", column.column_type()).trim_start_matches("MYSQL_TYPE_").to_lowercase();
    super::Column { name: column.name_str().into_owned(), kind }
}

fn parameter(value: &Value) -> Raw {
    match value {
        Value::Null => Raw::NULL,
        Value::Int(number) => Raw::Int(*number),
        Value::Text(text) => Raw::Bytes(text.as_bytes().to_vec()),
    }
}

fn canonical_row(row: mysql_async::Row) -> Row {
    let columns = row.columns();
    columns.iter().zip(row.unwrap()).map(|(column, value)| canonical(column, value)).collect()
}

/// A value in the form of the text protocol.
fn canonical(column: &Column, value: Raw) -> Option<Vec<u8>> {
    let real = matches!(column.column_type(), ColumnType::MYSQL_TYPE_FLOAT | ColumnType::MYSQL_TYPE_DOUBLE);
    let mut text = Vec::new();
    match value {
        Raw::NULL => return None,
        Raw::Bytes(bytes) if real => match std::str::from_utf8(&bytes).ok().and_then(|text| text.parse::<f64>().ok()) {
            Some(number) => write_real(&mut text, column, number),
            None => text = bytes,
        },
        Raw::Bytes(bytes) => text = bytes,
        Raw::Int(number) => drop(write!(text, "{number}")),
        Raw::UInt(number) => drop(write!(text, "{number}")),
        // The conversion through text keeps 0.1 as it is, not as the nearest number with four bytes.
        Raw::Float(number) => write_real(&mut text, column, number.to_string().parse().unwrap_or(f64::NAN)),
        Raw::Double(number) => write_real(&mut text, column, number),
        Raw::Date(year, month, day, ..) if column.column_type() == ColumnType::MYSQL_TYPE_DATE => {
            drop(write!(text, "{year:04}-{month:02}-{day:02}"));
        }
        Raw::Date(year, month, day, hour, minute, second, micros) => {
            drop(write!(text, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"));
            write_fraction(&mut text, column, micros);
        }
        Raw::Time(negative, days, hours, minutes, seconds, micros) => {
            let (sign, hours) = (if negative { "-" } else { "" }, days * 24 + u32::from(hours));
            drop(write!(text, "{sign}{hours:02}:{minutes:02}:{seconds:02}"));
            write_fraction(&mut text, column, micros);
        }
    }
    Some(text)
}

fn write_real(text: &mut Vec<u8>, column: &Column, number: f64) {
    let _ = match column.decimals() {
        decimals if decimals < NOT_FIXED => write!(text, "{number:.*}", usize::from(decimals)),
        _ => write!(text, "{number}"),
    };
}

/// Appends fractions of a second with as many digits as the column has.
fn write_fraction(text: &mut Vec<u8>, column: &Column, micros: u32) {
    let digits = usize::from(column.decimals().min(6));
    if digits > 0 {
        let _ = write!(text, ".{}", &format!("{micros:06}")[..digits]);
    }
}

fn failure(error: &Error) -> Failure {
    let Error::Server(said) = error else { return Failure::connection(error) };
    // Class 08 is connection exceptions. 1053 and 1927 are a shutdown of the server and a killed connection.
    let ended = said.state.starts_with("08") || matches!(said.code, 1053 | 1927 | 3169);
    let retry = matches!(said.code, 1205 | 1213);
    Failure { code: said.code.to_string(), text: said.message.clone(), usable: !ended, retry }
}
