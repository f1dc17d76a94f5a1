//! PostgreSQL's log: messages of `log_statement`, `log_min_duration_statement` and the like, as text or as CSV.
//!
//! A statement of the simple protocol is logged as `statement: TEXT`. One of the extended protocol is logged as `execute NAME: TEXT`, with its
//! parameters in the DETAIL that follows. A line with a duration was written at the end of the statement, so the duration is subtracted. `parse` and
//! `bind` lines repeat the contents of `execute` (`postgres.c`: `exec_simple_query`, `exec_execute_message`, `errdetail_params`).

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::log::{Log, Logged, Micros, SECOND, date};
use crate::value::Value;

/// The severities that may follow the prefix.
const SEVERITIES: [&str; 14] = [
    "LOG",
    "DETAIL",
    "ERROR",
    "STATEMENT",
    "HINT",
    "CONTEXT",
    "WARNING",
    "NOTICE",
    "INFO",
    "FATAL",
    "PANIC",
    "QUERY",
    "LOCATION",
    "DEBUG",
];

/// Whether the line looks like one of PostgreSQL's log.
pub(super) fn is_line(line: &str) -> bool {
    severity(line).is_some()
}

/// The text before the severity, the severity, and the text after it.
fn severity(line: &str) -> Option<(&str, &str, &str)> {
    let found = SEVERITIES.iter().filter_map(|name| Some((line.find(&format!("{name}:  "))?, *name)));
    let (at, name) = found.min()?;
    Some((line.get(..at)?, name, line.get(at + name.len() + 3..)?))
}

/// A part of `log_line_prefix`.
#[derive(Debug, PartialEq)]
enum Piece {
    Literal(String),
    Time,
    Epoch,
    Session,
    Other,
}

/// Parses the prefix ("Reporting and Logging" in PostgreSQL's manual).
fn pieces(prefix: &str) -> Result<Vec<Piece>> {
    let (mut pieces, mut letters) = (Vec::new(), prefix.chars());
    let mut session = String::new();
    // A session id is better than a process id, which may be used again.
    let wanted = if prefix.contains("%c") { 'c' } else { 'p' };
    while let Some(letter) = letters.next() {
        let escape = if letter == '%' { letters.find(|c| !c.is_ascii_digit() && *c != '-') } else { None };
        let piece = match escape {
            None | Some('%') => {
                if let Some(Piece::Literal(text)) = pieces.last_mut() {
                    text.push(letter);
                } else {
                    pieces.push(Piece::Literal(letter.to_string()));
                }
                continue;
            }
            Some('q') => continue,
            Some('m' | 't') => Piece::Time,
            Some('n') => Piece::Epoch,
            Some(letter) if letter == wanted => {
                session.push(letter);
                Piece::Session
            }
            Some(_) => Piece::Other,
        };
        pieces.push(piece);
    }
    let timed = pieces.iter().any(|piece| matches!(piece, Piece::Time | Piece::Epoch));
    ensure!(
        timed && !session.is_empty(),
        "log_line_prefix {prefix:?} has no time (%m, %t, %n) or no process (%p, %c): the log cannot be replayed without them"
    );
    Ok(pieces)
}

/// The time and the session at the beginning of a line. None if the prefix differs.
fn head(mut text: &str, pieces: &[Piece]) -> Option<(Micros, String)> {
    let (mut at, mut session) = (None, None);
    for (place, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Literal(literal) => match text.strip_prefix(literal.as_str()) {
                Some(rest) => text = rest,
                // A line of no session lacks everything after %q.
                None => break,
            },
            Piece::Time => {
                let (micros, length) = date(text)?;
                at = Some(micros);
                // The time zone follows.
                text = text.get(length..)?.trim_start();
                text = text.get(
                    text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-/_".contains(c)).unwrap_or(text.len())..,
                )?;
            }
            other => {
                let next = match pieces.get(place + 1) {
                    Some(Piece::Literal(literal)) => text.find(literal.as_str()).unwrap_or(text.len()),
                    _ => text.len(),
                };
                let (value, rest) = text.split_at(next);
                match other {
                    Piece::Session => session = Some(value.to_owned()),
                    #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
                    Piece::Epoch => at = Some((value.parse::<f64>().ok()? * SECOND as f64) as Micros),
                    _ => {}
                }
                text = rest;
            }
        }
    }
    Some((at?, session?))
}

/// Parses the form of `log_destination = stderr`. Continuation lines begin with a tabulator.
pub(super) fn stderr(text: &str, prefix: &str) -> Result<Log> {
    let pieces = pieces(prefix)?;
    let mut messages: Vec<Message> = Vec::new();
    let mut strange = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix('\t') {
            if let Some(last) = messages.last_mut() {
                last.text.push('\n');
                last.text.push_str(rest);
            }
            continue;
        }
        let Some((before, name, rest)) = severity(line) else { continue };
        let Some((at, session)) = head(before, &pieces) else {
            strange += 1;
            continue;
        };
        messages.push(Message { at, session, detail: name == "DETAIL", log: name == "LOG", text: rest.to_owned() });
    }
    ensure!(
        !messages.is_empty() || strange == 0,
        "no line has the log_line_prefix {prefix:?}; set the server's with --log-line-prefix"
    );
    let mut log = Log::default();
    (0..strange).for_each(|_| log.leave_out("a line of another log_line_prefix"));
    gather(&messages, &mut log);
    Ok(log)
}

/// A log message of a session.
struct Message {
    at: Micros,
    session: String,
    log: bool,
    detail: bool,
    text: String,
}

/// A statement and its DETAIL are consecutive messages of a session. Messages of other sessions may be between them.
fn gather(messages: &[Message], log: &mut Log) {
    let mut details: HashMap<usize, String> = HashMap::new();
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        if !message.detail {
            last.insert(&message.session, place);
        } else if let Some(of) = last.get(message.session.as_str()) {
            details.insert(*of, message.text.clone());
        }
    }
    let logged: Vec<(usize, &Message)> = messages.iter().enumerate().filter(|(_, message)| message.log).collect();
    for (place, message) in logged {
        take(log, message, details.get(&place).map(String::as_str));
    }
}

/// Parses the form of `log_destination = csvlog`. The columns used: time, process and session, severity, message, detail ("Using CSV-Format Log
/// Output" in the manual).
pub(super) fn csv(text: &str) -> Result<Log> {
    let mut log = Log::default();
    let mut any = false;
    for record in records(text) {
        let field = |place: usize| record.get(place).map(String::as_str).unwrap_or_default();
        let Some((at, _)) = date(field(0)) else { continue };
        any = true;
        if field(11) == "LOG" {
            let (session, text) = (field(5).to_owned(), field(13).to_owned());
            let message = Message { at, session, log: true, detail: false, text };
            take(&mut log, &message, Some(field(14)).filter(|detail| !detail.is_empty()));
        }
    }
    ensure!(any, "no line of this file begins with a time, as PostgreSQL's CSV does");
    Ok(log)
}

/// Records of RFC 4180.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut letters) = (false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match (letter, quoted) {
            ('"', true) if letters.peek() == Some(&'"') => field.extend(letters.next()),
            ('"', _) => quoted = !quoted,
            (',', false) => record.push(std::mem::take(&mut field)),
            ('\n', false) => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            _ => field.push(letter),
        }
    }
    if quoted || !field.is_empty() {
        // The file ends within a record, which is dropped.
        record.clear();
    }
    records
}

/// Adds the message to the log if it is a statement that can be sent again.
fn take(log: &mut Log, message: &Message, detail: Option<&str>) {
    let (mut at, mut text) = (message.at, message.text.as_str());
    if let Some(rest) = text.strip_prefix("duration: ") {
        let Some((millis, behind)) = rest.split_once(" ms  ") else { return };
        #[expect(clippy::cast_possible_truncation, reason = "a duration")]
        let micros = millis.parse::<f64>().map_or(0, |millis| (millis * 1e3) as Micros);
        (at, text) = (at - micros, behind);
    }
    let (text, values) = if let Some(text) = text.strip_prefix("statement: ") {
        (text, None)
    } else if let Some(rest) = text.strip_prefix("execute ") {
        if rest.starts_with("fetch from ") {
            return log.leave_out("more rows of a portal");
        }
        let Some((_, text)) = rest.split_once(": ") else { return };
        match parameters(text, detail) {
            Ok(values) => (text, Some(values)),
            Err(reason) => return log.leave_out(reason),
        }
    } else if text.starts_with("fastpath function call") {
        return log.leave_out("a fastpath function call");
    } else {
        return;
    };
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.eq_ignore_ascii_case("copy") {
        return log.leave_out("COPY, whose data are not logged");
    }
    log.statements.push(Logged { at, session: message.session.clone(), text: text.into(), values });
}

/// The values in a DETAIL. Their number must be that of the placeholders in the text.
fn parameters(text: &str, detail: Option<&str>) -> Result<Vec<Value>, &'static str> {
    let listed = detail.and_then(|detail| detail.strip_prefix("parameters: ").or(detail.strip_prefix("Parameters: ")));
    let values = match listed {
        Some(list) => values(list)?,
        None => Vec::new(),
    };
    let missing = highest(text) > values.len();
    if missing { Err("parameters that were not logged (log_parameter_max_length is 0)") } else { Ok(values) }
}

/// The highest number of `$1`, `$2` … outside quotes.
fn highest(text: &str) -> usize {
    let (mut highest, mut quoted) = (0, false);
    let mut rest = text;
    while let Some(at) = rest.find(['\'', '$']) {
        let (special, behind) = (rest.as_bytes()[at], &rest[at + 1..]);
        if special == b'\'' {
            quoted = !quoted;
        } else if !quoted {
            let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            highest = highest.max(behind[..digits].parse().unwrap_or(0));
        }
        rest = behind;
    }
    highest
}

/// Parses `$1 = 'it''s', $2 = NULL`. A value that ends in `...` was truncated by the server.
fn values(list: &str) -> Result<Vec<Value>, &'static str> {
    const STRANGE: &str = "parameters in an unknown form";
    let (mut rest, mut values) = (list, Vec::new());
    while !rest.is_empty() {
        let (_, behind) = rest.split_once(" = ").ok_or(STRANGE)?;
        if let Some(behind) = behind.strip_prefix("NULL") {
            values.push(Value::Null);
            rest = behind.trim_start_matches(", ");
            continue;
        }
        let (mut text, mut left) = (String::new(), behind.strip_prefix('\'').ok_or(STRANGE)?);
        loop {
            let (part, behind) = left.split_once('\'').ok_or(STRANGE)?;
            text.push_str(part);
            let Some(more) = behind.strip_prefix('\'') else {
                left = behind;
                break;
            };
            text.push('\'');
            left = more;
        }
        if text.ends_with("...") {
            return Err("truncated parameters (log_parameter_max_length)");
        }
        values.push(Value::from(text));
        rest = left.strip_prefix(", ").unwrap_or(left);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-11-24 07:16:03.123 UTC [11] app LOG:  statement: SELECT 1\n\
        2026-11-24 07:16:03.200 UTC [12] LOG:  duration: 50.000 ms  execute <unnamed>: SELECT '$9', $1::int,\n\
        \t  $2\n\
        2026-11-24 07:16:03.201 UTC [11] app LOG:  duration: 0.1 ms\n\
        2026-11-24 07:16:03.201 UTC [12] DETAIL:  Parameters: $1 = '5', $2 = 'it''s, $3 = NULL'\n\
        2026-11-24 07:16:03.300 UTC [12] LOG:  execute s1: SELECT $1\n\
        2026-11-24 07:16:03.300 UTC [12] DETAIL:  parameters: $1 = 'abc...'\n\
        2026-11-24 07:16:03.400 UTC [12] LOG:  execute s1: SELECT $1\n\
        2026-11-24 07:16:03.500 UTC [13] ERROR:  syntax error\n\
        2026-11-24 07:16:03.500 UTC [13] STATEMENT:  SELEC 1\n\
        2026-11-24 07:16:03.600 UTC [13] LOG:  statement: COPY t FROM STDIN\n";

    #[test]
    fn statements_have_their_times_sessions_and_parameters() {
        let log = stderr(LOG, "%m [%p] %q%a ").unwrap();
        let [simple, extended] = &log.statements[..] else { panic!("{log:?}") };
        assert_eq!((simple.session.as_str(), &*simple.text, &simple.values), ("11", "SELECT 1", &None));
        assert_eq!(&*extended.text, "SELECT '$9', $1::int,\n  $2");
        assert_eq!(extended.values, Some(vec![Value::from("5"), Value::from("it's, $3 = NULL")]));
        // It began 50 ms before the line.
        assert_eq!(extended.at - simple.at, 27_000);
        let reasons: Vec<&str> = log.left_out.keys().map(String::as_str).collect();
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(log.left_out.values().all(|count| *count == 1), "{:?}", log.left_out);
    }

    #[test]
    fn prefixes_are_understood_or_refused() {
        let session = |prefix: &str, before: &str| head(before, &pieces(prefix).unwrap()).map(|(_, session)| session);
        assert_eq!(
            session("%t [%p]: user=%u,db=%d ", "2026-11-24 07:16:03 CET [7]: user=a,db=b ").as_deref(),
            Some("7")
        );
        assert_eq!(session("%n %c %i ", "1795504563.123 65f0.1a INSERT ").as_deref(), Some("65f0.1a"));
        assert_eq!(session("%m [%p] ", "[7] 2026-11-24 07:16:03 UTC "), None);
        assert!(pieces("[%p] ").is_err() && pieces("%m ").is_err());
        let error = stderr(LOG, "%c %m ").unwrap_err().to_string();
        assert!(error.contains("--log-line-prefix"), "{error}");
    }

    #[test]
    fn values_may_hold_anything() {
        let said = values("$1 = NULL, $2 = 'a, $1 = ''b''', $3 = ''").unwrap();
        assert_eq!(said, [Value::Null, Value::from("a, $1 = 'b'"), Value::from("")]);
        assert!(values("$1 = 'open").is_err() && values("nothing").is_err());
        assert_eq!(highest("SELECT $1, '$7', $12"), 12);
    }

    #[test]
    fn records_may_hold_lines_and_quotes() {
        assert_eq!(records("a,\"b\"\"c\nd\",\ne,f\n"), [vec!["a", "b\"c\nd", ""], vec!["e", "f"]]);
        // An incomplete record is dropped.
        assert_eq!(records("a,b\nc,\"d").len(), 1);
    }
}
