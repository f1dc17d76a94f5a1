//! The verdicts about statements of real software: the verdict, its reason and the kind of tags of each.
//!
//! The statements and the tables that they name are in `crates/e2e/verdicts/<family>/<source>`, with a README about their origin. The tables are
//! created on a real server, and `EXPLAIN CACHE` is run for each statement through Freshet. The output is in the snapshot `verdicts.txt` beside them,
//! line by line; a difference is a failure that shows what changed. `FRESHET_VERDICTS_WRITE=1` writes the snapshots again. `make verdicts` prints the
//! totals, and with `ARGS=--all` every line; with `ARGS=--full` PostgreSQL's tables have REPLICA IDENTITY FULL, which they do not have in the
//! snapshots.

mod judging;
mod report;
mod structure;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::mysql::support::{Database as MysqlDatabase, Kind, Pair as MysqlPair, RawClient as MysqlClient};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually};
use judging::Verdict;

/// Makes a test for each source, and the list of all of them.
macro_rules! sources {
    ($($family:ident: $($name:ident)*;)*) => {
        $(mod $family {
            $(#[test]
            fn $name() -> anyhow::Result<()> {
                super::is_as_before(super::Source { family: stringify!($family), name: stringify!($name) })
            })*
        })*
        const SOURCES: &[Source] = &[$($(Source { family: stringify!($family), name: stringify!($name) },)*)*];
    };
}

sources! {
    postgresql: bi django pgbench sqlalchemy sysbench tpcc tpch;
    mysql: bi django slap sqlalchemy sysbench tpcc tpch wordpress;
}

/// What PostgreSQL's tables send of old rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Default,
    Full,
}

/// Gives all tables whole images of rows.
const FULL: &str = "
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE 'ALTER TABLE ' || name || ' REPLICA IDENTITY FULL';
    END LOOP;
END $$;
";

/// Statements of one origin.
#[derive(Clone, Copy, Debug)]
struct Source {
    family: &'static str,
    name: &'static str,
}

impl Source {
    fn path(self, file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("verdicts").join(self.family).join(self.name).join(file)
    }

    fn read(self, file: &str) -> Result<String> {
        let path = self.path(file);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// One statement a line, behind which may stand the parameters it had.
    fn statements(self) -> Result<Vec<String>> {
        let own = |line: &str| line.split("; -- $1 = ").next().unwrap_or_default().trim_end_matches(';').to_owned();
        Ok(self.read("statements.sql")?.lines().map(own).collect())
    }

    /// What Freshet says of each; None without a Freshet.
    fn verdicts(self, identity: Identity) -> Result<Option<Vec<Verdict>>> {
        let (statements, mut schema) = (self.statements()?, self.read("schema.sql")?);
        if identity == Identity::Full && self.family == "postgresql" {
            schema.push_str(FULL);
        }
        let Some(mut asked) = Asked::start(self.family, &schema)? else { return Ok(None) };
        // The first one may have to wait until the session is known.
        let mysql = self.family == "mysql";
        eventually(PATIENCE, || {
            let pairs = asked.explain(statements.first().context("no statement")?)?;
            let known = !pairs.iter().any(|(_, value)| value.contains("session"));
            ensure!(known, "{pairs:?}");
            Ok(())
        })?;
        let verdict = |statement: &String| {
            let pairs = asked.explain(statement).with_context(|| statement.clone())?;
            Ok(Verdict::of(statement, &pairs, mysql))
        };
        Ok(Some(statements.iter().map(verdict).collect::<Result<_>>()?))
    }
}

/// A connection through Freshet to a server with the tables.
enum Asked {
    Postgresql(RawClient, #[expect(dead_code, reason = "it ends when this does")] Pair),
    Mysql(MysqlClient, MysqlPair),
}

impl Asked {
    /// None without a Freshet.
    fn start(family: &str, schema: &str) -> Result<Option<Self>> {
        if family == "mysql" {
            let pair = MysqlPair::over(MysqlDatabase::shared(Kind::Mariadb)?, schema, &[])?;
            return Ok(if pair.freshet.is_there() { Some(Self::Mysql(pair.connect()?, pair)) } else { None });
        }
        let pair = Pair::over(Database::shared(Version::V18)?, schema, &[])?;
        if !pair.freshet.is_there() {
            return Ok(None);
        }
        let mut client = pair.connect()?;
        // As Django's sessions are, whatever the machine's own is.
        client.query("SET TimeZone = 'UTC'")?;
        Ok(Some(Self::Postgresql(client, pair)))
    }

    /// Names and values, without the names of the schema and the database that the tables are in.
    fn explain(&mut self, statement: &str) -> Result<Vec<(String, String)>> {
        let asked = format!("EXPLAIN CACHE {statement}");
        let (rows, schema) = match self {
            Self::Postgresql(client, _) => {
                let messages = client.query(&asked)?;
                let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
                let rows =
                    messages.iter().filter(|m| m.tag == b'D').map(|m| m.columns().into_iter().map(text).collect());
                (rows.collect::<Vec<Vec<String>>>(), "public.".to_owned())
            }
            Self::Mysql(client, pair) => {
                let answer = client.query(&asked)?;
                let text = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default).collect();
                (answer.rows().into_iter().map(text).collect(), format!("{}.", pair.database.name))
            }
        };
        let pair = |row: Vec<String>| {
            let [name, value] = <[String; 2]>::try_from(row).ok()?;
            Some((name, value.replace(&schema, "")))
        };
        let pairs: Vec<(String, String)> = rows.into_iter().filter_map(pair).collect();
        ensure!(!pairs.is_empty(), "no answer");
        Ok(pairs)
    }
}

/// The verdicts are those of the snapshot.
fn is_as_before(source: Source) -> Result<()> {
    let Some(verdicts) = source.verdicts(Identity::Default)? else { return Ok(()) };
    let now = report::lines(&verdicts);
    if std::env::var_os("FRESHET_VERDICTS_WRITE").is_some() {
        return std::fs::write(source.path("verdicts.txt"), now).context("writing the snapshot");
    }
    let before = source.read("verdicts.txt").unwrap_or_default();
    let differences = report::differences(&before, &now, &source.statements()?);
    ensure!(
        differences.is_empty(),
        "{}/{}: verdicts differ from the snapshot. FRESHET_VERDICTS_WRITE=1 accepts them.\n{differences}",
        source.family,
        source.name
    );
    Ok(())
}

#[test]
#[ignore = "make verdicts prints it"]
fn printed() -> Result<()> {
    let asked = |option| std::env::var("ARGS").is_ok_and(|arguments| arguments.contains(option));
    let all = asked("--all");
    let identity = if asked("--full") { Identity::Full } else { Identity::Default };
    let mut table = report::Table::default();
    for source in SOURCES {
        let Some(verdicts) = source.verdicts(identity)? else { return crate::clients::left_out("Freshet") };
        if all {
            println!("{}", report::listed(*source, &verdicts, &source.statements()?));
        }
        table.add(*source, &verdicts);
    }
    println!("{table}");
    Ok(())
}
