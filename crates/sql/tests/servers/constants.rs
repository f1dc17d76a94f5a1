//! If the lexer takes a constant out of a text, the server reads the same bytes there.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use freshet_sql::{LiteralKind, lex};
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld};
use freshet_types::Dialect;

use crate::{Random, Server, Upstream, unhex};

/// A constant with some quoting, and the text that may be between constants.
fn odd_list(random: &mut Random) -> String {
    const PIECES: &[&str] = &[
        "a", "B", "é", "😀", "''", "\"\"", "'", "\"", "\\'", "\\\"", "\\\\", "\\n", "\\t", "\\r", "\\b", "\\0", "\\Z",
        "\\%", "\\_", "\\x", "\\é", "\\", "#", "-- ", "--", "/*", "*/", "/*!", ";", "`", "?", "$1", "\n", " ", "%",
        "_", "\u{1}",
    ];
    const BETWEEN: &[&str] = &[
        "", " ", "", "\n", "/* ' */", "/**/", "-- '\n", "--\t\"\n", "# ` '\n", "/*x**/", "/* /* */", "--\n", "/*''*/",
        "/*+ x */",
    ];
    const AROUND: &[&str] = &["N", "_utf8mb4", "x", "b", "5", "5.", "-", "--"];
    let mut text = String::new();
    for number in 0..=random.below(3) {
        if number > 0 {
            text += random.one_of(&[",", ",", ",", " , ", ""]);
        }
        text += random.one_of(BETWEEN);
        if random.below(8) == 0 {
            text += random.one_of(AROUND);
        }
        let quote = random.one_of(&["'", "'", "\""]);
        text += quote;
        (0..random.below(5)).for_each(|_| text += random.one_of(PIECES));
        text += quote;
        text += random.one_of(BETWEEN);
    }
    text
}

fn constants_are_read_alike(server: &Mysqld) -> Result<()> {
    let mut random = Random(0x5EED_0002);
    let mut asker = Server::new(Upstream::Mysql(server));
    asker.connection("utf8mb4", 0);
    let mut expected: HashMap<usize, (String, Vec<u8>)> = HashMap::new();
    let mut lists = 0;
    while lists < 8_000 {
        let list = odd_list(&mut random);
        let text = format!("HEX(CONCAT_WS(0x7C7C,{list}\n))");
        let lexed = lex(Dialect::MySql, &format!("SELECT {text}"));
        let plain = lexed.normalized.replace(' ', "");
        let Some((_, literals)) = lexed.literals.split_first() else { continue };
        let count = literals.len();
        let placeholders: Vec<String> = (2..count + 2).map(|number| format!(",${number}")).collect();
        let placeholders = placeholders.concat();
        lists += 1;
        let texts = literals.iter().all(|literal| literal.kind == LiteralKind::String);
        if !texts || count == 0 || plain != format!("selectHEX(CONCAT_WS($1{placeholders}))") {
            continue;
        }
        let values: Vec<&[u8]> = literals.iter().map(|literal| &*literal.text).collect();
        let question = asker.ask("ask_0", &text);
        expected.insert(question, (list, values.join(&b"||"[..])));
    }
    let answers = asker.answers()?;
    ensure!(answers.len() > 1_500 && expected.len() < answers.len() * 2, "{} of {}", answers.len(), expected.len());
    for (question, answer) in &answers {
        let (list, values) = expected.get(question).context("no such question")?;
        let read = unhex(answer).unwrap_or_default();
        ensure!(
            read == *values,
            "{list}\nserver {:?}\nhere   {:?}",
            String::from_utf8_lossy(&read),
            String::from_utf8_lossy(values)
        );
    }
    eprintln!("{} lists, {} plain, {} answers", lists, expected.len(), answers.len());
    Ok(())
}

#[test]
fn constants_are_read_as_mariadb_reads_them() -> Result<()> {
    constants_are_read_alike(&*Mariadb::start(&MysqlSettings::default())?)
}

#[test]
fn constants_are_read_as_mysql_reads_them() -> Result<()> {
    constants_are_read_alike(&*Mysql::start(&MysqlSettings::default())?)
}
