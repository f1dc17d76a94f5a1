//! MySQL's and MariaDB's slow log. With `long_query_time = 0` it has every statement. Entries begin with comments.
//!
//! In MySQL, `# Time:` is the end of a statement in microseconds. In MariaDB it is a whole second, written only when it changes. `SET timestamp` is a
//! whole second. The more precise one is used; if it is the end, the duration is subtracted.

use super::log::{Log, Logged, Micros, SECOND, date};

/// The facts in the comments before a statement.
#[derive(Default)]
struct Head {
    end: Option<Micros>,
    session: Option<String>,
    took: Micros,
}

pub(super) fn parse(text: &str) -> Log {
    let mut log = Log::default();
    let (mut head, mut lines): (Head, Vec<&str>) = (Head::default(), Vec::new());
    for line in text.lines() {
        if line.starts_with("# ") && !lines.is_empty() {
            close(&mut log, &head, &lines);
            lines.clear();
            head = Head { session: None, took: 0, end: None };
        }
        if let Some(rest) = line.strip_prefix("# ") {
            read(&mut head, rest);
        } else if !is_banner(line) {
            lines.push(line);
        }
    }
    if !lines.is_empty() {
        close(&mut log, &head, &lines);
    }
    log
}

/// Whether the line is one that the server writes when it opens the file.
fn is_banner(line: &str) -> bool {
    line.contains(", Version: ")
        || line.starts_with("Tcp port: ")
        || line.starts_with("Time  ")
        || line.starts_with("Time\t")
}

fn read(head: &mut Head, comment: &str) {
    let number = |name: &str| {
        let behind = comment.get(comment.find(name)? + name.len()..)?;
        behind.split_whitespace().next()?.parse::<f64>().ok()
    };
    if let Some(time) = comment.strip_prefix("Time: ") {
        head.end = date(time).map(|(at, _)| at);
    }
    for name in ["Thread_id: ", "Id: "] {
        if let Some(id) = number(name).filter(|_| head.session.is_none()) {
            head.session = Some(id.to_string());
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "a duration")]
    if let Some(seconds) = number("Query_time: ") {
        head.took = (seconds * SECOND as f64) as Micros;
    }
}

/// Handles the lines up to the next comment: `use`, `SET timestamp`, the statement.
fn close(log: &mut Log, head: &Head, lines: &[&str]) {
    let mut stamp = None;
    let mut rest = lines;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(number) = first.strip_prefix("SET timestamp=") {
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let micros =
                number.trim_end_matches(';').parse::<f64>().ok().map(|seconds| (seconds * SECOND as f64) as Micros);
            stamp = micros;
        } else if !first.to_ascii_lowercase().starts_with("use ") || stamp.is_some() {
            break;
        }
        rest = behind;
    }
    let text = rest.join("\n");
    let text = text.trim_end();
    if text.is_empty() || text.starts_with('#') {
        return;
    }
    let Some(text) = text.strip_suffix(';') else {
        return log.leave_out("a statement cut off by the end of the file");
    };
    let Some(session) = head.session.clone() else { return log.leave_out("a statement without its connection") };
    let at = match (head.end, stamp) {
        (Some(end), _) if end % SECOND != 0 => end - head.took,
        (_, Some(stamp)) => stamp,
        (Some(end), None) => end,
        (None, None) => return log.leave_out("a statement without its time"),
    };
    log.statements.push(Logged { at, session, text: text.into(), values: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_both_servers_are_read() {
        let mysql = "/usr/sbin/mysqld, Version: 8.0.36 (x). started with:\nTcp port: 0  Unix socket: (null)\n\
            Time                 Id Command    Argument\n\
            # Time: 2026-11-24T07:16:03.500000Z\n# User@Host: root[root] @ localhost []  Id:     8\n\
            # Query_time: 0.250000  Lock_time: 0.000001 Rows_sent: 1  Rows_examined: 1\nuse d;\nSET timestamp=1795504563;\n\
            SELECT 1,\n  2;\n\
            # Time: 2026-11-24T07:16:04.000001Z\n# User@Host: root[root] @ localhost []  Id:     8\n\
            # Query_time: 0.000001  Lock_time: 0\nSET timestamp=1795504564;\n# administrator command: Quit;\n";
        let log = parse(mysql);
        let [one] = &log.statements[..] else { panic!("{log:?}") };
        assert_eq!(
            (&*one.text, one.session.as_str(), one.at),
            ("SELECT 1,\n  2", "8", 1_795_504_563 * SECOND + 250_000)
        );
        let maria = "# Time: 241124  7:16:03\n# User@Host: root[root] @ localhost []\n# Thread_id: 31  Schema: d  QC_hit: No\n\
            # Query_time: 0.000123  Lock_time: 0.000001  Rows_sent: 1  Rows_examined: 0\n# Rows_affected: 0  Bytes_sent: 61\n\
            SET timestamp=1732432563;\nselect 1;\n# User@Host: root[root] @ localhost []\n# Thread_id: 32  Schema:   QC_hit: No\n\
            # Query_time: 0.000123  Lock_time: 0.000001\nSET timestamp=1732432563;\nselect 2";
        let log = parse(maria);
        assert_eq!((log.statements.len(), log.statements[0].session.as_str()), (1, "31"));
        assert_eq!(log.left_out.into_iter().collect::<Vec<_>>().len(), 1);
    }
}
