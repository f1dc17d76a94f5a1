//! `game-rows`: the rows of a game's players, with a look-aside cache or without.
//!
//! A transaction reads a player by key, updates the row, and reads the account with the email address found in the first row. On a target with
//! `lookaside=` it does what applications do with memcached. Reads query the look-aside cache first and store there each row that they read from the
//! database. An update deletes the row's entry after its commit. On any other target everything goes to the database, or to the cache in front of it.
//! So one run compares both kinds of caches.
//!
//! A look-aside cache can store an outdated row: a row read before an update may be stored after the update's delete. Applications accept this, so it
//! is measured as it is. memcached itself counts the reads that it answered: `metrics=memcached://…`.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;

use super::OnOff;
use super::distribution::{Distribution, Keys, id, permuted};
use super::loading::{self, Cell, Data, Rows, Table};
use super::{Pending, Script, Workload};
use crate::driver::{Failure, Row};
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::{Family, Target};
use crate::value::Value;

const PLAYER: usize = 0;
const UPDATE: usize = 1;
const ACCOUNT: usize = 2;
const STATEMENTS: [(&str, &str); 3] = [
    ("player by key", "SELECT player_id, email, name, level, gold, visits, inventory FROM player WHERE player_id = $1"),
    ("update of the player", "UPDATE player SET gold = gold + $2, visits = visits + 1 WHERE player_id = $1"),
    (
        "account by email",
        "SELECT account_id, email, country, language, balance, preferences FROM account WHERE email = $1",
    ),
];
/// The column with the email address in the rows of the first statement.
const EMAIL: usize = 1;

/// Characters in the wide column of each table. A row is about 200 bytes; two tables of 10 million rows are 4 GB, as in the original benchmark.
const WIDE: usize = 120;

/// The workload.
#[derive(Debug)]
pub(super) struct GameRows {
    data: Arc<Players>,
    transactions: bool,
    statements: Arc<[Statement]>,
}

/// The rows of both tables.
#[derive(Debug)]
pub(super) struct Players {
    rows: usize,
    distribution: Distribution,
    keys: Keys,
    seed: u64,
}

impl Players {
    pub(super) fn new(rows: usize, distribution: Distribution, seed: u64) -> Result<Self> {
        Ok(Self { rows, distribution, keys: Keys::new(distribution, rows)?, seed })
    }

    /// The id of a random player.
    fn player(&self, random: &mut Random) -> i64 {
        id(self.keys.draw(random))
    }

    /// The address of a player, whose key is its id minus 1. Accounts were not created in the order of players, so a player's row and its account's
    /// row are in unrelated places.
    fn email(&self, key: usize) -> String {
        email(permuted(key, self.rows) + 1)
    }
}

/// The address of an account.
fn email(account: usize) -> String {
    format!("player{account}@example.com")
}

impl Data for Players {
    fn kind(&self) -> &'static str {
        "game-rows"
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![("rows".to_owned(), self.rows.to_string()), ("data-seed".to_owned(), self.seed.to_string())]
    }

    fn tables(&self, _family: Family) -> Vec<Table> {
        let player = "player_id integer NOT NULL, email varchar(60) NOT NULL, name varchar(40) NOT NULL, level integer NOT NULL, \
                      gold bigint NOT NULL, visits integer NOT NULL, inventory varchar(400) NOT NULL";
        let account = "account_id integer NOT NULL, email varchar(60) NOT NULL, country char(2) NOT NULL, \
                       language char(2) NOT NULL, balance numeric(10,2) NOT NULL, preferences varchar(400) NOT NULL";
        let table = |name: &str, columns: &str, key, after| Table {
            name: name.to_owned(),
            columns: columns.to_owned(),
            key,
            after,
        };
        let by_email = "CREATE UNIQUE INDEX account_email_idx ON account (email)".to_owned();
        vec![table("player", player, "player_id", Vec::new()), table("account", account, "account_id", vec![by_email])]
    }

    fn steps(&self) -> u64 {
        self.rows as u64
    }

    /// Adds one player and one account. The account belongs to another player.
    fn step(&self, number: u64, rows: &mut Rows) -> Result<()> {
        let id = number as usize + 1;
        let mut random = Random::numbered(self.seed, id as u64);
        let (name, inventory) = (letters(8, &mut random), letters(WIDE, &mut random));
        rows.add(
            0,
            &[
                Cell::int(id),
                Cell::Text(&self.email(id - 1)),
                Cell::Text(&name),
                Cell::int(1 + random.skewed(80)),
                Cell::int(random.skewed(1_000_000)),
                Cell::Int(0),
                Cell::Text(&inventory),
            ],
        );
        let (country, language) = (letters(2, &mut random).to_uppercase(), letters(2, &mut random));
        let balance = format!("{}.{:02}", random.skewed(10_000), random.below(100));
        rows.add(
            1,
            &[
                Cell::int(id),
                Cell::Text(&email(id)),
                Cell::Text(&country),
                Cell::Text(&language),
                Cell::Text(&balance),
                Cell::Text(&letters(WIDE, &mut random)),
            ],
        );
        Ok(())
    }
}

fn letters(count: usize, random: &mut Random) -> String {
    (0..count).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

impl GameRows {
    pub(super) fn new(data: Players, transactions: bool) -> Self {
        let statement = |(index, (name, text)): (usize, (&str, &str))| {
            if index == UPDATE { Statement::write(name, text) } else { Statement::read(name, text) }
        };
        let statements = STATEMENTS.into_iter().enumerate().map(statement).collect();
        Self { data: Arc::new(data), transactions, statements }
    }
}

impl Workload for GameRows {
    fn name(&self) -> &'static str {
        "game-rows"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Data::settings(&*self.data);
        settings.push(("distribution".to_owned(), self.data.distribution.to_string()));
        settings.push(("transactions".to_owned(), OnOff::text(self.transactions).to_owned()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, random: Random) -> Script {
        Script::GameRows(Player { data: Arc::clone(&self.data), transactions: self.transactions, random })
    }

    /// The writer runs only the updates. It deletes from the look-aside cache too.
    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::GameRowsWriter(Writer { data: Arc::clone(&self.data), random }))
    }

    fn looks_aside(&self) -> bool {
        true
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let key = self.data.keys.draw(random);
        if random.below(2) == 0 {
            (PLAYER, vec![Value::Int(id(key))])
        } else {
            (ACCOUNT, vec![Value::from(self.data.email(key))])
        }
    }

    fn write_affecting(&self, statement: usize, values: &[Value], random: &mut Random) -> Option<(usize, Vec<Value>)> {
        // Accounts never change.
        let Some(Value::Int(player)) = values.first().filter(|_| statement == PLAYER) else { return None };
        Some((UPDATE, update(*player, random).to_vec()))
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(loading::load(&*self.data, target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(loading::ready(&*self.data, self.name(), database))
    }
}

/// The script of one connection.
#[derive(Debug)]
pub struct Player {
    data: Arc<Players>,
    transactions: bool,
    random: Random,
}

impl Player {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let player = self.data.player(&mut self.random);
        if self.transactions {
            session.begin().await?;
        }
        let row = read(session, PLAYER, Value::Int(player), &player_key(player)).await?;
        let email = row.get(EMAIL).cloned().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some(email) = email else { return Err(Failure::no_row("the player has no email address")) };
        session.run(UPDATE, &update(player, &mut self.random)).await?;
        if !self.transactions {
            forget(session, player).await?;
        }
        let key = format!("account:{email}");
        read(session, ACCOUNT, Value::from(email), &key).await?;
        if self.transactions {
            session.commit().await?;
            forget(session, player).await?;
        }
        Ok(())
    }
}

/// The script of the background writer.
#[derive(Debug)]
pub struct Writer {
    data: Arc<Players>,
    random: Random,
}

impl Writer {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let player = self.data.player(&mut self.random);
        session.run(UPDATE, &update(player, &mut self.random)).await?;
        forget(session, player).await
    }
}

fn update(player: i64, random: &mut Random) -> [Value; 2] {
    [Value::Int(player), Value::Int(id(random.below(100)))]
}

fn player_key(player: i64) -> String {
    format!("player:{player}")
}

/// Deletes the look-aside cache's entry, which is outdated once the update is committed.
async fn forget(session: &mut Session, player: i64) -> Result<(), Failure> {
    match &mut session.lookaside {
        Some(cache) => cache.delete(&player_key(player)).await,
        None => Ok(()),
    }
}

/// The only row of a statement's result, from the look-aside cache if it is there.
async fn read(session: &mut Session, statement: usize, value: Value, key: &str) -> Result<Row, Failure> {
    let began = Instant::now();
    if let Some(cache) = &mut session.lookaside
        && let Some(row) = cache.get(key).await?.and_then(|bytes| decoded(&bytes))
    {
        session.looked_aside(statement, began);
        return Ok(row);
    }
    let found = session.rows(statement, &[value]).await?;
    let Some(row) = found.into_iter().next() else { return Err(Failure::no_row(key)) };
    if let Some(cache) = &mut session.lookaside {
        cache.set(key, &encoded(&row)).await?;
    }
    Ok(row)
}

/// The length that marks a column as NULL.
const NULL: u32 = u32::MAX;

/// A row as it is stored in the look-aside cache: each column after its length.
fn encoded(row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    for column in row {
        let length = column.as_ref().map_or(NULL, |column| column.len() as u32);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(column.as_deref().unwrap_or_default());
    }
    bytes
}

/// None if the bytes are not a row.
fn decoded(mut bytes: &[u8]) -> Option<Row> {
    let mut row = Row::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        let (column, rest) = rest.split_at_checked(if length == NULL { 0 } else { length as usize })?;
        row.push((length != NULL).then(|| column.to_vec()));
        bytes = rest;
    }
    bytes.is_empty().then_some(row)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_row_comes_back_from_the_look_aside_cache_as_it_was() {
        let row: Row = vec![Some(b"1".to_vec()), None, Some(Vec::new()), Some(vec![0xff; 300])];
        assert_eq!(decoded(&encoded(&row)), Some(row.clone()));
        let bytes = encoded(&row);
        assert_eq!(decoded(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn every_player_has_an_account_of_its_own() {
        let players = Players::new(1000, Distribution::Uniform, 1).unwrap();
        let emails: HashSet<String> = (0..1000).map(|key| players.email(key)).collect();
        assert_eq!(emails, (1..=1000).map(email).collect());
        assert_ne!(players.email(0), email(1));
    }
}
