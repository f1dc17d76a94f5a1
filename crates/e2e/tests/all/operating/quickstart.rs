//! The quick start: its commands lead to a hit, as they stand on the page but for hosts, ports and file names.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use freshet_testbed::Settings;

use super::configuration::{File, run};
use super::rows;
use crate::documents::code;
use crate::mysql::support as mysql;
use crate::support::{Database, Freshet, Login, PATIENCE, RawClient, Version, eventually, program};

const PAGE: &str = "docs/guide/quickstart.md";

/// The lines in this language below a heading of the page.
fn lines(heading: &str, language: &str) -> Result<Vec<String>> {
    let blocks = code(PAGE, heading)?;
    let all = blocks.iter().filter(|(of, _)| of == language).flat_map(|(_, lines)| lines.lines());
    let all: Vec<String> = all.map(str::to_owned).collect();
    ensure!(!all.is_empty(), "no {language} below {heading}");
    Ok(all)
}

/// A free address.
fn free() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// What the page's names stand for in a test.
struct Names {
    program: std::path::PathBuf,
    config: File,
    http: String,
    /// In place of the page's database.
    database: [String; 2],
}

impl Names {
    fn new(name: &str, page: &str, database: String) -> Result<Option<Self>> {
        let Some(program) = program()? else { return Ok(None) };
        let config = File::new(&format!("quickstart-{name}.toml"), &run(&program, &["config", "default"])?.1)?;
        Ok(Some(Self { program, config, http: free()?, database: [page.to_owned(), database] }))
    }

    /// Runs the commands of a chapter. The service is started with the command of the unit.
    fn serve(&self, heading: &str, direct: SocketAddr) -> Result<Freshet> {
        let mut freshet = None;
        for line in lines(heading, "sh")? {
            let line = line.replace(&self.database[0], &self.database[1]).replace("127.0.0.1:9127", &self.http);
            let line = line.replace("/etc/freshet/freshet.toml", self.config.path());
            match line.as_str() {
                "systemctl enable --now freshet" => freshet = Some(self.start(direct)?),
                _ if line.contains(" probe ") => eventually(PATIENCE, || self.succeeds(&line))?,
                _ => self.succeeds(&line)?,
            }
        }
        freshet.context("the page does not start the service")
    }

    fn start(&self, direct: SocketAddr) -> Result<Freshet> {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/freshet.service");
        let unit = std::fs::read_to_string(unit)?;
        let command =
            unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/freshet ")).context("no command")?;
        let mut service = Command::new(&self.program);
        service.args(command.split(' ').map(|word| word.replace("/etc/freshet/freshet.toml", self.config.path())));
        // The page's port may be in use here.
        service.env("FRESHET_LISTEN", "127.0.0.1:0");
        Freshet::spawn(direct, Some(service))
    }

    fn succeeds(&self, line: &str) -> Result<()> {
        let beside = self.program.parent().context("a directory")?.display();
        let mut shell = Command::new("sh");
        shell.args(["-ec", &format!("PATH={beside}:$PATH; {line}")]).env("FRESHET_HTTP", &self.http);
        let output = shell.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{line}: {} {}", text(&output.stdout), text(&output.stderr));
        Ok(())
    }
}

/// Runs the statements of the last chapter; `value` gives the last column of the answer, a line for each row. The reads are a fill, then a hit, and then the changed row.
fn first_hit(freshet: &Freshet, mut value: impl FnMut(&str) -> Result<String>) -> Result<()> {
    let statements = lines("The first hit", "sql")?;
    let (table, rest) = statements.split_at(2);
    for statement in table {
        value(statement)?;
    }
    let read = rest.get(1).context("no read")?;
    // A table is published after its first read, and until then the page's order shows no hit.
    eventually(PATIENCE, || {
        let before = freshet.metrics()?.hits();
        ensure!(value(read)? == "chair" && value(read)? == "chair", "another name");
        ensure!(freshet.metrics()?.hits() > before, "no hit");
        Ok(())
    })?;
    let mut read_values = Vec::new();
    for statement in rest {
        let answer = value(statement)?;
        match statement {
            read if read.starts_with("SELECT") => read_values.push(answer),
            explain if explain.starts_with("EXPLAIN") => ensure!(answer.lines().any(|line| line == "yes"), "{answer}"),
            show if show.starts_with("SHOW") => ensure!(!answer.is_empty(), "no caches"),
            _ => {}
        }
    }
    ensure!(read_values == ["chair", "chair", "sofa"], "{read_values:?}");
    Ok(())
}

#[test]
fn from_the_page_to_a_hit_on_postgres() -> Result<()> {
    let database =
        Database::create(Version::V18.start(&Settings { wal_level: "replica".into(), ..Settings::default() })?)?;
    let at = format!("{}/{}", database.address(), database.name);
    let Some(names) = Names::new("postgres", "db:5432/shop", at)? else { return Ok(()) };
    for statement in lines("Before PostgreSQL", "sql")? {
        database.run(&statement)?;
    }
    database.server.restart()?;
    let freshet = names.serve("Before PostgreSQL", database.address())?;
    let login = Login { user: "freshet", password: Some("secret"), ..database.login() };
    let mut client = RawClient::login(freshet.address, login)?;
    first_hit(&freshet, |sql| {
        let answer = client.query(sql)?;
        ensure!(answer.iter().all(|message| message.tag != b'E'), "{sql}: {answer:?}");
        let last = |mut row: Vec<String>| row.pop().unwrap_or_default();
        Ok(rows(&answer).into_iter().map(last).collect::<Vec<_>>().join("\n"))
    })
}

#[test]
fn from_the_page_to_a_hit_on_mariadb() -> Result<()> {
    let settings = mysql::Kind::settings();
    let server = mysql::Kind::Mariadb.start(&settings)?;
    let database = mysql::Database::create(server)?;
    let at = format!("{}/{}", database.address(), database.name);
    let Some(names) = Names::new("mariadb", "db:3306/shop", at)? else { return Ok(()) };
    for statement in lines("Before MySQL or MariaDB", "sql")? {
        database.run(&statement)?;
    }
    let freshet = names.serve("Before MySQL or MariaDB", database.address())?;
    let mut client = mysql::RawClient::login(freshet.address, database.login())?;
    let account = mysql::Login { user: "freshet", password: "secret", ..database.login() };
    let mut admin = mysql::RawClient::login(freshet.address, account)?;
    first_hit(&freshet, |sql| {
        let answer = if sql.starts_with("SHOW") { admin.query(sql)? } else { client.query(sql)? };
        ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
        let last = |row: Vec<Option<String>>| row.into_iter().next_back().flatten().unwrap_or_default();
        Ok(answer.rows().into_iter().map(last).collect::<Vec<_>>().join("\n"))
    })
}
