//! Row images from the messages of the stream.

use super::*;
use freshet_types::{ChangeSet, Lsn};
use freshet_wire::postgres::pgoutput::{Begin, Column};

fn column(key: bool, name: &'static str) -> Column<'static> {
    Column { key, name, type_oid: 25, type_modifier: -1 }
}

fn described(identity: u8, columns: Vec<Column<'static>>) -> Message<'static> {
    Message::Relation(pgoutput::Relation { oid: 7, schema: "s", name: "t", replica_identity: identity, columns })
}

fn begin() -> Message<'static> {
    Message::Begin(Begin { commit: Lsn(10), time_us: 0, xid: 5 })
}

fn commit() -> Message<'static> {
    Message::Commit(pgoutput::Commit { commit: Lsn(10), end: Lsn(20), time_us: 0 })
}

/// The changes of one transaction on a table with the columns `id` (key), `a` and `b`.
fn changes(identity: u8, messages: Vec<Message<'_>>) -> Result<Vec<Change>, Fault> {
    let all_key = identity == b'f';
    let columns = vec![column(true, "id"), column(all_key, "a"), column(all_key, "b")];
    let mut assembler = Assembler::default();
    assembler.take(begin())?;
    assembler.take(described(identity, columns))?;
    for message in messages {
        assembler.take(message)?;
    }
    let commit = assembler.take(commit())?.ok_or(Fault::OutOfOrder("no commit"))?;
    assert_eq!((commit.id, commit.end), (CommitId::Xid(5), Lsn(20)));
    match commit.changes {
        ChangeSet::Rows(rows) => Ok(rows),
        ChangeSet::Everything => Err(Fault::OutOfOrder("everything")),
    }
}

fn text(text: &'static str) -> Value<'static> {
    Value::Text(text.as_bytes())
}

fn cell(text: &str) -> Cell {
    Cell::Text(text.as_bytes().into())
}

/// Both images of one update.
fn update(identity: u8, old: Option<OldTuple<'_>>, new: Tuple<'_>) -> (Row, Row) {
    let changes = changes(identity, vec![Message::Update { relation: 7, old, new }]);
    match changes.as_deref() {
        Ok([Change::Update { old, new, .. }]) => (old.clone(), new.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_an_old_row_the_key_is_known_to_be_unchanged() {
    let (old, new) = update(b'd', None, vec![text("1"), text("x"), Value::Unchanged]);
    assert_eq!(*old, [cell("1"), Cell::Absent, Cell::Absent]);
    assert_eq!(*new, [cell("1"), cell("x"), Cell::Unchanged]);
    // With an unknown kind of identity nothing may be inferred.
    let (old, _) = update(b'f', None, vec![text("1"), text("x"), Value::Null]);
    assert_eq!(*old, [Cell::Absent, Cell::Absent, Cell::Absent]);
}

#[test]
fn a_key_row_says_nothing_of_other_columns() {
    let key = OldTuple::Key(vec![text("1"), Value::Null, Value::Null]);
    let (old, new) = update(b'i', Some(key.clone()), vec![text("2"), Value::Null, Value::Unchanged]);
    assert_eq!(*old, [cell("1"), Cell::Absent, Cell::Absent]);
    assert_eq!(*new, [cell("2"), Cell::Null, Cell::Unchanged]);
    let changes = changes(b'i', vec![Message::Delete { relation: 7, old: key }]);
    let Ok([Change::Delete { old, .. }]) = changes.as_deref() else { panic!("{changes:?}") };
    assert_eq!(**old, [cell("1"), Cell::Absent, Cell::Absent]);
}

#[test]
fn a_full_row_fills_in_what_did_not_change() {
    let full = OldTuple::Full(vec![text("1"), Value::Null, text("big")]);
    let (old, new) = update(b'f', Some(full), vec![text("1"), text("x"), Value::Unchanged]);
    assert_eq!(*old, [cell("1"), Cell::Null, cell("big")]);
    assert_eq!(*new, [cell("1"), cell("x"), cell("big")]);
}

#[test]
fn a_changed_description_touches_the_whole_table() {
    let mut assembler = Assembler::default();
    let columns = vec![column(true, "id"), column(false, "a")];
    let mut transaction = |columns: Vec<Column<'static>>| {
        let row = vec![text("1"); columns.len()];
        assembler.take(begin()).expect("begin");
        assembler.take(described(b'd', columns)).expect("relation");
        assembler.take(Message::Insert { relation: 7, new: row }).expect("insert");
        assembler.take(commit()).expect("commit").expect("a commit").changes
    };
    let one_row = |set: &ChangeSet| matches!(set, ChangeSet::Rows(rows) if matches!(**rows, [Change::Insert { .. }]));
    assert!(one_row(&transaction(columns.clone())));
    assert!(one_row(&transaction(columns.clone())), "the same description again");
    let changed = transaction(vec![column(true, "id"), column(true, "a")]);
    assert_eq!(changed, ChangeSet::Rows(vec![Change::AnyRow(TableId(7))]));
}

#[test]
fn truncate_touches_each_table() {
    let truncate = Message::Truncate { relations: vec![8, 9], cascade: false, restart_identity: false };
    let changes = changes(b'd', vec![truncate]).expect("changes");
    assert_eq!(changes, [Change::AnyRow(TableId(8)), Change::AnyRow(TableId(9))]);
}

#[test]
fn messages_to_others_change_nothing() {
    let logical = Message::Logical { transactional: true, lsn: Lsn(1), prefix: "p", content: b"c" };
    let origin = Message::Origin { commit: Lsn(1), name: b"o" };
    let changes = changes(b'd', vec![origin, Message::Type { oid: 1, schema: "s", name: "n" }, logical]);
    assert_eq!(changes.expect("changes"), []);
}

#[test]
fn what_is_out_of_order_is_a_fault() {
    let insert = |values: Vec<Value<'static>>| Message::Insert { relation: 7, new: values };
    assert!(changes(b'd', vec![begin()]).is_err(), "a transaction in a transaction");
    assert!(changes(b'd', vec![insert(vec![text("1")])]).is_err(), "too few columns");
    assert!(changes(b'd', vec![insert(vec![text("1"); 4])]).is_err(), "too many columns");
    assert!(changes(b'd', vec![insert(vec![Value::Binary(b"1"); 3])]).is_err(), "binary");
    let unknown = Message::Insert { relation: 8, new: vec![] };
    assert!(changes(b'd', vec![unknown]).is_err(), "a table that was not described");
    let mut assembler = Assembler::default();
    assert!(assembler.take(commit()).is_err(), "Commit without Begin");
    let truncate = Message::Truncate { relations: vec![8], cascade: false, restart_identity: false };
    assert!(assembler.take(truncate).is_err(), "a change outside a transaction");
    assembler.take(begin()).expect("begin");
    assert!(assembler.in_transaction());
    let other = Message::Commit(pgoutput::Commit { commit: Lsn(11), end: Lsn(20), time_us: 0 });
    assert!(assembler.take(other).is_err(), "Commit of another transaction");
}

#[test]
fn large_values_coarsen_too() {
    let big = vec![b'x'; crate::transaction_changes::TRANSACTION_BYTES_MAX / 4];
    let row = || vec![text("1"), Value::Text(&big), Value::Null];
    let insert = || Message::Insert { relation: 7, new: row() };
    let messages = vec![insert(), insert(), insert(), insert(), insert(), insert()];
    assert_eq!(changes(b'd', messages).expect("changes"), [Change::AnyRow(TableId(7))]);
    assert_eq!(changes(b'd', vec![insert(), insert()]).expect("changes").len(), 2);
}

#[test]
fn ddl_belongs_to_its_transaction() {
    let ddl = |content: &'static [u8]| Message::Logical {
        transactional: true,
        lsn: Lsn(1),
        prefix: crate::postgres::triggers::PREFIX,
        content,
    };
    let transaction = |messages: Vec<Message<'static>>| {
        let mut assembler = Assembler::default();
        assembler.take(begin()).expect("begin");
        for message in messages {
            assert_eq!(assembler.take(message).expect("a message"), None);
        }
        assembler.take(commit()).expect("commit").expect("a commit")
    };
    let commit = transaction(vec![ddl(b"1 7 film\0"), ddl(b"1 7 film\0")]);
    let redefined = Change::Redefined { table: TableId(7), name: "film".into() };
    assert_eq!((commit.redefines, commit.changes), (true, ChangeSet::Rows(vec![redefined.clone()])));
    // The name remains when the changes become coarse.
    let truncate = Message::Truncate { relations: vec![7], cascade: false, restart_identity: false };
    let commit = transaction(vec![truncate, ddl(b"1 7 film\0")]);
    assert_eq!(commit.changes, ChangeSet::Rows(vec![Change::AnyRow(TableId(7)), redefined]));
    let commit = transaction(vec![ddl(b"1 *"), ddl(b"1 7 film\0")]);
    assert_eq!((commit.redefines, commit.changes), (true, ChangeSet::Everything));
    let commit = transaction(vec![]);
    assert_eq!((commit.redefines, commit.changes), (false, ChangeSet::none()));
    // Outside a transaction it is not Freshet's message.
    let stray = Message::Logical {
        transactional: false,
        lsn: Lsn(1),
        prefix: crate::postgres::triggers::PREFIX,
        content: b"1 *",
    };
    assert_eq!(Assembler::default().take(stray).expect("a message"), None);
    assert!(Assembler::default().take(ddl(b"1 *")).is_err(), "a change outside a transaction");
}

#[test]
fn a_transaction_of_a_million_rows_is_held_in_bounded_memory() {
    let mut assembler = Assembler::default();
    assembler.take(begin()).unwrap();
    assembler.take(described(b'f', vec![column(true, "id"), column(true, "a")])).unwrap();
    for number in 0..1_000_000u32 {
        let id = number.to_string();
        assembler.take(Message::Insert { relation: 7, new: vec![Value::Text(id.as_bytes()), text("x")] }).unwrap();
        if number % 1_000 == 0 {
            assert!(assembler.open().unwrap().changes.rows() <= ChangeSet::ROWS_MAX, "{number}");
        }
    }
    let changes = assembler.take(commit()).unwrap().unwrap().changes;
    assert_eq!(changes, ChangeSet::Rows(vec![Change::AnyRow(TableId(7))]));
}
