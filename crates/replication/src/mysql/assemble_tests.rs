//! Transactions that the servers of the other tests do not write, and event sequences that no server should write.

use freshet_types::{ChangeSet, TableNames};
use freshet_wire::mysql::binlog::MariadbGtid;

use super::*;

/// BEGIN, a table map with names, an insert and XID, as MySQL 8.0.15 wrote them.
const PAYLOAD: &str = "89a9026b02010000004a0000005502000008000e000000000000000700001d000000000000012000a04500000000060373746404\
    2d002d00ff0012ff006672657368657400424547494e89a9026b1301000000450000009e02000000005600000000000100076672657368657400016300\
    03030ff60478000502060101800203fcff0004070269640176016408010089a9026b1e010000002b000000cd02000000005600000000000100020003ff\
    0001000000036363637ffecd89a9026b10010000001b000000ec02000000002400000000000000";

#[derive(Default)]
struct NoColumns(TableNames);

impl Schemas for NoColumns {
    fn table(&self, schema: &str, name: &str) -> TableId {
        self.0.id(schema, name)
    }

    fn columns(&self, _: TableId) -> Option<Arc<[Arc<str>]>> {
        None
    }
}

fn assembler(name_case: u8) -> Assembler {
    Assembler::new(Arc::new(NoColumns::default()), name_case)
}

const GTID: Event<'_> = Event::Gtid { source: 1, number: 7 };

fn statement(sql: &str) -> Event<'_> {
    Event::Query(Query { schema: b"d", sql: sql.as_bytes().into() })
}

fn mariadb(flags: u8) -> Event<'static> {
    Event::MariadbGtid(MariadbGtid { sequence: 1, domain: 0, flags })
}

/// Processes the events; the last one must finish a transaction.
fn finished(assembler: &mut Assembler, events: Vec<Event<'_>>) -> Finished {
    let mut last = None;
    for event in events {
        assert_eq!(last, None, "a group that goes on");
        last = assembler.take(event, Lsn(100)).unwrap();
    }
    assert!(!assembler.in_group());
    last.unwrap()
}

fn changes(assembler: &mut Assembler, events: Vec<Event<'_>>) -> (ChangeSet, bool) {
    let commit = finished(assembler, events).commit.unwrap();
    assert_eq!(commit.end, Lsn(100));
    (commit.changes, commit.redefines)
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

#[test]
fn a_payload_is_its_transaction() {
    let events = unhex(PAYLOAD);
    let finished = finished(&mut assembler(0), vec![GTID, Event::Payload(Some(events.as_slice().into()))]);
    let commit = finished.commit.unwrap();
    assert_eq!((finished.gtid, commit.id), (Some((1, 7)), CommitId::Gtid { source: 1, number: 7 }));
    let ChangeSet::Rows(rows) = commit.changes else { panic!() };
    assert!(matches!(rows.as_slice(), [Change::Insert { .. }]), "{rows:?}");
    // A payload that is too large.
    assert_eq!(changes(&mut assembler(0), vec![GTID, Event::Payload(None)]), (ChangeSet::Everything, true));
    // Two transactions in one payload.
    let twice = [events.as_slice(), &events].concat();
    let mut two = assembler(0);
    two.take(GTID, Lsn(1)).unwrap();
    assert!(two.take(Event::Payload(Some(twice.into())), Lsn(1)).is_err());
}

#[test]
fn a_table_that_is_created_and_filled_is_one_group() {
    let mut mysql = assembler(0);
    let sql = "CREATE TABLE `t` (`a` int) START TRANSACTION";
    for start in [vec![GTID], vec![GTID, statement("BEGIN")]] {
        let events = start.into_iter().chain([statement(sql), Event::Xid]).collect();
        let (ChangeSet::Rows(rows), true) = changes(&mut mysql, events) else { panic!() };
        assert!(matches!(rows.as_slice(), [Change::Redefined { .. }]), "{rows:?}");
    }
}

#[test]
fn what_is_missing_or_too_much_is_a_fault() {
    let faults = |events: Vec<Event<'static>>| {
        let mut assembler = assembler(0);
        let last = events.into_iter().map(|event| assembler.take(event, Lsn(1))).last();
        matches!(last, Some(Err(_)))
    };
    assert!(faults(vec![Event::Xid]));
    assert!(faults(vec![statement("BEGIN")]));
    assert!(faults(vec![GTID, GTID]));
    assert!(faults(vec![GTID, Event::Rotate { offset: 4, file: b"binlog.000002" }]));
    assert!(faults(vec![mariadb(0), Event::PartialUpdate { table: 3 }]));
    assert!(faults(vec![mariadb(0), Event::XaPrepare { one_phase: false }]));
    assert!(faults(vec![Event::Incident]) && faults(vec![mariadb(0), Event::Incident]));
    assert!(faults(vec![Event::AnonymousGtid]) && faults(vec![Event::Unsupported("x")]));
    assert!(!faults(vec![Event::Stop]) && !faults(vec![Event::Information]));
}

#[test]
fn names_go_by_the_servers_case() {
    for (case, same) in [(0, false), (1, true)] {
        let mut mariadb_log = assembler(case);
        let mut table = |sql: &str| {
            let (ChangeSet::Rows(rows), false) = changes(&mut mariadb_log, vec![mariadb(1), statement(sql)]) else {
                panic!()
            };
            rows[0].table()
        };
        assert_eq!(table("TRUNCATE d.t") == table("TRUNCATE D.T"), same);
    }
    // Tables with an unknown id, and tables in the server's own schema.
    for (case, sql) in [(2, "TRUNCATE t"), (0, "TRUNCATE mysql.t"), (0, "ALTER TABLE mysql.t ADD a INT")] {
        let changed = changes(&mut assembler(case), vec![mariadb(1), statement(sql)]);
        assert_eq!(changed, (ChangeSet::Everything, true), "{sql}");
    }
}

#[test]
fn prepared_transactions_are_bounded() {
    let mut log = assembler(0);
    for at in 0..=PREPARED_MAX {
        let end = format!("XA END X'{at:04x}',X'',1");
        let group = vec![mariadb(0x40), statement(&end), Event::XaPrepare { one_phase: false }];
        assert_eq!(finished(&mut log, group).commit, None);
    }
    let commit = |at: usize| format!("XA COMMIT X'{at:04x}',X'',1");
    let mut changed = |at| changes(&mut log, vec![mariadb(1), statement(&commit(at))]);
    assert_eq!(changed(0), (ChangeSet::none(), false));
    assert_eq!(changed(0), (ChangeSet::Everything, true), "committed already");
    assert_eq!(changed(PREPARED_MAX), (ChangeSet::Everything, true), "one too many");
}
