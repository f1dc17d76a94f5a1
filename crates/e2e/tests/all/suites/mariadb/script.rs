//! The statements of a file that `mariadb-test` would run.

/// The words that statements begin with which are sent. All other commands are for the test program itself; EXPLAIN and
/// ANALYZE tell of statistics.
const STATEMENTS: &str = "select with values table insert update delete replace create drop alter rename truncate set use do call \
    begin start commit rollback savepoint release prepare execute deallocate describe desc show optimize \
    check checksum repair lock unlock handler help signal resignal xa";
/// Pieces of statements that reach beyond the database, wait, or need what the test program knows.
const UNFIT: &str = "outfile dumpfile load_file shutdown global debug_ delayed sleep( get_lock( benchmark( mysql. $ slave master install \
    datadir soname";
/// With any of these a file is not run: its statements belong to several connections.
const SEVERAL: [&str; 8] =
    ["connect", "connection", "disconnect", "send", "reap", "change_user", "reset_connection", "shutdown_server"];

/// The statements of a script, without delimiters; None if it needs several connections.
pub(super) fn statements(script: &str) -> Option<Vec<String>> {
    let (mut statements, mut command, mut delimiter) = (Vec::new(), String::new(), ";".to_owned());
    for line in script.lines() {
        if command.trim().is_empty() {
            command.clear();
            let line = line.trim_start();
            let directive = line.strip_prefix("--");
            let word = first_word(directive.unwrap_or(line));
            if SEVERAL.contains(&word.as_str()) {
                return None;
            }
            if word == "delimiter" && directive.is_some() {
                directive.and_then(|line| line.split_whitespace().nth(1)).unwrap_or(";").clone_into(&mut delimiter);
            }
            // Both branches of a condition are sent, and the body of a loop once.
            let control = ["if", "while"].contains(&word.as_str()) || line.starts_with(['{', '}', '#']);
            if directive.is_some() || control {
                continue;
            }
        }
        command.push_str(line);
        command.push('\n');
        while let Some(end) = end(&command, &delimiter) {
            let behind = command.split_off(end + delimiter.len());
            command.truncate(end);
            let statement = command.trim();
            let word = first_word(statement);
            if SEVERAL.contains(&word.as_str()) {
                return None;
            }
            if word == "delimiter" {
                statement.split_whitespace().nth(1).unwrap_or(";").clone_into(&mut delimiter);
            } else if is_sent(&word, statement) {
                statements.push(statement.to_owned());
            }
            command = behind;
        }
    }
    Some(statements)
}

fn first_word(command: &str) -> String {
    let code = command.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    code.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>().to_ascii_lowercase()
}

fn is_sent(word: &str, statement: &str) -> bool {
    let lower = statement.to_ascii_lowercase();
    // The session's counters do not count hits.
    let counts = word == "show" && lower.contains("status");
    let unfit = ["load data", "kill "].into_iter().chain(UNFIT.split_whitespace()).any(|piece| lower.contains(piece));
    STATEMENTS.split_whitespace().any(|known| known == word) && !unfit && !counts
}

/// Where the delimiter stands behind a command, outside quotes.
fn end(command: &str, delimiter: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in command.char_indices() {
        match quote {
            Some(open) => {
                if c == open && !escaped {
                    quote = None;
                }
                escaped = c == '\\' && !escaped && open != '`';
            }
            None if command[at..].starts_with(delimiter) => return Some(at),
            None => quote = Some(c).filter(|c| ['\'', '"', '`'].contains(c)),
        }
    }
    None
}

#[test]
fn splits_as_the_test_program_does() {
    let script = "# it's\n--source include/have_x.inc\n--disable_warnings\nselect 1; select ';'; let $a= 2;\neval select $a;\n\
        delimiter |;\ncreate procedure p() begin select 1; select 'it\\'s|'; end|\ndelimiter ;|\nif ($x)\n{\n(select\n 3);\n}\n\
        --error 1\nselect\n# inner\n 4;\nset global x=1;";
    let expected = [
        "select 1",
        "select ';'",
        "create procedure p() begin select 1; select 'it\\'s|'; end",
        "(select\n 3)",
        "select\n# inner\n 4",
    ];
    assert_eq!(statements(script).unwrap(), expected);
    assert!(statements("connect (a,localhost,root,,);\nselect 1;").is_none());
}
