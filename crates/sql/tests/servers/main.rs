//! The analysis of statements compared with real servers.
//!
//! * `values` and `postgres_values`: if a server says that a column equals a constant, the tag matches the row;
//! * `constants`: if the lexer takes a constant out of a text, the server reads the same bytes there;
//! * `changes`: after a commit every changed result was invalidated; results that were invalidated without a change are counted (`make soak-tags`);
//! * `conditions`: rows that no tag matches, and columns that no tag names, can be changed without changing an answer; the key queries are run on the
//!   server.
//!
//! Queries are sent in batches through procedures or functions, so that an error has no answer.

mod anti_join;
mod changes;
mod conditions;
mod constants;
mod derived_limits;
mod nested;
mod postgres_values;
mod queries;
mod rare;
mod row_filters;
mod values;
mod views;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use freshet_sql::{Bound, Client, Parameter, ParameterValue, Template, lex};
use freshet_testbed::{Mysqld, Server as PostgresServer};
use freshet_types::{
    Catalog, CatalogVersion, Column, Dialect, RelationKind, ReplicaIdentity, Table, TableId, Tag, ValueType,
};

/// A server.
#[derive(Clone, Copy)]
enum Upstream<'s> {
    Mysql(&'s Mysqld),
    Postgres(&'s PostgresServer),
}

impl Upstream<'_> {
    fn sql(self, script: &str) -> Result<String> {
        match self {
            Self::Mysql(server) => server.sql(script),
            Self::Postgres(server) => server.psql(script),
        }
    }
}

/// The queries and answers of one server.
struct Server<'s> {
    of: Upstream<'s>,
    script: String,
    questions: usize,
}

impl<'s> Server<'s> {
    fn new(of: Upstream<'s>) -> Self {
        Self { of, script: String::new(), questions: 0 }
    }

    fn say(&mut self, statement: &str) {
        self.script += statement;
        self.script.push('\n');
    }

    /// From here on the session has this collation and uses procedures created under it.
    fn connection(&mut self, names: &str, number: usize) {
        if let Upstream::Postgres(_) = self.of {
            self.say(&format!(
                "CREATE FUNCTION ask_{number}(q text) RETURNS text LANGUAGE plpgsql AS \
                 $f$ DECLARE a text; BEGIN EXECUTE q INTO a; RETURN a; EXCEPTION WHEN others THEN RETURN NULL; END $f$;"
            ));
            return;
        }
        self.say(&format!("SET NAMES {names};"));
        self.say("SET group_concat_max_len = 1000000;");
        self.say("DELIMITER //");
        for (name, using) in [("ask", ""), ("ask_with", "USING @p")] {
            self.say(&format!(
                "CREATE PROCEDURE {name}_{number}(q LONGTEXT CHARACTER SET utf8mb4) BEGIN \
                 DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END; \
                 SET @s = q; PREPARE s FROM @s; EXECUTE s {using}; END//"
            ));
        }
        self.say("DELIMITER ;");
    }

    /// Adds a query, a SELECT list and more; returns its number.
    fn ask(&mut self, procedure: &str, rest: &str) -> usize {
        self.questions += 1;
        if let Upstream::Postgres(_) = self.of {
            self.say(&format!("SELECT {}, {procedure}($q$SELECT {rest}$q$);", self.questions));
            return self.questions;
        }
        let text = format!("SELECT {}, {rest}", self.questions);
        self.say(&format!("CALL {procedure}(CONVERT(0x{} USING utf8mb4));", hex(text.as_bytes())));
        self.questions
    }

    /// The answers by number; queries that failed have none.
    fn answers(mut self) -> Result<HashMap<usize, String>> {
        // The last line loses its blanks, so it must not be an answer.
        self.say("SELECT 'the end';");
        let answers = self.of.sql(&self.script)?;
        let between = if let Upstream::Postgres(_) = self.of { '|' } else { '\t' };
        let pairs = answers.lines().filter_map(|line| line.split_once(between));
        let pairs = pairs.filter(|(_, answer)| !answer.is_empty());
        pairs.map(|(number, answer)| Ok((number.parse()?, answer.to_owned()))).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    digits.collect()
}

/// A small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }
}

/// The database of MySQL's and MariaDB's tables, and the schema of PostgreSQL's.
const DATABASE: &str = "freshet";
const PUBLIC: &str = "public";

/// A name and its columns.
type Described<'d> = (&'d str, &'d [(&'d str, ValueType)]);

fn catalog(schema: &str, tables: &[Described<'_>]) -> Catalog {
    let column = |(name, value_type): &(&str, ValueType)| Column {
        name: (*name).into(),
        value_type: *value_type,
        generated: false,
        composite: None,
    };
    let table = |(id, (name, columns)): (u32, &Described<'_>)| Table {
        id: TableId(id),
        schema: schema.into(),
        name: (*name).into(),
        kind: RelationKind::Table,
        identity: ReplicaIdentity::Full,
        key: vec!["id".into()],
        row_security: false,
        user_types: false,
        datetime: false,
        columns: columns.iter().map(column).collect(),
        version: "".into(),
        definition: None,
        children: Vec::new(),
        runs_code: false,
        capacities: Vec::new(),
    };
    Catalog::new(CatalogVersion(1), (1..).zip(tables).map(table).collect(), HashSet::new(), HashSet::new())
}

/// The dependencies of a statement that are known before it runs.
fn tags(dialect: Dialect, catalog: &Catalog, sql: &str, own: &[Parameter<'_>], client: Client) -> Result<Vec<Tag>> {
    Ok(bound(dialect, catalog, sql, own, client)?.tags)
}

/// A client with this time zone.
fn client(zone: &str) -> Client {
    Client { utc: zone.contains("TimeZone = 'UTC'"), ..Client::PLAIN }
}

fn bound(dialect: Dialect, catalog: &Catalog, sql: &str, own: &[Parameter<'_>], client: Client) -> Result<Bound> {
    let lexed = lex(dialect, sql);
    let own_schema = if dialect == Dialect::Postgres { PUBLIC } else { DATABASE };
    let schemas: [Arc<str>; 2] = ["pg_catalog".into(), own_schema.into()];
    let read_set = Template::parse(dialect, &lexed.normalized).resolve(catalog, &schemas);
    let read_set = read_set.map_err(|why| anyhow::anyhow!("{sql}: {why}"))?;
    let literals = lexed.literals.iter().map(|l| Parameter { value: ParameterValue::Literal(l), declared_type: 0 });
    let params: Vec<Parameter<'_>> = own.iter().copied().chain(literals).collect();
    read_set.bind(&params, client).map_err(|why| anyhow::anyhow!("{sql}: {why}"))
}
