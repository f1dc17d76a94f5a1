//! The state of a session: always the right result, and from the cache wherever the state allows it.
//!
//! Each test runs the same session twice, directly and through Freshet. After each change of the session's state both send the same queries: the
//! answers must be equal, and the metrics show whether Freshet's answer came from the cache, and whether under a new key (a fill came before the hit)
//! or under a known one (there was no fill).

mod encodings;
mod keys;
mod plain;
mod prepared;
mod roles;
mod sharing;
mod temporary;
mod transactions;

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings};

use crate::support::frames::query;
use crate::support::{Database, Login, Message, PATIENCE, Pair, RawClient, Version, eventually, rest};

/// Columns whose text depends on the session's settings.
const SCHEMA: &str = "
    create table sample (id int primary key, at timestamptz, day date, span interval, exact float8, bytes bytea,
        name text);
    insert into sample values (1, '2024-03-01 12:00:00+00', '2024-03-02', '1 year 2 days 03:04:05', 0.1::float8 + 0.2,
        '\\x00ff', 'é'), (2, null, null, null, null, null, 'plain');
    create schema other;
    create table other.sample (like sample including all);
    insert into other.sample select * from sample;
    update other.sample set name = 'other ' || id;
    grant usage on schema other to public;
    grant select on sample, other.sample to public;
    create view prepared as select * from pg_prepared_statements;";

const READ: &str = "select at, day, span, exact, bytes, name from sample where id = 1";

/// Roles that every test of this module finds: creating one would flush the caches of all.
const ROLES: &str = "create role reader login; create role member login; grant reader to member;
    create role tuned login; alter role tuned set timezone = 'Asia/Tokyo'; alter role tuned set search_path = other";

/// A server on which nothing else happens: what others do to roles or the configuration would flush caches here.
fn server(version: Version) -> Arc<Server> {
    static QUIET: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
    let start = || -> Result<Arc<Server>> {
        let settings = Settings { initdb: vec!["--encoding=UTF8".into(), "--locale=C".into()], ..Settings::default() };
        let server = version.start(&settings)?;
        server.psql(ROLES)?;
        Ok(server)
    };
    QUIET[version as usize].get_or_init(|| start().expect("the quiet server starts")).clone()
}

fn pair(version: Version) -> Result<Pair> {
    pair_of(version, SCHEMA)
}

fn pair_of(version: Version, schema: &str) -> Result<Pair> {
    Pair::over(Database::create(server(version))?, schema, &[])
}

/// The same session twice.
struct Twins<'a> {
    pair: &'a Pair,
    direct: RawClient,
    through: RawClient,
}

impl<'a> Twins<'a> {
    fn new(pair: &'a Pair) -> Result<Self> {
        Self::login(pair, pair.login())
    }

    fn login(pair: &'a Pair, login: Login<'_>) -> Result<Self> {
        let mut direct = RawClient::login(pair.database.address(), login)?;
        let mut through = RawClient::login(pair.address(), login)?;
        // Temporary tables have other OIDs in each session.
        (direct.makes_tables, through.makes_tables) = (true, true);
        Ok(Self { pair, direct, through })
    }

    /// The same messages on both sides; the answers are equal.
    fn exchange(&mut self, messages: &[u8], ready: usize) -> Result<()> {
        self.direct.heard.clear();
        self.through.heard.clear();
        self.direct.exchange(messages, ready)?;
        self.through.exchange(messages, ready)?;
        let (direct, through) = (&self.direct.heard, &self.through.heard);
        ensure!(same(direct, through), "to {}\n direct  {direct:?}\n through {through:?}", messages.escape_ascii());
        Ok(())
    }

    /// Statements, each in its own message.
    fn run(&mut self, statements: &[&str]) -> Result<()> {
        statements.iter().try_for_each(|sql| self.exchange(&query(sql), 1))
    }

    /// Asks until an answer comes from the cache; how many fills that took.
    fn fills_until_hit(&mut self, messages: &[u8]) -> Result<u64> {
        if !self.pair.freshet.is_there() {
            self.exchange(messages, 1)?;
            return Ok(0);
        }
        let start = self.pair.freshet.metrics()?;
        let mut before = start.clone();
        let mut wrong = None;
        let found = eventually(PATIENCE, || {
            if let Err(error) = self.exchange(messages, 1) {
                wrong.get_or_insert(error);
                return Ok(0); // not to be mended by trying again
            }
            let after = self.pair.freshet.metrics()?;
            let hit = after.hits() > before.hits();
            before = after.clone();
            let reasons = after.passed_since(&start);
            ensure!(hit, "{} does not hit: {reasons:?}", messages.escape_ascii());
            Ok(fills(&after) - fills(&start))
        });
        wrong.map_or(found, Err)
    }

    /// The read comes from the cache, under a key that was not used before.
    fn new_key(&mut self, read: &str) -> Result<()> {
        let fills = self.fills_until_hit(&query(read))?;
        ensure!(fills > 0 || !self.pair.freshet.is_there(), "{read} hits what another state has filled");
        Ok(())
    }

    /// The read comes from the cache, under a key that was used before.
    fn known_key(&mut self, read: &str) -> Result<()> {
        // What a block has read under its own settings is kept once it has ended.
        eventually(PATIENCE, || {
            let flights = self.pair.freshet.metrics()?.value("freshet_fills_in_flight");
            ensure!(flights == 0.0, "{flights} fills in flight");
            Ok(())
        })?;
        let fills = self.fills_until_hit(&query(read))?;
        ensure!(fills == 0, "{read} had to be filled again");
        Ok(())
    }

    /// The read never comes from the cache, for this reason.
    fn passes(&mut self, read: &str, reason: &str) -> Result<()> {
        self.passes_as(&query(read), reason)
    }

    fn passes_as(&mut self, read: &[u8], reason: &str) -> Result<()> {
        let before = self.pair.freshet.metrics()?;
        let name = read.escape_ascii();
        for _ in 0..2 {
            self.exchange(read, 1)?;
            self.exchange(read, 1)?;
            rest();
        }
        if self.pair.freshet.is_there() {
            let after = self.pair.freshet.metrics()?;
            ensure!(after.hits() == before.hits(), "{name} hits");
            let reasons = after.passed_since(&before);
            ensure!(after.passed(reason) > before.passed(reason), "{name} passes, but as {reasons:?}");
        }
        Ok(())
    }
}

fn fills(metrics: &crate::support::Metrics) -> u64 {
    metrics.count("freshet_fills_total")
}

/// Equal, but for where a ParameterStatus stands: a setting may be reported with any later answer.
fn same(direct: &[Message], through: &[Message]) -> bool {
    let split = |messages: &[Message]| -> (Vec<Message>, Vec<Message>) {
        let (mut reports, rest): (Vec<_>, Vec<_>) = messages.iter().cloned().partition(|m| m.tag == b'S');
        reports.sort_by(|a, b| a.body.cmp(&b.body));
        (reports, rest)
    };
    split(direct) == split(through)
}

/// Many settings, one after the other: each names itself if it fails.
fn each<T: std::fmt::Debug>(items: &[T], mut check: impl FnMut(&T) -> Result<()>) -> Result<()> {
    items.iter().try_for_each(|item| check(item).with_context(|| format!("with {item:?}")))
}
