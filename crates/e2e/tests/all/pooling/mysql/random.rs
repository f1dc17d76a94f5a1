//! Random statements of several sessions, in turns over shared connections: each session hears what it hears when it has a connection of its own.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::stage::{SCHEMA, Stage};
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Kind, Packet, RawClient, Statement, ensure_same, on_both};

on_both!(nothing_leaks, nothing_leaks_where_nothing_holds);

const SESSIONS: usize = 5;
const STEPS: usize = 400;
const SEEDS: u64 = 4;

/// Statements that leave something that goes to the next connection, or nothing. `{i}`: the session; `{k}`: a small number.
const CARRIED: &[&str] = &[
    "SELECT name FROM item WHERE id = {k}",
    "SELECT id FROM item LIMIT 2",
    "SELECT id FROM item",
    "SELECT SQL_CALC_FOUND_ROWS id FROM item LIMIT 1",
    "SELECT FOUND_ROWS()",
    "SELECT ROW_COUNT()",
    "SELECT LAST_INSERT_ID()",
    "SELECT n FROM own{i} ORDER BY id",
    "BEGIN",
    "INSERT INTO own{i} (n) VALUES ({k})",
    "INSERT INTO own{i} (n) VALUES ({k}), (9)",
    "UPDATE own{i} SET n = n + 1 WHERE id <= {k}",
    "UPDATE own{i} SET id = LAST_INSERT_ID(id) WHERE id = {k}",
    "DELETE FROM own{i} WHERE id = {k}",
    "COMMIT",
    "ROLLBACK",
    "COMMIT",
    "SET time_zone = '+0{k}:00'",
    "SELECT @@time_zone, @@sql_mode, @@autocommit",
    "SET sql_mode = 'ANSI_QUOTES'",
    "SET sql_mode = ''",
    "SET NAMES latin1",
    "SET NAMES utf8mb4",
    "SELECT @@character_set_client, @@character_set_results, @@collation_connection",
    "SET autocommit = 0",
    "SET autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SELECT DATABASE(), @a",
    "SET @a = {k}",
    "SET @b = 'b{k}', @a = NULL",
    "SELECT @a, @b, @c",
    "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')",
    "CALL nothing({k})",
    "SELECT \"name\" FROM item WHERE id = {k}",
    "SELECT * FROM nothing",
    "SHOW WARNINGS",
    "SELECT CAST('x' AS SIGNED)",
    "SELECT @@warning_count",
    "DO {k}",
];

/// Statements that leave what holds a session, and those that show it.
const HOLDING: &[&str] = &[
    "SET @a = {k} + 1",
    "SELECT @a",
    "CREATE TEMPORARY TABLE scratch (n INT)",
    "INSERT INTO scratch VALUES ({k})",
    "SELECT n FROM scratch",
    "DROP TEMPORARY TABLE scratch",
    "SELECT GET_LOCK('lock{i}', 0)",
    "SELECT IS_FREE_LOCK('lock{i}')",
    "DO RELEASE_ALL_LOCKS()",
    "PREPARE s FROM 'SELECT {k}'",
    "EXECUTE s",
    "CALL remember()",
    "INSERT INTO logged (n) VALUES ({k})",
    "SELECT @last",
    "LOCK TABLES own{i} WRITE",
    "UNLOCK TABLES",
    "SET TRANSACTION READ ONLY",
    "HANDLER own{i} OPEN",
    "HANDLER own{i} READ FIRST",
    "SET time_zone = @@global.time_zone",
    "SET character_set_results = NULL",
];

/// A generator that needs no crate (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// What a session has heard, and what it has sent: each with the number of packets that it had heard before.
type Heard = (Vec<Packet>, Vec<(usize, String)>);

/// Texts with one parameter, which mean another thing with other settings or another default database. `{i}`: the session.
const PREPARED: &[&str] = &[
    "SELECT n FROM own{i} WHERE id = ?",
    "SELECT \"name\", @@sql_mode FROM item WHERE id = ?",
    "SELECT name FROM item WHERE id = ?",
    "SELECT name FROM item WHERE name <> ? ORDER BY id",
    "SELECT CONCAT(?, id), UUID() IS NULL FROM item",
    "SELECT name, UUID() IS NULL FROM item WHERE id = ?",
    "INSERT INTO own{i} (n) VALUES (?)",
    "UPDATE own{i} SET n = n + 1 WHERE id <= ?",
    "SELECT id FROM item WHERE id <= ?",
];
const PREPARED_MAX: usize = 4;

/// A statement of the binary protocol, and whether the types that the server has received last are those of text.
#[derive(Clone, Copy)]
struct Prepared {
    statement: Statement,
    is_text: Option<bool>,
    /// Pieces of its parameter were sent.
    is_long: bool,
}

/// A session, and its statements of the binary protocol.
struct Player {
    client: RawClient,
    prepared: Vec<Prepared>,
    /// See [`Heard`].
    sent: Vec<(usize, String)>,
}

impl Player {
    fn step(&mut self, random: &mut Random, at: usize, texts: &[&str], database: &str) -> Result<()> {
        let k = 1 + random.below(3);
        let choice = random.below(44);
        let heard = self.client.heard.len();
        self.sent.push((heard, format!("command {choice}")));
        match choice {
            0 => drop(self.client.command(&packets::ping())?),
            1 => {
                self.prepared.clear();
                self.client.command(&packets::reset_connection())?;
            }
            2 => drop(self.client.command(&packets::init_db(database))?),
            3 => drop(self.client.command(&packets::init_db("information_schema"))?),
            4..8 => self.prepare(random, at)?,
            8..16 => self.execute(random, k)?,
            _ => {
                let text = texts[random.below(texts.len())];
                let text = text.replace("{k}", &k.to_string()).replace("{i}", &at.to_string());
                self.sent.push((heard, text.clone()));
                self.client.query(&text)?;
            }
        }
        Ok(())
    }

    /// Prepares a statement, or closes one.
    fn prepare(&mut self, random: &mut Random, at: usize) -> Result<()> {
        if self.prepared.len() == PREPARED_MAX || !self.prepared.is_empty() && random.below(3) == 0 {
            let closed = self.prepared.swap_remove(random.below(self.prepared.len()));
            self.sent.push((self.client.heard.len(), format!("close {}", closed.statement.id)));
            return self.client.send(&packets::close(closed.statement.id));
        }
        let text = PREPARED[random.below(PREPARED.len())].replace("{i}", &at.to_string());
        self.sent.push((self.client.heard.len(), format!("prepare {text}")));
        let made = self.client.try_prepare(&text)?;
        self.prepared.extend(made.map(|statement| Prepared { statement, is_text: None, is_long: false }));
        Ok(())
    }

    /// Executes a statement: with types, or with those that it had; with pieces of its parameter; with a cursor.
    fn execute(&mut self, random: &mut Random, k: usize) -> Result<()> {
        if self.prepared.is_empty() {
            return Ok(());
        }
        let at = random.below(self.prepared.len());
        let (Prepared { statement, is_text, is_long }, text) = (self.prepared[at], k.to_string());
        let id = statement.id;
        let number = i64::try_from(k)?;
        let of = |is_text| if is_text { Value::Text(&text) } else { Value::Integer(number) };
        let choice = random.below(12);
        self.sent.push((self.client.heard.len(), format!("execute {id}, {choice}")));
        let prepared = &mut self.prepared[at];
        prepared.is_long = false;
        match choice {
            0 if !is_long => {
                prepared.is_long = true;
                self.client.send(&packets::send_long_data(id, 0, text.as_bytes()))?;
            }
            _ if is_long => {
                prepared.is_text = None;
                self.client.execute(statement, &[Value::Long])?;
            }
            1 => drop(self.client.command(&packets::reset_statement(id))?),
            2 if statement.columns > 0 => {
                prepared.is_text = Some(false);
                let answer = self.client.command(&packets::execute_with(id, 1, &[of(false)], true))?;
                if answer.error().is_none() {
                    self.client.fetch(&packets::fetch(id, 1))?;
                }
            }
            3 => drop(self.client.execute(statement, &[Value::Null])?),
            4..8 if is_text.is_some() => {
                self.client.command(&packets::execute_with(id, 0, &[of(is_text == Some(true))], false))?;
            }
            4 | 5 => {
                prepared.is_text = Some(true);
                self.client.execute(statement, &[of(true)])?;
            }
            _ => {
                prepared.is_text = Some(false);
                self.client.execute(statement, &[of(false)])?;
            }
        }
        if choice == 3 && !is_long {
            self.prepared[at].is_text = None;
        }
        Ok(())
    }
}

/// What each session hears.
fn play(stage: &Stage, address: SocketAddr, texts: &[&str], seed: u64) -> Result<Vec<Heard>> {
    let database = &stage.pair.database;
    let tables = (0..SESSIONS).flat_map(|at| {
        [
            format!("DROP TABLE IF EXISTS own{at}"),
            SCHEMA[2].replace("line", &format!("own{at}")),
            format!("INSERT INTO own{at} (n) VALUES (1), (2), (3)"),
        ]
    });
    let logged = ["DELETE FROM logged".to_owned(), "ALTER TABLE logged AUTO_INCREMENT = 1".to_owned()];
    for statement in tables.chain(logged) {
        database.run(&statement)?;
    }
    let mut random = Random(seed);
    let connect = |_| {
        let mut client = RawClient::login(address, stage.login())?;
        // In a new session of MariaDB, FOUND_ROWS() is what an earlier session has left.
        client.query("SELECT id FROM item")?;
        client.heard.clear();
        Ok(Player { client, prepared: Vec::new(), sent: Vec::new() })
    };
    let mut players = (0..SESSIONS).map(connect).collect::<Result<Vec<_>>>()?;
    for _ in 0..STEPS {
        let at = random.below(SESSIONS);
        players[at].step(&mut random, at, texts, &database.name)?;
    }
    // The sessions end: open ones could have locks.
    Ok(players.into_iter().map(|player| (player.client.heard, player.sent)).collect())
}

fn compare(kind: Kind, size: usize, texts: &[&str]) -> Result<()> {
    let stage = Stage::start(kind, size)?;
    for seed in 0..SEEDS {
        let direct = play(&stage, stage.pair.database.address(), texts, seed)?;
        let through = play(&stage, stage.pair.address(), texts, seed)?;
        for (at, (direct, through)) in direct.iter().zip(&through).enumerate() {
            let ((direct, sent), (through, _)) = (direct, through);
            let same = direct.iter().zip(through).take_while(|(one, other)| one == other).count();
            let sent: Vec<_> = sent.iter().filter(|(heard, _)| *heard <= same).rev().take(20).collect();
            ensure_same(direct, through).with_context(|| format!("seed {seed}, session {at}: {sent:#?}"))?;
        }
    }
    Ok(())
}

/// With as many connections as sessions nobody waits, and they change connections all the same.
fn nothing_leaks(kind: Kind) -> Result<()> {
    compare(kind, SESSIONS, &[CARRIED, HOLDING].concat())
}

fn nothing_leaks_where_nothing_holds(kind: Kind) -> Result<()> {
    compare(kind, SESSIONS, CARRIED)
}
