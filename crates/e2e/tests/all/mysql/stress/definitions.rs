//! Definitions that change while they are read: views, names, columns, partitions, foreign keys, privileges. Each has a version that an answer shows,
//! and that is checked with the ledger like the version of a row.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::line::{Line, gives_way};
use super::stage::{Place, Stage};
use crate::mysql::support::Kind;
use crate::stress::definition::{NO_ROW, Shows, always, key_of, shown};
use crate::stress::ledger::{Seen, Span, Table};
use crate::stress::line::Trouble;
use crate::stress::stage::{Cast, Random};

const READERS: usize = 5;
const WRITERS: usize = 2;
/// Errors of a missing right to a table, or to a column.
const RIGHTS: [&str; 2] = ["1142", "1143"];
/// No such database, table, column; definition changed, prepare again; needs to be prepared again; deadlock; invalid view.
const MOVED: [&str; 7] = ["1049", "1146", "1054", "1412", "1615", "1213", "1356"];

/// Statements are divided by semicolons, and each is sent alone.
struct Subject {
    set_up: &'static str,
    /// Who reads; the account with all privileges if empty.
    user: &'static str,
    read: &'static str,
    shows: Shows,
    /// What makes the n-th version; `#` is n. The first is for even ones, the second for odd ones.
    change: [&'static str; 2],
}

const PLAIN: Subject = Subject { set_up: "", user: "", read: "", shows: Shows::Value, change: ["", ""] };

static SUBJECTS: [Subject; 14] = [
    Subject {
        set_up: "create table seen (id int primary key); insert into seen values (1);
            create view v as select 0 as n from seen where id = 1",
        read: "select n from v",
        change: always("create or replace view v as select # as n from seen where id = 1"),
        ..PLAIN
    },
    Subject {
        set_up: "create table swap (id int primary key, n int not null); insert into swap values (1, 0)",
        read: "select n from swap where id = 1",
        change: always(
            "create table swap_next like swap; insert into swap_next values (1, #);
            rename table swap to swap_old, swap_next to swap; drop table swap_old",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create table again (id int primary key, n int not null); insert into again values (1, 0)",
        read: "select n from again where id = 1",
        shows: Shows::ValueOrNothing,
        change: always(
            "drop table again; create table again (id int primary key, n int not null); insert into again values (1, #)",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create database other_#; create table other_#.t (id int primary key, n int not null);
            insert into other_#.t values (1, 0)",
        read: "select n from other_#.t where id = 1",
        shows: Shows::ValueOrNothing,
        change: always(
            "drop database other_0; create database other_0; create table other_0.t (id int primary key, n int not null);
            insert into other_0.t values (1, #)",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create table wide (id int primary key, n int not null); insert into wide values (1, 0)",
        read: "select n from wide where id = 1",
        change: [
            "alter table wide modify n bigint not null; update wide set n = # where id = 1",
            "alter table wide modify n int not null after id; update wide set n = # where id = 1",
        ],
        ..PLAIN
    },
    Subject {
        set_up: "create table col (id int primary key, n int not null); insert into col values (1, 0)",
        read: "select n from col where id = 1",
        change: always("alter table col drop column n, add column n int not null default #"),
        ..PLAIN
    },
    Subject {
        set_up: "create table names (id int primary key, n int, m int); insert into names values (1, 0, 0)",
        read: "select n from names where id = 1",
        change: always("update names set m = # where id = 1; alter table names change n m int, change m n int"),
        ..PLAIN
    },
    Subject {
        // Rows by position: what comes before the predicate's column moves it.
        set_up: "create table moves (a int not null, id int primary key, n int not null); insert into moves values (7, 1, 0)",
        read: "select n from moves where id = 1",
        change: [
            "alter table moves add column a int not null default 7 first; update moves set n = # where id = 1",
            "alter table moves drop column a; update moves set n = # where id = 1",
        ],
        ..PLAIN
    },
    Subject {
        set_up: "create table secret (id int primary key, n int not null); insert into secret values (1, 0);
            grant select on secret to clerk",
        user: "clerk",
        read: "select n from secret where id = 1",
        shows: Shows::Refusal,
        change: ["grant select on secret to clerk", "revoke select on secret from clerk"],
    },
    Subject {
        set_up: "create table club (id int primary key, n int not null); insert into club values (1, 0);
            grant select on club to readers",
        user: "member",
        read: "select n from club where id = 1",
        shows: Shows::Refusal,
        change: ["grant select on club to readers", "revoke select on club from readers"],
    },
    Subject {
        set_up: "create table parted (id int, n int not null, primary key (id))
                partition by list (id) (partition p values in (1), partition q values in (2));
            insert into parted values (1, 0);
            create table side (id int, n int not null, primary key (id)); insert into side values (1, 0)",
        read: "select n from parted where id = 1",
        change: always("update side set n = #; alter table parted exchange partition p with table side"),
        ..PLAIN
    },
    Subject {
        set_up: "create table dropped (id int, n int not null, primary key (id, n))
                partition by list (n) (partition even values in (0), partition odd values in (1));
            insert into dropped values (1, 0), (1, 1)",
        read: "select n from dropped where id = 1",
        shows: Shows::Rows,
        change: [
            "alter table dropped drop partition odd;
            alter table dropped add partition (partition odd values in (1)); insert into dropped values (1, 1)",
            "alter table dropped truncate partition odd",
        ],
        ..PLAIN
    },
    Subject {
        // A change of the parent changes the child, but only since there is a foreign key.
        set_up: "create table parent (id int primary key, n int not null, key (id, n)); insert into parent values (1, 0);
            create table child (id int primary key, n int not null, key (id, n)); insert into child values (1, 0);
            alter table child add constraint child_of foreign key (id, n) references parent (id, n) on update cascade",
        read: "select n from child where id = 1",
        change: always(
            "alter table child drop foreign key child_of;
            alter table child add constraint child_of foreign key (id, n) references parent (id, n) on update cascade;
            update parent set n = # where id = 1",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create table follows (id int primary key, n int not null); insert into follows values (1, 0);
            create table leads (id int primary key, n int not null); insert into leads values (1, 0);
            create trigger leads_on after update on leads for each row update follows set n = new.n where id = new.id",
        read: "select n from follows where id = 1",
        change: always(
            "drop trigger leads_on;
            create trigger leads_on after update on leads for each row update follows set n = new.n where id = new.id;
            update leads set n = # where id = 1",
        ),
        ..PLAIN
    },
];

/// Makes the accounts and tables.
pub(crate) fn set_up(place: &Place) -> Result<()> {
    let accounts = accounts(place.kind, &place.database.name, place.server().password());
    place.run(accounts.iter().map(String::as_str))?;
    for subject in &SUBJECTS {
        let set_up = subject.set_up.replace('#', "0");
        place.run(set_up.split(';').map(str::trim))?;
    }
    Ok(())
}

/// Lets the sessions come on.
pub(crate) fn join<'scope>(cast: &mut Cast<'scope, '_>, stage: &'scope Stage, mut random: Random) -> Result<()> {
    for _ in &SUBJECTS {
        stage.ledger().insert(Table::Definition, Some(NO_ROW));
    }
    for number in 0..WRITERS {
        let direct = stage.connect(false, None, &mut random)?;
        let through = stage.connect(true, None, &mut random)?;
        let writer = Writer { direct, through, random: random.fork(), number };
        cast.add("a writer of definitions", move || writer.run(stage));
    }
    for _ in 0..READERS {
        let mut session = |user: &'static str| -> Result<_, Trouble> {
            let line = stage.connect(true, (!user.is_empty()).then_some(user), &mut random)?;
            Ok((user, line, Seen::default()))
        };
        let sessions = [session("")?, session("clerk")?, session("member")?];
        let reader = Reader { sessions, random: random.fork() };
        cast.add("a reader of definitions", move || reader.run(stage));
    }
    Ok(())
}

/// `clerk` has privileges of its own; `member` has those of a role.
fn accounts(kind: Kind, database: &str, password: &str) -> Vec<String> {
    let identified = match kind {
        Kind::Mariadb => format!("identified by '{password}'"),
        Kind::Mysql => format!("identified with mysql_native_password by '{password}'"),
    };
    let role = match kind {
        Kind::Mariadb => "set default role readers for member",
        Kind::Mysql => "set default role readers to member",
    };
    let mut statements = vec![
        format!("create user clerk {identified}"),
        format!("create user member {identified}"),
        "create role readers".into(),
        "grant readers to member".into(),
        role.into(),
    ];
    for user in ["clerk", "member"] {
        // Something in the database, so that they may log in to it.
        statements.push(format!("grant create temporary tables on {database}.* to {user}"));
    }
    statements
}

struct Writer {
    direct: Line,
    through: Line,
    random: Random,
    number: usize,
}

impl Writer {
    fn run(mut self, stage: &Stage) -> Result<()> {
        while !stage.is_over() {
            let mine = (self.number..SUBJECTS.len()).step_by(WRITERS);
            let at = mine.clone().nth(self.random.below(mine.len() as u64) as usize).unwrap_or(self.number);
            self.change(stage, at)?;
            self.random.nap(700);
        }
        Ok(())
    }

    fn change(&mut self, stage: &Stage, at: usize) -> Result<()> {
        let (subject, key) = (&SUBJECTS[at], key_of(at));
        let through = self.random.percent(50);
        let version = stage.ledger().write(key, Some(NO_ROW), through);
        stage.begin(&[key]);
        let change = subject.change[usize::from(version % 2 != 0)].replace('#', &version.to_string());
        let line = if through { &mut self.through } else { &mut self.direct };
        for sql in change.replace("other_#", "other_0").split(';').map(str::trim) {
            // A session that waits for a table's lock may be the victim of a deadlock: then it tries again.
            while let Err(trouble) = line.simple(sql) {
                let again = gives_way(&trouble) && !stage.is_over();
                ensure!(again, "{sql}: {trouble}");
            }
        }
        stage.acknowledge(&[key]);
        Ok(())
    }
}

struct Reader {
    sessions: [(&'static str, Line, Seen); 3],
    random: Random,
}

impl Reader {
    fn run(mut self, stage: &Stage) -> Result<()> {
        while !stage.is_over() {
            let at = self.random.below(SUBJECTS.len() as u64) as usize;
            let subject = &SUBJECTS[at];
            let read = subject.read.replace('#', "0");
            let prepared = self.random.percent(30);
            let (_, line, seen) = self.sessions.iter_mut().find(|s| s.0 == subject.user).expect("a known user");
            let asked = Instant::now();
            let outcome = if prepared { line.execute_once(&read, &[]) } else { line.simple(&read) };
            let span = Span { asked, answered: Instant::now(), snapshot: false };
            if let Some(shown) = shown((&read, subject.shows), outcome, &RIGHTS, &MOVED)? {
                stage.check_definition(at, (&read, subject.shows), &shown, (span, seen));
            }
            self.random.nap(12);
        }
        Ok(())
    }
}

/// When nothing changes any more, every answer is the last version.
pub(crate) fn compare_at_rest(stage: &Stage, random: &mut Random) -> Result<()> {
    for (at, subject) in SUBJECTS.iter().enumerate() {
        let user = (!subject.user.is_empty()).then_some(subject.user);
        let mut line = stage.connect(true, user, random)?;
        let (version, _) = stage.ledger().latest(key_of(at));
        for time in 1..=2 {
            let read = subject.read.replace('#', "0");
            let shown = shown((&read, subject.shows), line.simple(&read), &RIGHTS, &MOVED)?;
            if !shown.as_ref().is_some_and(|shown| shown.fits(subject.shows, version)) {
                stage.violated(format!("at rest, time {time}: {read}\n  answered {shown:?}\n  in version {version}"));
            }
        }
    }
    Ok(())
}
