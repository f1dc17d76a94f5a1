//! Definitions that change while they are read: views, names, types, partitions, privileges. Each has a version that an answer shows, and that is
//! checked with the ledger like the version of a row.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::definition::{NO_ROW, Shows, always, key_of, shown};
use super::ledger::{Seen, Span, Table};
use super::line::{Line, Trouble};
use super::stage::{Cast, Random, Stage};
use crate::support::{PATIENCE, eventually, rest_of};

const READERS: usize = 5;
const WRITERS: usize = 2;
/// Errors of a statement whose definitions changed under it.
const MOVED: [&str; 5] = ["42P01", "42703", "XX000", "40P01", "0A000"];

struct Subject {
    set_up: &'static str,
    /// Who reads; the superuser if empty.
    user: &'static str,
    read: &'static str,
    shows: Shows,
    /// What makes the n-th version; `#` is n. The first is for even ones, the second for odd ones.
    change: [&'static str; 2],
    /// Not in the change stream even with event triggers: roles are polled.
    polled: bool,
}

const PLAIN: Subject = Subject { set_up: "", user: "", read: "", shows: Shows::Value, change: ["", ""], polled: false };

static SUBJECTS: [Subject; 15] = [
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
        shows: Shows::Refusal,
        change: ["grant select on secret to clerk", "revoke select on secret from clerk"],
        ..PLAIN
    },
    Subject {
        set_up: "create table guarded (id int primary key, n int not null); grant select on guarded to clerk;
            insert into guarded values (1, 0), (2, 0); create policy first on guarded using (id = 1)",
        user: "clerk",
        read: "select n from guarded where n = 0",
        shows: Shows::Rows,
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
        shows: Shows::Rows,
        change: ["alter table younger inherit elder", "alter table younger no inherit elder"],
        ..PLAIN
    },
    Subject {
        set_up: "create table deep (id int primary key); insert into deep values (1);
            create view under as select 0 as n from deep where id = 1; create view above as select n from under",
        read: "select n from above",
        change: always("create or replace view public.under as select # as n from deep where id = 1"),
        ..PLAIN
    },
    Subject {
        set_up: "create table grown (id int primary key, n int not null) partition by list (id);
            create table grown_1 partition of grown for values in (1);
            create table grown_2 partition of grown for values in (2); insert into grown values (1, 0), (2, 0)",
        read: "select id from grown where n = 0",
        shows: Shows::Rows,
        change: [
            "create table grown_2 partition of grown for values in (2); insert into grown values (2, 0)",
            "drop table grown_2",
        ],
        ..PLAIN
    },
    Subject {
        set_up: "create role readers; create role member login; grant readers to member;
            create table club (id int primary key, n int not null); insert into club values (1, 0);
            grant select on club to readers",
        user: "member",
        read: "select n from club where id = 1",
        shows: Shows::Refusal,
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

/// Once nothing changes any more, what all may read is served from the cache.
pub(crate) fn hit_at_rest(stage: &Stage) -> Result<()> {
    let mut line = stage.reconnect(true)?;
    for subject in SUBJECTS.iter().filter(|subject| subject.shows == Shows::Value) {
        eventually(PATIENCE, || {
            let before = stage.freshet().metrics()?;
            line.simple(subject.read)?;
            let after = stage.freshet().metrics()?;
            let hits = after.hits() > before.hits() || !stage.freshet().is_there();
            ensure!(hits, "at rest, {} does not hit: {:?}", subject.read, after.passed_since(&before));
            Ok(())
        })?;
    }
    Ok(())
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
        if subject.polled {
            // Between two checks of the catalogue, one version must not replace another: what comes and goes again shows in late statistics only.
            let http = stage.freshet().http;
            rest_of(http, PATIENCE)?;
        }
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
            if let Some(shown) = shown((subject.read, subject.shows), outcome, &["42501"], &MOVED)? {
                stage.check_definition(at, (subject.read, subject.shows), &shown, (span, seen));
            }
            self.random.nap(12);
        }
        Ok(())
    }
}
