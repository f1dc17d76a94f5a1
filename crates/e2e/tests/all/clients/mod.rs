//! Real programs and drivers work unchanged.
//!
//! Each session is a program or a script with the real library. It runs directly and through Freshet, over the same data, and must print the same
//! both times: rows, errors, command tags. Its cacheable reads are repeated, so that the run through Freshet is served from the cache as well, and
//! the test fails if none was. Programs that are missing on a machine are skipped; `FRESHET_TEST_STRICT=1` makes this a failure for all that
//! `script/setup test` installs.

mod examples;
pub(crate) mod languages;
pub(crate) mod python;
mod tools;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::support::Pair;

/// The data of most of these sessions. Created again for each run, so that all of them begin with the same data.
const SCHEMA: &str = "
    create table film (id int primary key, title text not null, genre text, votes int not null default 0);
    insert into film select i, 'film ' || i, case i % 3 when 0 then 'drama' when 1 then 'comedy' end, i
        from generate_series(1, 200) i;
    create table role (film_id int not null references film, actor text not null, primary key (film_id, actor));
    insert into role select i % 200 + 1, 'actor ' || i from generate_series(1, 500) i;";

/// Seconds after which a program is ended: it hangs.
const SECONDS_MAX: &str = "400";
/// Runs through Freshet until enough of a program's reads came from the cache.
const RUNS_MAX: usize = 5;

/// Which way a program goes to the database.
#[derive(Clone, Copy)]
struct Way<'a> {
    pair: &'a Pair,
    through: bool,
}

impl Way<'_> {
    fn address(self) -> SocketAddr {
        if self.through { self.pair.address() } else { self.pair.database.address() }
    }

    /// A command that connects there: its environment says so, and it is ended should it hang.
    fn command(self, program: &Path) -> Command {
        let address = self.address();
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX).arg(program).current_dir(std::env::temp_dir()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        command.env("PGHOST", address.ip().to_string()).env("PGPORT", address.port().to_string());
        command.env("PGUSER", self.pair.login().user).env("PGDATABASE", self.pair.login().database);
        // The programs' messages and the order of names, in any surroundings.
        command.env("PGPASSWORD", self.pair.database.server.password()).env("LC_ALL", "C.UTF-8");
        command
    }

    /// The path of a program of the server's own version.
    fn program(self, name: &str) -> PathBuf {
        self.pair.database.server.installation().program(name)
    }
}

/// Everything the program prints, errors where they occur; `status`: how it has to end.
fn output_of(command: &Command, status: i32) -> Result<String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    let output = shell.stdin(Stdio::null()).output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(status), "{command:?} ended with {}:\n{printed}", output.status);
    Ok(printed)
}

/// The session prints the same directly and through Freshet, where at least so many of its reads came from the cache.
fn same(pair: &Pair, schema: &str, hits: u64, session: impl Fn(Way<'_>) -> Result<String>) -> Result<()> {
    let fresh = format!("drop schema public cascade; create schema public; {schema}");
    pair.database.run(&fresh)?;
    let direct = session(Way { pair, through: false })?;
    let mut seen = 0;
    for _ in 0..RUNS_MAX {
        pair.database.run(&fresh)?;
        let before = pair.freshet.metrics()?;
        let through = session(Way { pair, through: true })?;
        ensure_same(&direct, &through)?;
        let after = pair.freshet.metrics()?;
        seen = after.hits() - before.hits();
        if seen >= hits || !pair.freshet.is_there() {
            return Ok(());
        }
        eprintln!("{seen} hits, not {hits}: {:?}", after.passed_since(&before));
    }
    bail!("{seen} hits in the last of {RUNS_MAX} runs, not {hits}")
}

/// The lines that are compared.
fn lines(printed: &str, wanted: impl Fn(&str) -> bool) -> String {
    printed.split_inclusive('\n').filter(|line| wanted(line)).collect()
}

/// Fails with the first line that differs.
pub(crate) fn ensure_same(direct: &str, through: &str) -> Result<()> {
    let (mut direct_lines, mut through_lines) = (direct.lines(), through.lines());
    for line in 1.. {
        match (direct_lines.next(), through_lines.next()) {
            (None, None) => return Ok(()),
            (direct, through) if direct == through => {}
            (expected, got) => bail!("line {line} differs\n direct:  {expected:?}\n through: {got:?}"),
        }
    }
    Ok(())
}

/// Fails in strict runs, else says that a client is left out.
pub(crate) fn left_out(what: &str) -> Result<()> {
    let strict = std::env::var_os("FRESHET_TEST_STRICT").is_some();
    ensure!(!strict, "{what}: run script/setup test");
    eprintln!("left out: {what}; run script/setup test");
    Ok(())
}
