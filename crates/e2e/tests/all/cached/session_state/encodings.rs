//! Client encodings: results are cached in the client's own encoding, and found again by ASCII statements.

use anyhow::{Result, ensure};

use super::{Twins, each, pair_of};
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Version, on_both, rest};

on_both!(
    results_in_other_encodings,
    parameters_in_other_encodings,
    changes_reach_other_encodings,
    characters_that_an_encoding_lacks,
    settings_that_differ_in_a_letter,
);

const SCHEMA: &str = "create table word (id int primary key, latin text, japanese text, plain text);
    insert into word values (1, 'é ü ß', '日本語 表', 'abc'), (2, 'ñ', 'ソ', 'def'), (3, 'café', '能', 'tab')";

const LATIN: &str = "select id, latin from word where id = 1";
const JAPANESE: &str = "select id, japanese from word where id < 3 order by id";

const ENCODINGS: &[(&str, &str)] = &[
    ("latin1", LATIN),
    ("latin9", LATIN),
    ("win1252", LATIN),
    ("sjis", JAPANESE),
    ("euc_jp", JAPANESE),
    ("shift_jis_2004", JAPANESE),
    ("sql_ascii", JAPANESE),
    ("utf8", JAPANESE),
];

fn results_in_other_encodings(version: Version) -> Result<()> {
    let pair = pair_of(version, SCHEMA)?;
    let mut twins = Twins::new(&pair)?;
    each(ENCODINGS, |(encoding, read)| {
        twins.run(&[&format!("set client_encoding = '{encoding}'")])?;
        twins.new_key(read)?;
        let plain = "select id, plain from word where plain = 'abc'";
        twins.new_key(plain)?;
        twins.fills_until_hit(
            &[unnamed("select latin is null, plain from word where id = $1", &["2"]), sync()].concat(),
        )?;
        Ok(())
    })?;
    each(ENCODINGS, |(encoding, read)| {
        twins.run(&[&format!("set names '{encoding}'")])?;
        twins.known_key(read)
    })
}

/// What is equal to a value in another encoding is found or passed, but never taken for something else.
fn parameters_in_other_encodings(version: Version) -> Result<()> {
    let pair = pair_of(version, SCHEMA)?;
    let mut twins = Twins::new(&pair)?;
    let values: [&[u8]; 8] = [
        b"caf\xe9",        // latin1, win1252
        "café".as_bytes(), // UTF-8
        b"\x83\x5c",       // SJIS, ending in a backslash
        b"\x94\x5c",       // the same, another character
        b"\xa5\xbd",       // EUC
        b"tab",
        b"\\",
        b"~",
    ];
    for (encoding, _) in ENCODINGS {
        twins.run(&[&format!("set client_encoding = '{encoding}'")])?;
        for value in values {
            for column in ["latin", "japanese", "plain"] {
                let bound = crate::support::frames::Bound { values: &[Some(value)], ..Default::default() };
                let sql = format!("select id from word where {column} = $1");
                let all = [
                    crate::support::frames::parse("", &sql),
                    crate::support::frames::bind("", "", bound),
                    crate::support::frames::execute("", 0),
                    sync(),
                ];
                twins.exchange(&all.concat(), 1)?;
                twins.exchange(&all.concat(), 1)?;
                // As a literal.
                let text = [b"select id from word where ", column.as_bytes(), b" = '", value, b"'\0"].concat();
                twins.exchange(&crate::support::frames::frame(b'Q', &text), 1)?;
                twins.exchange(&crate::support::frames::frame(b'Q', &text), 1)?;
            }
        }
    }
    Ok(())
}

/// A commit invalidates the results for other encodings too, also if the value in the query is not ASCII.
fn changes_reach_other_encodings(version: Version) -> Result<()> {
    let pair = pair_of(version, SCHEMA)?;
    let mut clients = Vec::new();
    for encoding in ["latin1", "win1252", "utf8"] {
        let mut twins = Twins::new(&pair)?;
        twins.run(&[&format!("set client_encoding = '{encoding}'")])?;
        let cafe: &[u8] = if encoding == "utf8" { "café".as_bytes() } else { b"caf\xe9" };
        let by_value = [
            crate::support::frames::parse("", "select id, plain from word where latin = $1"),
            crate::support::frames::bind(
                "",
                "",
                crate::support::frames::Bound { values: &[Some(cafe)], ..Default::default() },
            ),
            crate::support::frames::execute("", 0),
            sync(),
        ]
        .concat();
        for _ in 0..4 {
            twins.exchange(&by_value, 1)?;
        }
        twins.fills_until_hit(&by_value)?;
        twins.fills_until_hit(&query(LATIN))?;
        clients.push((twins, by_value));
    }
    pair.database
        .run("update word set plain = 'changed' where latin = 'café'; update word set latin = 'ö' where id = 1")?;
    rest();
    for (twins, by_value) in &mut clients {
        twins.exchange(by_value, 1)?;
        twins.exchange(&query(LATIN), 1)?;
        ensure!(twins.through.heard.iter().any(|m| m.tag == b'D'), "no row");
    }
    Ok(())
}

fn characters_that_an_encoding_lacks(version: Version) -> Result<()> {
    let pair = pair_of(version, SCHEMA)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(JAPANESE)?;
    twins.run(&["set client_encoding = 'latin1'"])?;
    for _ in 0..3 {
        twins.exchange(&query(JAPANESE), 1)?;
        ensure!(twins.through.heard.iter().any(|m| m.field(b'C').as_deref() == Some("22P05")), "no error");
        crate::support::rest();
    }
    twins.run(&["reset client_encoding"])?;
    twins.known_key(JAPANESE)
}

/// Two sessions whose settings differ only in a letter that is no ASCII: in their encoding it is no UTF-8 either.
fn settings_that_differ_in_a_letter(version: Version) -> Result<()> {
    let schemas = "create schema \"sé\"; create schema \"sè\";
        create table town (id int primary key, name text, v int); insert into town values (1, 'running towns', 1);
        create table \"sé\".town (id int primary key, name text, v int); insert into \"sé\".town values (1, 'a', 2);
        create table \"sè\".town (id int primary key, name text, v int); insert into \"sè\".town values (1, 'b', 3);
        create text search configuration \"cé\" (copy = simple); create text search configuration \"cè\" (copy = english);";
    let pair = pair_of(version, schemas)?;
    let (mut acute, mut grave) = (Twins::new(&pair)?, Twins::new(&pair)?);
    let (read, searched) = ("select v from town where id = 1", "select to_tsvector(name) from town where id = 1");
    for (twins, letter) in [(&mut acute, "e9"), (&mut grave, "e8")] {
        let configured = format!("select set_config('default_text_search_config', U&'public.c\\00{letter}', false)");
        twins.run(&["set client_encoding = 'latin1'", &configured])?;
        twins.new_key(searched)?;
        twins.new_key(read)?;
        twins.run(&[&format!("select set_config('search_path', U&'s\\00{letter}, public', false)")])?;
        twins.passes(read, "setting")?;
    }
    pair.database.run("update \"sé\".town set v = 4; update \"sè\".town set v = 5; update town set v = 6")?;
    for twins in [&mut acute, &mut grave] {
        twins.passes(read, "setting")?;
        twins.run(&["set client_encoding = 'utf8'"])?;
        twins.new_key(read)?;
    }
    Ok(())
}
