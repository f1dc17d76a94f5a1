//! Definitions that change while they are read: views, names, types, partitions, privileges. Each has a version that an answer shows, and that is
//! checked with the ledger like the version of a row.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::ledger::{KeyId, Row, Seen, Span, Table};
use super::line::{Answer, Line, Trouble};
use super::stage::{Cast, Random, Stage};

const READERS: usize = 5;
const WRITERS: usize = 2;

/// How an answer tells the version.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tells {
    /// It is the value.
    Value,
    /// Odd ones are refused.
    Refusal,
    /// Odd ones show one row, the others two.
    Rows,
}

struct Subject {
    set_up: &'static str,
    /// Who reads; the superuser if empty.
    user: &'static str,
    read: &'static str,
    tells: Tells,
    /// What makes the n-th version; `#` is n. The first is for even ones, the second for odd ones.
    change: [&'static str; 2],
    /// Not in the change stream even with event triggers: roles are polled.
    polled: bool,
}

const PLAIN: Subject = Subject { set_up: "", user: "", read: "", tells: Tells::Value, change: ["", ""], polled: false };

/// A change that is the same for all versions.
const fn always(change: &'static str) -> [&'static str; 2] {
    [change, change]
}

static SUBJECTS: [Subject; 13] = [
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
            "create table swap_next (id int primary key, n int not null); insert into swap_next values (1, #);
            drop table if exists swap_old; alter table swap rename to swap_old; alter table swap_next rename to swap",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create table again (id int primary key, n int not null); insert into again values (1, 0)",
        read: "select n from again where id = 1",
        change: always(
            "drop table again; create table again (id int primary key, n int not null);
            insert into again values (1, #)",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create table wide (id int primary key, n int not null); insert into wide values (1, 0)",
        read: "select n from wide where id = 1",
        change: ["alter table wide alter n type int using #", "alter table wide alter n type bigint using #"],
        ..PLAIN
    },
    Subject {
        set_up: "create table col (id int primary key, n int not null); insert into col values (1, 0)",
        read: "select n from col where id = 1",
        change: always("alter table col drop n; alter table col add n int not null default #"),
        ..PLAIN
    },
    Subject {
        set_up: "create table names (id int primary key, n int, m int); insert into names values (1, 0, 0)",
        read: "select n from names where id = 1",
        change: always(
            "update names set m = #; alter table names rename n to t; alter table names rename m to n;
            alter table names rename t to m",
        ),
        ..PLAIN
    },
    Subject {
        set_up: "create role clerk login; create table secret (id int primary key, n int not null);
            insert into secret values (1, 0); grant select on secret to clerk",
        user: "clerk",
        read: "select n from secret where id = 1",
        tells: Tells::Refusal,
        change: ["grant select on secret to clerk", "revoke select on secret from clerk"],
        ..PLAIN
    },
    Subject {
        set_up: "create table guarded (id int primary key, n int not null); grant select on guarded to clerk;
            insert into guarded values (1, 0), (2, 0); create policy first on guarded using (id = 1)",
        user: "clerk",
        read: "select n from guarded where n = 0",
        tells: Tells::Rows,
        change: ["alter table guarded disable row level security", "alter table guarded enable row level security"],
        ..PLAIN
    },
    Subject {
        set_up: "create table basis (id int primary key, n int not null); insert into basis values (1, 0);
            create materialized view fresh as select n from basis",
        read: "select n from fresh",
        change: always("update basis set n = #; refresh materialized view fresh"),
        ..PLAIN
    },
    Subject {
        set_up: "create table parted (id int primary key, n int not null) partition by list (id);
            create table part_a (id int primary key, n int not null); insert into part_a values (1, 0);
            create table part_b partition of parted for values in (1); insert into part_b values (1, 0)",
        read: "select n from parted where id = 1",
        change: [
            "alter table parted detach partition part_a; update part_b set n = #;
            alter table parted attach partition part_b for values in (1)",
            "alter table parted detach partition part_b; update part_a set n = #;
            alter table parted attach partition part_a for values in (1)",
        ],
        ..PLAIN
    },
    Subject {
        set_up: "create schema postgres; create table public.shade (id int primary key, n int not null);
            insert into public.shade values (1, 0)",
        read: "select n from shade where id = 1",
        change: [
            "drop table postgres.shade; update public.shade set n = # where id = 1",
            "create table postgres.shade (id int primary key, n int not null); insert into postgres.shade values (1, #)",
        ],
        ..PLAIN
    },
    Subject {
        set_up: "create table elder (id int primary key, n int not null);
            create table younger (primary key (id)) inherits (elder);
            insert into elder values (1, 0); insert into younger values (2, 0)",
        read: "select id from elder where n = 0",
        tells: Tells::Rows,
        change: ["alter table younger inherit elder", "alter table younger no inherit elder"],
        ..PLAIN
    },
    Subject {
        set_up: "create role readers; create role member login; grant readers to member;
            create table club (id int primary key, n int not null); insert into club values (1, 0);
            grant select on club to readers",
        user: "member",
        read: "select n from club where id = 1",
        tells: Tells::Refusal,
        change: ["grant readers to member", "revoke readers from member"],
        polled: true,
    },
];

/// Sets up and lets the sessions come on.
pub(crate) fn join<'scope>(cast: &mut Cast<'scope, '_>, stage: &'scope Stage, mut random: Random) -> Result<()> {
    for subject in &SUBJECTS {
        // Tables of the default schema, whatever comes before it in the search path.
        stage.database.run(&format!("set search_path = public; {}", subject.set_up))?;
        stage.ledger().insert(Table::Definition, Some(NO_ROW));
    }
    for number in 0..WRITERS {
        let (direct, through) = (stage.connect(false, None)?, stage.connect(true, None)?);
        let writer = Writer { direct, through, random: random.fork(), number };
        cast.add("a writer of definitions", move || writer.run(stage));
    }
    for _ in 0..READERS {
        let session = |user: &'static str| -> Result<_, Trouble> {
            Ok((user, stage.connect(true, (!user.is_empty()).then_some(user))?, Seen::default()))
        };
        let sessions = [session("")?, session("clerk")?, session("member")?];
        let reader = Reader { sessions, random: random.fork() };
        cast.add("a reader of definitions", move || reader.run(stage));
    }
    Ok(())
}

const NO_ROW: Row = Row { grp: 0, kind: 0 };

fn key_of(subject: usize) -> KeyId {
    (Table::Definition, i32::try_from(subject).unwrap_or(i32::MAX))
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
        let promised = through && !subject.polled && super::DEFINITIONS_IN_STREAM;
        let (before, _) = stage.ledger().latest(key);
        let parity = usize::from(before % 2 == 0);
        let mut ledger = stage.ledger();
        // A version that failed still has its number: the next one must be of the other parity than the last.
        let mut version = ledger.write(key, Some(NO_ROW), promised);
        if usize::from(version % 2 != 0) != parity {
            ledger.resolve(key, false);
            version = ledger.write(key, Some(NO_ROW), promised);
        }
        drop(ledger);
        stage.begin(&[key]);
        let sql = subject.change[parity].replace('#', &version.to_string());
        let line = if through { &mut self.through } else { &mut self.direct };
        match line.simple(&sql) {
            Ok(_) => stage.acknowledge(&[key]),
            Err(Trouble::Refused { code, .. }) if code == "40P01" => stage.ledger().resolve(key, false),
            Err(trouble) => return Err(anyhow::Error::from(trouble).context(sql)),
        }
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
            let extended = self.random.percent(50);
            let (_, line, seen) = self.sessions.iter_mut().find(|s| s.0 == subject.user).expect("a known user");
            let asked = Instant::now();
            let outcome = if extended { line.extended(subject.read) } else { line.simple(subject.read) };
            let span = Span { asked, answered: Instant::now(), snapshot: false };
            if subject.polled || !super::DEFINITIONS_IN_STREAM {
                // Bounded by D alone.
                *seen = Seen::default();
            }
            if let Some(said) = said(subject, outcome)? {
                stage.count_reads(1);
                let ledger = &mut *stage.ledger();
                let fits = |version: i32, _| said.fits(subject.tells, version);
                let verdict = match ledger.fit(key_of(at), span, seen, fits) {
                    Some(fit) => ledger.note(key_of(at), span, fit, (seen, None)),
                    None => Err(ledger.explain(key_of(at), span, seen)),
                };
                if let Err(what) = verdict {
                    stage.violated(format!("{}\n  answered {said:?}\n  {what}", subject.read));
                }
            }
            self.random.nap(12);
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
enum Said {
    Refused,
    Rows(Vec<Vec<Option<i64>>>),
}

impl Said {
    fn fits(&self, tells: Tells, version: i32) -> bool {
        let odd = version % 2 != 0;
        match (tells, self) {
            (Tells::Refusal, Self::Refused) => odd,
            (Tells::Refusal, Self::Rows(rows)) => !odd && rows.len() == 1,
            (Tells::Value, Self::Rows(rows)) => *rows == [[Some(i64::from(version))]],
            (Tells::Rows, Self::Rows(rows)) => rows.len() == if odd { 1 } else { 2 },
            (_, Self::Refused) => false,
        }
    }
}

/// What the answer says; nothing if the definition changed under the statement, which the database does not hide.
fn said(subject: &Subject, outcome: Result<&Answer, Trouble>) -> Result<Option<Said>> {
    match outcome {
        Ok(answer) => Ok(Some(Said::Rows(answer.sorted(0)))),
        Err(Trouble::Refused { code, .. }) if code == "42501" && subject.tells == Tells::Refusal => {
            Ok(Some(Said::Refused))
        }
        Err(Trouble::Refused { code, message }) => {
            let moved = matches!(code.as_str(), "42P01" | "42703" | "XX000" | "40P01" | "0A000");
            ensure!(moved, "{}: {code}: {message}", subject.read);
            Ok(None)
        }
        Err(lost) => Err(lost.into()),
    }
}
