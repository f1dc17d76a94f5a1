//! Batches of one session, with errors at each place.

use anyhow::{Context, Result};

use super::random::count_ready;
use super::{SCHEMA, run, same};
use crate::pooling::postgres::shared;
use crate::support::frames::{
    bind_text, close_portal, close_statement, describe_statement, execute, flush, parse, parse_typed, query, sync,
};
use crate::support::{Version, on_both};

on_both!(conversations_are_the_same);

const INT4: u32 = 23;

/// What they are about, and their messages: see [`message`].
const CONVERSATIONS: &[(&str, &str)] = &[
    ("prepared and used", "s|X s 1|S"),
    ("in pipelined batches", "s|S|X s 1|S|X s 2|S"),
    ("a name twice", "s|S|s|X s 1|S|X s 2|S"),
    ("a name twice in a batch", "s|s|S|X s 2|S"),
    ("a name twice, then closed and used", "s|S|s|S|C s|X s 1|S|Q execute s"),
    ("a name twice, and wrong", "s|S|P s selec|S|X s 2|S"),
    ("closed", "s|C s|X s 1|S|X s 1|S"),
    ("closed and prepared again", "s|C s|P s select 7|X s|S"),
    ("another statement of a name", "s|S|C s|S|P s select 8|S|X s|S"),
    ("a wrong statement first", "P b selec|s|S|X s 1|S"),
    ("a wrong statement behind", "s|P b selec|S|X s 1|S"),
    ("an error first", "f|X f 0|s|S|X s 1|S"),
    ("an error behind", "s|f|X f 0|S|X s 1|S|X f 1|S"),
    ("closed behind an error", "s|S|f|X f 0|C s|S|X s 1|S"),
    ("closed before an error", "s|S|C s|f|X f 0|S|X s 1|S"),
    ("an unknown name", "X nobody|S|D nobody|S|s|S"),
    ("an unknown name is closed", "C nobody|p nobody|s|S"),
    ("too few values", "s|S|X s|S|X s 2|S"),
    ("a wrong value", "s|S|X s x|S|X s 2|S"),
    ("with types", "T t select $1|D t|X t 5|S"),
    ("in a block", "s|S|Q begin|X s 1|S|f|X f 0|S|X s 1|s|S|D s|S|Q rollback|X s 1|S"),
    ("prepared in a block that is rolled back", "Q begin|s|S|Q rollback|X s 2|S"),
    ("a block by its own statements", "P b begin|P r rollback|s|S|X b|S|f|X f 0|S|X r|S|X s 1|S"),
    ("flushed", "s|D s|H|B s 1|E|H|S"),
    ("a Query between", "s|X s 1|Q select 3|X s 1|S"),
    ("all are dropped", "s|S|Q discard all|X s 1|S|s|X s 1|S"),
    ("all are deallocated", "s|S|P  deallocate all|X |s|X s 2|S|X s 2|S"),
    ("dropped in a block in vain", "s|S|Q begin|Q discard all|Q rollback|X s 2|S"),
    ("deallocated among others", "s|S|Q select 1; deallocate all; select 2|X s 1|S|s|S"),
    ("one is deallocated", "s|S|Q deallocate s|X s 2|S|s|S"),
    ("closed behind an error, then deallocated", "s|S|f|X f 0|C s|S|Q deallocate s|X s 2|S"),
    ("executed by SQL", "s|S|Q execute s(2)|X s 1|S|C s|S|Q execute s(1)"),
    ("prepared by SQL", "Q prepare s as select 4|X s|S|s|S|C s|S|s|S|Q prepare s as select 5"),
    ("listed", "s|P z select 'z'|S|Q select name, statement, from_sql from pg_prepared_statements order by 1|X s 1|S"),
    ("an empty one", "P e |D e|X e|S"),
    ("a setting", "P w set work_mem = '1MB'|X w|S|Q show work_mem; reset work_mem"),
];

/// A kind, a name, and the rest; `s` and `f` prepare statements of these names.
fn message(text: &str) -> Vec<u8> {
    let mut parts = text.splitn(3, ' ');
    let (kind, name, rest) =
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let values: Vec<&str> = rest.split_ascii_whitespace().collect();
    match kind {
        "s" => parse("s", "select v from t where id = $1::int"),
        "f" => parse("f", "select 1 / $1::int"),
        "P" => parse(name, rest),
        "T" => parse_typed(name, rest, &[INT4]),
        "X" => run(name, &values),
        "B" => bind_text("", name, &values),
        "E" => execute("", 0),
        "C" => close_statement(name),
        "p" => close_portal(name),
        "D" => describe_statement(name),
        "H" => flush(),
        "S" => sync(),
        _ => query(text.trim_start_matches("Q ")),
    }
}

fn conversations_are_the_same(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    for (name, messages) in CONVERSATIONS {
        let bytes: Vec<u8> = messages.split('|').flat_map(message).collect();
        let ready = count_ready(&bytes);
        same(&pair, 1, &[(0, bytes, ready)]).with_context(|| (*name).to_owned())?;
    }
    Ok(())
}
