//! MySQL's and MariaDB's general log: a line for each command, with time, connection id, command name and text.
//!
//! MySQL writes a time in microseconds on each line. MariaDB writes whole seconds, and only when they change. The text of a prepared statement's
//! execution contains its values (`sql_prepare.cc`).

use super::log::{Log, Logged, Micros, SECOND, clock, date};
use crate::calendar;

/// The commands that carry a statement or end an entry.
const COMMANDS: [&str; 24] = [
    "Connect",
    "Query",
    "Prepare",
    "Execute",
    "Close stmt",
    "Reset stmt",
    "Quit",
    "Init DB",
    "Field List",
    "Statistics",
    "Ping",
    "Change user",
    "Sleep",
    "Shutdown",
    "Long Data",
    "Fetch",
    "Set option",
    "Binlog Dump",
    "Register Slave",
    "Register Replica",
    "Processlist",
    "Kill",
    "Reset Connection",
    "Debug",
];

/// The parts of a line that begins an entry: its time if it has one, connection, command, argument.
pub(super) fn entry(line: &str) -> Option<(Option<Micros>, &str, &str, &str)> {
    let (at, rest) = if let Some((at, length)) = date(line) {
        // The time zone follows: Z or +01:00.
        let rest = line.get(length..)?;
        (Some(at), rest.get(rest.find('\t')?..)?)
    } else if let Some(rest) = line.strip_prefix('\t') {
        (None, rest)
    } else {
        let (day, rest) = (line.get(..6).filter(|day| day.bytes().all(|byte| byte.is_ascii_digit()))?, line.get(6..)?);
        let (time, length) = clock(rest.trim_start())?;
        let (year, month, day) = (day.get(..2)?, day.get(2..4)?, day.get(4..)?);
        let midnight = i64::try_from(calendar::seconds(&format!("20{year}-{month}-{day}"))?).ok()?;
        (Some(midnight * SECOND + time), rest.trim_start().get(length..)?)
    };
    let rest = rest.trim_start_matches(['\t', ' ']);
    let (connection, rest) = rest.split_once(' ')?;
    connection.parse::<u64>().ok()?;
    let (command, argument) = rest.split_once('\t').unwrap_or((rest, ""));
    COMMANDS.contains(&command.trim_end()).then_some((at, connection, command.trim_end(), argument))
}

pub(super) fn parse(text: &str) -> Log {
    let mut log = Log::default();
    let mut now = 0;
    // The entry that continuation lines belong to.
    let mut open: Option<Logged> = None;
    for line in text.lines() {
        let Some((at, connection, command, argument)) = entry(line) else {
            if line.starts_with("Tcp port: ") || line.starts_with("Time\t") || line.contains(", Version: ") {
                log.statements.extend(open.take());
            } else if let Some(statement) = &mut open {
                statement.text = format!("{}\n{line}", statement.text).into();
            }
            continue;
        };
        log.statements.extend(open.take());
        now = at.unwrap_or(now);
        match command {
            "Query" | "Execute" if argument.is_empty() => log.leave_out("a statement without its text"),
            "Query" | "Execute" => {
                open = Some(Logged { at: now, session: connection.to_owned(), text: argument.into(), values: None });
            }
            "Init DB" => log.leave_out("a change of the database: the target's own is used"),
            "Change user" | "Reset Connection" => log.leave_out("a change of the session's account or its reset"),
            "Long Data" => log.leave_out("a part of a parameter"),
            "Fetch" => log.leave_out("more rows of a cursor"),
            "Binlog Dump" | "Register Slave" | "Register Replica" => log.leave_out("replication"),
            _ => {}
        }
    }
    log.statements.extend(open);
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_time_are_read() {
        let maria = "/usr/sbin/mariadbd, Version: 10.11.19. started with:\nTcp port: 3306  Unix socket: /s\n\
            Time\t\t    Id Command\tArgument\n241124  7:16:03\t     8 Connect\troot@localhost on d\n\t\t     8 Query\tSELECT 1\n\
            \t\t     9 Query\tSELECT 'a\n\tb'\n\n241124 17:16:04\t     8 Execute\tSELECT 2\n\t\t     8 Quit\t\n";
        let log = parse(maria);
        let seen: Vec<(Micros, &str, &str)> =
            log.statements.iter().map(|one| (one.at / SECOND % 86_400, one.session.as_str(), &*one.text)).collect();
        assert_eq!(seen, [(26_163, "8", "SELECT 1"), (26_163, "9", "SELECT 'a\n\tb'\n"), (62_164, "8", "SELECT 2")]);
        let mysql =
            "2026-11-24T07:16:03.123456Z\t   12 Query\tSELECT 1\n2026-11-24T07:16:03.200000Z\t   12 Init DB\tx\n";
        let log = parse(mysql);
        assert_eq!((log.statements[0].at % SECOND, log.statements.len(), log.left_out.len()), (123_456, 1, 1));
    }
}
