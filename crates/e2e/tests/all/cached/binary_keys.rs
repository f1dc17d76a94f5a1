//! Keys of `bytea`: only changes of their own rows invalidate results over them.

use anyhow::{Result, bail, ensure};
use freshet_testbed::Settings;

use crate::support::frames::{Bound, bind, describe_portal, execute, parse, parse_typed, query, sync};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both, rest};

on_both!(results_go_with_their_own_rows);

const SCHEMA: &str = "
    create table u (id bytea primary key, name text);
    create table o (id int primary key, user_id bytea not null, total int);
    create index on o (user_id);";

const BYTEA: u32 = 17;
const ORDERS: u8 = 6;
/// Of nobody's results.
const UNUSED: u8 = 200;

/// No text in any encoding, with what would end a constant in it; some have zeros at their ends.
fn key(number: u8) -> Vec<u8> {
    let last = if number.is_multiple_of(2) { 0 } else { b' ' };
    vec![0xff, number, b'\'', b'\\', 0, 0xc3, 0x28, 0x80, b'"', 0, last, last]
}

fn constant(number: u8) -> String {
    let digits = key(number).iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02X}"));
    format!("'\\x{digits}'")
}

/// All that are read of a row, by its key.
fn conversations(number: u8) -> Vec<Vec<u8>> {
    let by_key = "select name from u where id = ";
    let text = |sql: &str| query(&sql.replace('$', &constant(number)));
    let bound = |parse: Vec<u8>, formats: &[i16], value: &[u8]| {
        let values = Bound { formats, values: &[Some(value)], results: &[] };
        [parse, bind("", "", values), describe_portal(""), execute("", 0), sync()].concat()
    };
    let (hex, escaped) = (constant(number).replace('\'', ""), escaped(number));
    let parameter = format!("{by_key}$1");
    vec![
        text("select name from u where id = $"),
        text("select name from u where id = $::bytea and name is not null"),
        text("select name from u where id in ($, '\\x')"),
        query(&format!("select id, name from u where id = '{}'", escaped.replace('\'', "''"))),
        bound(parse("", &parameter), &[1], &key(number)),
        bound(parse("", &parameter), &[0], hex.as_bytes()),
        bound(parse_typed("", &parameter, &[BYTEA]), &[0], escaped.as_bytes()),
        query(&format!("select o.id, o.total, u.name from o join u on u.id = o.user_id where o.id = {number}")),
        text("select count(*) from o join u on u.id = o.user_id where u.id = $"),
    ]
}

/// As `bytea_output = escape` spells it.
fn escaped(number: u8) -> String {
    let escape = |byte: &u8| match byte {
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\{byte:03o}"),
    };
    key(number).iter().map(escape).collect()
}

fn results_go_with_their_own_rows(version: Version) -> Result<()> {
    // Of its own: what other tests define flushes the cache.
    let database = Database::create(version.start(&Settings::default())?)?;
    let pair = Pair::over(database, SCHEMA, &["--admission", "always", "--refresh-share", "0"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut writer = pair.connect()?;
    for number in (1..=ORDERS).chain([UNUSED]) {
        let key = constant(number);
        writer.run(&format!("insert into u values ({key}, 'name'); insert into o values ({number}, {key}, 1)"))?;
    }
    let mut c = pair.connect()?;
    warm(&pair, &mut c)?;
    // Of tables that were never written to no keys are read.
    let unused = constant(UNUSED);
    writer
        .run(&format!("update u set name = '' where id = {unused}; update o set total = 7 where user_id = {unused}"))?;
    for written in [UNUSED, 3, 4] {
        warm(&pair, &mut c)?;
        // Once it is acknowledged, the results that it changes are invalidated.
        writer.run(&format!("update u set name = name || '!' where id = {}", constant(written)))?;
        for number in 1..=ORDERS {
            let [names @ .., _count] = &filled(&pair, &mut c, number)?[..] else { bail!("none") };
            ensure!(names.iter().all(|filled| *filled == (number == written)), "{written}: {number} {names:?}");
        }
        let mut count = |number| Ok::<_, anyhow::Error>(filled(&pair, &mut c, number)?.pop() == Some(true));
        writer.run(&format!("insert into o values (100 + {written}, {}, 1)", constant(written)))?;
        ensure!(written == UNUSED || count(written)?, "the count of {written} stays");
        ensure!(!count(1)?, "the count of another goes");
    }
    Ok(())
}

/// Asks until each is served from the cache.
fn warm(pair: &Pair, c: &mut RawClient) -> Result<()> {
    let all: Vec<Vec<u8>> = (1..=ORDERS).flat_map(conversations).collect();
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        for conversation in &all {
            let answer = c.exchange(conversation, 1)?;
            ensure!(answer.iter().all(|message| message.tag != b'E'), "{answer:?}");
        }
        let after = pair.freshet.metrics()?;
        let hits = after.hits() - before.hits();
        ensure!(hits == all.len() as u64, "{hits} of {}; {:?}", all.len(), after.passed_since(&before));
        rest();
        Ok(())
    })
}

/// Which of the statements have to be asked of the database again.
fn filled(pair: &Pair, c: &mut RawClient, number: u8) -> Result<Vec<bool>> {
    let one = |conversation: Vec<u8>| {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            c.exchange(&conversation, 1)?;
            let after = pair.freshet.metrics()?;
            let more = |name| after.count(name) > before.count(name);
            let (hit, filled) = (after.hits() > before.hits(), more("freshet_fills_total"));
            ensure!(hit || filled, "{:?}", after.passed_since(&before));
            Ok(filled)
        })
    };
    conversations(number).into_iter().map(one).collect()
}
