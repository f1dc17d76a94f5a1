//! The many ways to change a row in this family.

use crate::stress::changes::{Change, columns, name_of, owner_of, values};
use crate::stress::ledger::{KeyId, Row, Table};
use crate::stress::stage::Random;

/// What makes a new row: one statement, or two, for kin need a house first.
pub(crate) fn inserts(key: KeyId, row: Row, version: i32) -> Vec<String> {
    let insert = format!("insert into {} ({}) values ({})", name_of(key.0), columns(key.0), values(key, row, version));
    if key.0 == Table::Kin {
        return vec![format!("insert into house values ({}, {}, {version})", key.1, row.grp), insert];
    }
    vec![insert]
}

/// One of the ways to make this change: statements that are each a transaction of its own outside of one.
pub(crate) fn statements(change: &Change, random: &mut Random) -> Vec<String> {
    let (table, id) = change.key;
    let version = change.version;
    let way = random.below(7);
    let sql = match (way, table, change.row) {
        (_, Table::Kin, _) => return plain(change),
        (0, _, Some(row)) if can_replace(change) => upsert(change.key, row, version),
        (1, _, Some(row)) if can_replace(change) => replace(change.key, row, version),
        (2, Table::Item, Some(Row { grp, kind })) => format!("select put_item({id}, {grp}, {kind}, {version})"),
        (2, Table::Item, None) => format!("select cut_item({id})"),
        (2, Table::Part, Some(row)) => format!("call put_part({})", values(change.key, row, version)),
        (2, Table::Part, None) => format!("call cut_part({id})"),
        (3, Table::Part, None) => {
            format!("delete p from part p left join item i on i.id = p.item_id where p.id = {id}")
        }
        (3, Table::Part, Some(Row { grp, kind })) if change.now.is_some() => format!(
            "update part p left join item i on i.id = p.item_id set p.grp = {grp}, p.kind = {kind}, p.ver = {version} \
             where p.id = {id}"
        ),
        (4, _, Some(row)) if change.now.is_none() => {
            let (name, columns) = (name_of(table), columns(table));
            format!("insert into {name} ({columns}) select {}", values(change.key, row, version))
        }
        _ => return plain(change),
    };
    vec![sql]
}

fn plain(change: &Change) -> Vec<String> {
    let (table, id) = change.key;
    // What kin are is decided by their house; what sort they are does not change.
    let name = if table == Table::Kin { "house" } else { name_of(table) };
    let version = change.version;
    vec![match (change.now, change.row) {
        (_, None) => format!("delete from {name} where id = {id}"),
        (None, Some(row)) => return inserts(change.key, row, version),
        (Some(_), Some(Row { grp, .. })) if table == Table::Kin => {
            format!("update house set grp = {grp}, ver = {version} where id = {id}")
        }
        (Some(_), Some(Row { grp, kind })) => {
            format!("update {name} set grp = {grp}, kind = {kind}, ver = {version} where id = {id}")
        }
    }]
}

/// The key of `event` has the kind in it: with another kind there would be two rows.
fn can_replace(change: &Change) -> bool {
    match (change.key.0, change.now, change.row) {
        (Table::Kin, ..) => false,
        (Table::Event, Some(now), Some(row)) => now.kind == row.kind,
        _ => true,
    }
}

fn replace(key: KeyId, row: Row, version: i32) -> String {
    format!("replace into {} ({}) values ({})", name_of(key.0), columns(key.0), values(key, row, version))
}

fn upsert(key: KeyId, row: Row, version: i32) -> String {
    let insert = inserts(key, row, version).concat();
    format!("{insert} on duplicate key update grp = values(grp), kind = values(kind), ver = values(ver)")
}

/// One statement for several rows of one table that are all of one sort: all new, all gone or all changed; or for a row
/// and one of another table that belongs to it. None if there is no such statement.
pub(crate) fn together(changes: &[Change]) -> Option<String> {
    let first = changes.first()?;
    let table = first.key.0;
    if let [item, part] = changes
        && (item.key.0, part.key.0) == (Table::Item, Table::Part)
        && owner_of(part.key.1) == item.key.1
    {
        return both(item, part);
    }
    let name = name_of(table);
    let list = |of: &dyn Fn(&Change) -> String| changes.iter().map(of).collect::<Vec<_>>().join(", ");
    let same = |test: &dyn Fn(&Change) -> bool| changes.iter().all(|change| change.key.0 == table && test(change));
    if same(&|change| change.row.is_none()) {
        let name = if table == Table::Kin { "house" } else { name };
        return Some(format!("delete from {name} where id in ({})", list(&|change| change.key.1.to_string())));
    }
    if table == Table::Kin || !same(&|change| change.row.is_some()) {
        return None;
    }
    let row_of = |change: &Change| values(change.key, change.row.unwrap_or(Row { grp: 0, kind: 0 }), change.version);
    let into = format!("into {name} ({}) values {}", columns(table), list(&|change| format!("({})", row_of(change))));
    if same(&|change| change.now.is_none()) {
        return Some(format!("insert {into}"));
    }
    if same(&can_replace) {
        return Some(format!("replace {into}"));
    }
    if !same(&|change| change.now.is_some()) {
        return None;
    }
    let mut rows = changes.iter().map(|change| {
        let Row { grp, kind } = change.row.unwrap_or(Row { grp: 0, kind: 0 });
        format!("select {} as id, {grp} as grp, {kind} as kind, {} as ver", change.key.1, change.version)
    });
    let rows = rows.by_ref().collect::<Vec<_>>().join(" union all ");
    Some(format!("update {name} t join ({rows}) s on t.id = s.id set t.grp = s.grp, t.kind = s.kind, t.ver = s.ver"))
}

/// A row and a part of it.
fn both(item: &Change, part: &Change) -> Option<String> {
    let join = "item i join part p on p.item_id = i.id";
    let chosen = format!("where i.id = {} and p.id = {}", item.key.1, part.key.1);
    let set = |name: &str, change: &Change, row: Row| {
        format!("{name}.grp = {}, {name}.kind = {}, {name}.ver = {}", row.grp, row.kind, change.version)
    };
    if item.now.is_none() || part.now.is_none() {
        return None;
    }
    match (item.row, part.row) {
        (None, None) => Some(format!("delete i, p from {join} {chosen}")),
        (Some(row), Some(other)) => {
            Some(format!("update {join} set {}, {} {chosen}", set("i", item, row), set("p", part, other)))
        }
        _ => None,
    }
}

/// The statement with parameters for its numbers, and these.
pub(crate) fn with_parameters(sql: &str) -> (String, Vec<i32>) {
    let (mut text, mut numbers, mut digits) = (String::new(), Vec::new(), String::new());
    let mut in_word = false;
    // The space ends a number at the end.
    for next in sql.chars().chain([' ']) {
        if next.is_ascii_digit() && !in_word {
            digits.push(next);
            continue;
        }
        if !digits.is_empty() {
            // Only numbers of rows occur, and these are small.
            numbers.extend(digits.parse::<i32>());
            digits.clear();
            text.push('?');
        }
        in_word = next.is_alphanumeric() || next == '_';
        text.push(next);
    }
    (text, numbers)
}
