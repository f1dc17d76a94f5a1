//! The tables of a run and how its sessions reach them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Mysqld;

use super::line::Line;
use super::relay::Relay;
use crate::mysql::support::packets::capability;
use crate::mysql::support::{Database, Kind, Login};
use crate::stress::ledger::{Row, Table};
use crate::stress::line::Trouble;
use crate::stress::questions::{Source, all};
use crate::stress::stage::{self, PARTS_PER_ITEM, Random};
use crate::stress::{GROUPS, KINDS};
use crate::support::{PATIENCE, eventually};

pub(crate) type Stage = stage::Stage<Place>;

const ITEMS: i32 = 30;
/// Of each table that all writers share.
const OTHERS: i32 = 2 * ITEMS;
/// Of each table that one writer owns.
const FEW: i32 = 12;
/// How long recovered transactions may be invisible.
const RECOVERY: Duration = Duration::from_secs(1);

/// `echo` follows `item` by triggers. A leaf dies with its folder, and that with its cupboard; kin take group and version
/// from their house. None of these is in the binary log as a change of its own.
pub(crate) const SCHEMA: [&str; 20] = [
    "create table item (id int primary key, grp int not null, kind int not null, ver int not null, key (grp))",
    "create table part (id int primary key, item_id int not null, grp int not null, kind int not null,
        ver int not null, key (item_id))",
    "create table note (id int primary key, grp int not null, kind int not null, ver int not null,
        seq int not null auto_increment, key (seq))",
    "create table cupboard (id int primary key)",
    "create table folder (id int primary key, foreign key (id) references cupboard (id) on delete cascade)",
    "create table leaf (id int primary key, folder_id int not null, grp int not null, kind int not null,
        ver int not null, foreign key (folder_id) references folder (id) on delete cascade)",
    "create table event (id int, grp int not null, kind int, ver int not null, primary key (id, kind))
        partition by list (kind) (partition p0 values in (0), partition p1 values in (1), partition p2 values in (2))",
    "create table event_side (id int, grp int not null, kind int, ver int not null, primary key (id, kind))",
    "create table house (id int primary key, grp int not null, ver int not null, key (id, grp, ver))",
    "create table kin (id int primary key, grp int not null, kind int not null, ver int not null, key (id, grp, ver),
        foreign key (id, grp, ver) references house (id, grp, ver) on update cascade on delete cascade)",
    "create table echo (id int primary key, grp int not null, kind int not null, ver int not null)",
    "create trigger echo_new after insert on item for each row
        replace into echo values (new.id, new.grp, new.kind, new.ver)",
    "create trigger echo_changed after update on item for each row
        update echo set grp = new.grp, kind = new.kind, ver = new.ver where id = new.id",
    "create trigger echo_gone after delete on item for each row delete from echo where id = old.id",
    "create function put_item(a int, b int, c int, d int) returns int deterministic modifies sql data begin
        insert into item values (a, b, c, d) on duplicate key update grp = b, kind = c, ver = d;
        return d;
    end",
    "create function cut_item(a int) returns int deterministic modifies sql data begin
        delete from item where id = a;
        return a;
    end",
    "create procedure put_part(a int, b int, c int, d int, e int) modifies sql data
        replace into part values (a, b, c, d, e)",
    "create procedure cut_part(a int) modifies sql data delete from part where id = a",
    "create view item_view as select id, grp, kind, ver from item",
    "create view item_totals as select grp, count(*) as n, sum(ver) as s from item group by grp",
];

pub(crate) static SOURCES: [Source; 10] = [
    all("item", Table::Item),
    all("part", Table::Part),
    all("note", Table::Note),
    all("leaf", Table::Leaf),
    all("event", Table::Event),
    all("kin", Table::Kin),
    all("echo", Table::Item),
    all("item_view", Table::Item),
    Source { name: "event partition (p0)", table: Table::Event, holds: |row| row.kind == 0 },
    Source { name: "event partition (p2)", table: Table::Event, holds: |row| row.kind == 2 },
];

/// A database on a server of its own, and what stands before it.
pub(crate) struct Place {
    pub(crate) database: Database,
    pub(crate) kind: Kind,
    pub(crate) relay: Option<Relay>,
    /// Number of starts of the server: its sessions' ids begin again with each.
    pub(crate) starts: AtomicU64,
    /// When it has certainly recovered from its last crash.
    pub(crate) recovered: Mutex<Option<Instant>>,
}

impl Place {
    /// The server crashes, and is started again.
    pub(crate) fn crash(&self) -> Result<()> {
        let set = |time| *self.recovered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
        set(PATIENCE);
        self.server().kill9()?;
        self.starts.fetch_add(1, Relaxed);
        self.server().start_again()?;
        set(RECOVERY);
        Ok(())
    }
}

impl stage::Place for Place {
    fn address(&self) -> SocketAddr {
        self.database.address()
    }

    /// Without encryption: the relay would not know what it passes on.
    fn url(&self) -> String {
        let (url, direct) = (self.database.url(), self.database.address());
        match &self.relay {
            Some(relay) => url.replace(&direct.to_string(), &relay.address.to_string()) + "?ssl-mode=disabled",
            None => url,
        }
    }
}

impl Place {
    pub(crate) fn server(&self) -> &Mysqld {
        &self.database.server
    }

    /// Rolls back what was prepared and never ended, since the run ended first: a new change stream waits for it for ever.
    pub(crate) fn end_prepared(&self) -> Result<()> {
        let mut client = self.database.connect()?;
        eventually(PATIENCE, || {
            for row in client.query("xa recover")?.rows() {
                let name = row.into_iter().next_back().flatten().context("no name")?;
                // As long as its session ends, it is not there for others.
                client.query(&format!("xa rollback '{name}'"))?;
            }
            let left = client.query("xa recover")?.rows();
            ensure!(left.is_empty(), "prepared transactions do not end: {left:?}");
            Ok(())
        })
    }

    /// Runs statements one by one; the first error is returned.
    pub(crate) fn run<'s>(&self, statements: impl IntoIterator<Item = &'s str>) -> Result<()> {
        let mut client = self.database.connect()?;
        statements.into_iter().try_for_each(|sql| client.run(sql))
    }
}

impl Stage {
    /// Fills the tables and the ledger.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut statements = vec!["begin".to_owned()];
        for folder in 0..OTHERS / PARTS_PER_ITEM {
            statements.push(format!("insert into cupboard values ({folder})"));
            statements.push(format!("insert into folder values ({folder})"));
        }
        let tables = [
            (Table::Item, ITEMS),
            (Table::Part, ITEMS * PARTS_PER_ITEM),
            (Table::Note, FEW),
            (Table::Leaf, OTHERS),
            (Table::Event, FEW),
            (Table::Kin, OTHERS),
        ];
        for (table, count) in tables {
            for id in 0..count {
                let row = Row { grp: id % GROUPS, kind: id % KINDS };
                let key = self.ledger().insert(table, Some(row));
                statements.extend(super::changes::inserts(key, row, 0));
            }
        }
        statements.push("commit".into());
        self.database.run(statements.iter().map(String::as_str))
    }

    /// A session, of the account with all privileges unless named, as of a driver of today or an old one.
    pub(crate) fn connect(&self, through: bool, user: Option<&str>, random: &mut Random) -> Result<Line, Trouble> {
        let login = self.database.database.login();
        let capabilities = if random.percent(50) { capability::MODERN } else { capability::OLD };
        Line::open(self.address(through), Login { user: user.unwrap_or(login.user), capabilities, ..login })
    }

    /// Connects again after a loss, as soon as that is possible.
    pub(crate) fn reconnect(&self, through: bool, random: &mut Random) -> Result<Line, Trouble> {
        let seed = random.fork().0;
        self.insist(through, || self.connect(through, None, &mut Random(seed)))
    }

    /// Whether what is asked now may miss a commit from before a crash. MariaDB accepts sessions before it has tidied up all recovered transactions, and
    /// until then their commits are not visible. Nothing comes from the cache meanwhile, as there is no change stream.
    pub(crate) fn recovers(&self) -> bool {
        let recovered = *self.database.recovered.lock().unwrap_or_else(PoisonError::into_inner);
        self.database.kind == Kind::Mariadb && recovered.is_some_and(|at| Instant::now() < at)
    }

    pub(crate) fn starts(&self) -> u64 {
        self.database.starts.load(Relaxed)
    }
}
