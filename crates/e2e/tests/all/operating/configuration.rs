//! The configuration file: what is wrong with it is told, a change is followed without loss, and SHOW CONFIG tells what is
//! in force and why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, ensure};

use super::{SCHEMA, connect_as, reader, rows, sqlstate};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::support::{Database, Freshet, LISTEN, PATIENCE, Pair, RawClient, Version, eventually, program, rest};

/// A file of this test, removed at the end.
pub(super) struct File(PathBuf);

impl File {
    pub(super) fn new(name: &str, text: &str) -> Result<Self> {
        let file = Self(std::env::temp_dir().join(format!("freshet-{}-{name}", std::process::id())));
        file.write(text)?;
        Ok(file)
    }

    /// In one step, as editors and orchestrators do it.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        let new = self.0.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(&new, &self.0)?)
    }

    pub(super) fn path(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Nothing else needs it.
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) fn run(program: &Path, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok((status.code(), text(&stdout), text(&stderr)))
}

/// SHOW CONFIG's row of this key: value, default, whether it is changeable, source, value after a restart.
fn row(rows: &[Vec<String>], key: &str) -> Result<Vec<String>> {
    let row = rows.iter().find(|row| row.first().is_some_and(|name| name == key));
    Ok(row.with_context(|| format!("no {key} in {rows:?}"))?.get(1..).unwrap_or_default().to_vec())
}

fn until_shown(client: &mut RawClient, freshet: &Freshet, key: &str, value: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let now = row(&rows(&client.query("SHOW CONFIG")?), key)?;
        ensure!(now.first().is_some_and(|now| now == value), "{key}: {now:?}; the log:\n{}", freshet.log());
        Ok(())
    })
}

pub(crate) fn until_logged(freshet: &Freshet, text: &str) -> Result<()> {
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains(text), "no {text:?} in the log:\n{}", freshet.log());
        Ok(())
    })
}

#[test]
fn what_is_wrong_with_a_file_is_told_at_once() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let bad = File::new(
        "bad.toml",
        "upstream = \"mysql://u:geheim@127.0.0.1:1/\"\nmax_stalenes = \"1s\"\nmemory = \"much\"\nbypass = 1\nauth = \"pam\"\n",
    )?;
    let path = bad.path();
    let expected = format!(
        "{path}:2:1: unknown key \"max_stalenes\": is max_staleness meant?\n\
         {path}:3:10: memory: \"much\": invalid digit found in string: a size is 65536, 512MiB or 2GiB\n\
         {path}:4:10: bypass: expected true or false, not a number\n\
         {path}:5:8: auth: \"pam\": expected \"auto\", \"trust\" or \"cert\"\n"
    );
    for more in [&["--check-config"][..], &[]] {
        let said = run(&program, &[&["serve", "--config", path], more].concat())?;
        ensure!(said == (Some(78), String::new(), expected.clone()), "{said:?}");
    }
    // Keys that need each other, wherever they come from; a file of users that is not there.
    bad.write("upstream = \"mysql://u:geheim@127.0.0.1:1/\"\ntls_key = \"/nowhere\"\n")?;
    let said = run(&program, &["serve", "--config", path, "--check-config", "--listen", "here"])?;
    ensure!(said.0 == Some(78) && said.2.starts_with("--listen: \"here\" is neither"), "{said:?}");
    ensure!(said.2.ends_with(&format!("{path}:2:11: tls_key: tls_cert must be given as well\n")), "{said:?}");
    bad.write("upstream = \"mysql://u:geheim@127.0.0.1:1/\"\nusers = \"/nowhere\"\n")?;
    let said = run(&program, &["serve", "--config", path, "--check-config"])?;
    ensure!(said.0 == Some(78) && said.2.contains("/nowhere") && !said.2.contains("geheim"), "{said:?}");
    bad.write("upstream = \"mysql://u:geheim@127.0.0.1:1/\"\n")?;
    let said = run(&program, &["serve", "--config", path, "--check-config"])?;
    ensure!(said == (Some(0), "the configuration can be used\n".to_owned(), String::new()), "{said:?}");
    // What has no effect, with the remedy.
    for (text, remedy) in [
        ("upstream = \"postgres://u@127.0.0.1:1,127.0.0.1:2/d\"\nauth = \"trust\"\n", "pool = \"transaction\""),
        ("upstream = \"postgres://u@127.0.0.1:1/d\"\nauth = \"trust\"\npool = \"transaction\"\n", "one host"),
        ("upstream = \"postgres://u@127.0.0.1:1,127.0.0.1:2/d\"\npool = \"transaction\"\n", "auth_query"),
        ("upstream = \"postgres://u@127.0.0.1:1,127.0.0.1:2/d\"\nauth = \"trust\"\npool = \"transaction\"\n", ""),
    ] {
        bad.write(&format!("{text}read_replicas = true\n"))?;
        let said = run(&program, &["serve", "--config", path, "--check-config"])?;
        let lines: Vec<&str> = said.2.lines().filter(|line| line.contains("read_replicas does nothing")).collect();
        let is_right = if remedy.is_empty() { lines.is_empty() } else { lines.len() == 1 && lines[0].contains(remedy) };
        ensure!(said.0 == Some(0) && is_right, "{text}: {said:?}");
    }
    let text = "upstream = \"postgres://u@127.0.0.1:1,127.0.0.1:2/d\"\nauth = \"trust\"\npool = \"transaction\"\nread_replicas = true\n";
    for (name, is_known) in [("127.0.0.1:2", true), ("db9", false)] {
        bad.write(&format!("{text}replica_weights = [\"{name}=2\"]\nreplica_lag_max = \"10s\"\n"))?;
        let said = run(&program, &["serve", "--config", path, "--check-config"])?;
        let says = said.2.contains("db9 is no server of upstream, whose servers are 127.0.0.1:1, 127.0.0.1:2");
        ensure!(said.0 == Some(0) && says != is_known, "{said:?}");
    }
    bad.write("upstream = \"postgres://u@127.0.0.1:1,127.0.0.1:2/d\"\nreplica_lag_max = \"10s\"\n")?;
    let said = run(&program, &["serve", "--config", path, "--check-config"])?;
    ensure!(said.0 == Some(0) && said.2.contains("replica_lag_max does nothing"), "{said:?}");
    // The environment.
    let mut command = Command::new(&program);
    let Output { status, stderr, .. } =
        command.args(["serve", "--config", path]).env("FRESHET_VERIFY", "2").output()?;
    let said = String::from_utf8_lossy(&stderr);
    ensure!(status.code() == Some(78) && said == "FRESHET_VERIFY: \"2\": expected a number from 0 to 1\n", "{said}");
    Ok(())
}

#[test]
fn a_pgbouncer_ini_is_imported() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let ini = File::new("p.ini", "[databases]\nshop = host=127.0.0.1 user=app\n[pgbouncer]\nserver_round_robin = 1\n")?;
    let path = ini.path();
    let strict = run(&program, &["config", "import", path])?;
    ensure!(strict.0 == Some(1) && strict.1.is_empty(), "{strict:?}");
    ensure!(strict.2.starts_with(&format!("{path}:4: server_round_robin: Freshet has no such setting")), "{strict:?}");
    let (code, toml, _) = run(&program, &["config", "import", path, "--lenient"])?;
    ensure!(code == Some(0) && toml.contains(&format!("# no counterpart: {path}:4: server_round_robin")), "{toml}");
    let made = File::new("p.toml", &toml)?;
    let said = run(&program, &["serve", "--check-config", "--config", made.path()])?;
    ensure!(said.0 == Some(0), "{said:?}");
    Ok(())
}

/// Reads all the time on connections that must not be lost.
fn load<T>(pair: &Pair, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    let read = || -> Result<u64> {
        let (mut client, mut count) = (pair.connect()?, 0);
        while !stop.load(Relaxed) {
            ensure!(client.value("select title from film where id = 1")? == "film 1", "another answer");
            count += 1;
        }
        client.expect_silence()?;
        Ok(count)
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        let outcome = work();
        stop.store(true, Relaxed);
        for reader in readers {
            let count = reader.join().expect("no panic")?;
            ensure!(count > 0, "nothing was read");
        }
        outcome
    })
}

/// A Freshet with a file; the variables of the environment beside it.
pub(super) fn start(database: Database, file: &File, more: &[&str], variables: &[(&str, &str)]) -> Result<Pair> {
    let mut command = program()?.map(Command::new);
    if let Some(command) = &mut command {
        command.args(["serve", "--config", file.path()]).args(LISTEN).args(more).envs(variables.iter().copied());
    }
    let freshet = Freshet::spawn(database.address(), command)?;
    freshet.wait_ready()?;
    Ok(Pair { freshet, database })
}

#[test]
fn a_change_of_the_file_is_followed_without_loss() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    let upstream = format!("upstream = \"{}\"\n", database.url());
    let file = File::new("changed.toml", &format!("{upstream}memory = \"128MiB\"\npublication = \"freshet\"\n"))?;
    let pair = start(database, &file, &["--verify", "0.5"], &[("FRESHET_COMMIT_WAIT", "50ms")])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut admin, freshet) = (pair.connect()?, &pair.freshet);
    until_hit(&pair, &mut admin, "select title from film where id = 1")?;
    let shown = rows(&admin.query("SHOW CONFIG")?);
    let shows = |key: &str, expected: [&str; 5]| -> Result<()> {
        let row = row(&shown, key)?;
        ensure!(row == expected, "{key}: {row:?}");
        Ok(())
    };
    shows("memory", ["128MiB", "512MiB", "yes", "file", ""])?;
    shows("verify", ["0.5", "0", "yes", "command line", ""])?;
    shows("commit_wait", ["50ms", "100ms", "yes", "environment", ""])?;
    shows("max_staleness", ["1s", "1s", "yes", "default", ""])?;
    shows("publication", ["freshet", "freshet", "no", "file", ""])?;

    load(&pair, || follow(&pair, &file, &upstream, &mut admin))?;

    // An open session of an admin user who is none any more.
    let other = reader(&pair, "ops")?;
    file.write(&format!("{upstream}memory = \"64MiB\"\nadmin_users = [\"{other}\"]\n"))?;
    eventually(PATIENCE, || {
        ensure!(sqlstate(&admin.query("SHOW CONFIG")?).as_deref() == Some("42501"), "it still may");
        Ok(())
    })?;
    ensure!(sqlstate(&admin.query("RELOAD")?).as_deref() == Some("42501"), "it still may");
    let shown = rows(&connect_as(&pair, &other)?.query("SHOW CONFIG")?);
    ensure!(row(&shown, "admin_users")?.first() == Some(&other), "{shown:?}");
    // The password is neither shown nor logged.
    let password = pair.login().password.unwrap_or_default();
    let upstream = row(&shown, "upstream")?;
    ensure!(upstream.first().is_some_and(|value| !value.is_empty() && !value.contains(password)), "{upstream:?}");
    ensure!(!password.is_empty() && !freshet.log().contains(&format!(":{password}@")), "{}", freshet.log());
    Ok(())
}

/// Changes of all kinds, while others read.
fn follow(pair: &Pair, file: &File, upstream: &str, admin: &mut RawClient) -> Result<()> {
    let freshet = &pair.freshet;
    // By itself. What the command line says wins, and what needs a restart stays.
    file.write(&format!(
        "{upstream}memory = \"64MiB\"\nverify = 1\nmax_staleness = \"2s\"\npublication = \"other\"\n"
    ))?;
    until_shown(admin, freshet, "memory", "64MiB")?;
    let shown = rows(&admin.query("SHOW CONFIG")?);
    ensure!(row(&shown, "verify")? == ["0.5", "0", "yes", "command line", ""], "{shown:?}");
    ensure!(row(&shown, "publication")? == ["freshet", "freshet", "no", "file", "other"], "{shown:?}");
    let status = rows(&admin.query("SHOW FRESHET STATUS")?);
    for (name, value) in [("memory_limit_bytes", "67108864"), ("staleness_max_seconds", "2.000")] {
        ensure!(status.contains(&vec![name.to_owned(), value.to_owned()]), "{status:?}");
    }
    until_logged(freshet, "the file has changed: memory is \"64MiB\", it was \"128MiB\"")?;
    until_logged(freshet, "publication stays \"freshet\": \"other\" needs a restart")?;

    // What a statement sets is temporary, and shown as such; another change does not undo it.
    admin.run("FRESHET MEMORY 33554432")?;
    ensure!(row(&rows(&admin.query("SHOW CONFIG")?), "memory")? == ["33554432", "512MiB", "yes", "run time", ""]);
    file.write(&format!("{upstream}memory = \"64MiB\"\nmax_staleness = \"3s\"\n"))?;
    let changes = eventually(PATIENCE, || {
        let changes = rows(&admin.query("RELOAD")?);
        let shown = rows(&admin.query("SHOW CONFIG")?);
        ensure!(row(&shown, "max_staleness")?.first().is_some_and(|value| value == "3s"), "{shown:?}");
        Ok(changes)
    })?;
    // Either the statement or the look at the file was first.
    ensure!(changes.is_empty() || changes == [["max_staleness", "2s", "3s", "in force"]], "{changes:?}");
    ensure!(row(&rows(&admin.query("SHOW CONFIG")?), "memory")?.first().is_some_and(|value| value == "33554432"));

    // A broken file changes nothing, by whatever way it is read.
    file.write(&format!("{upstream}memory = \"1GiB\"\nmax_staleness = \"soon\"\n"))?;
    let place = format!("{}:3:17: max_staleness: \"soon\": ", file.path());
    until_logged(freshet, &place)?;
    let refused = admin.query("RELOAD")?;
    let message = refused.iter().find_map(|message| message.field(b'M')).unwrap_or_default();
    ensure!(sqlstate(&refused).as_deref() == Some("F0000") && message.starts_with(&place), "{refused:?}");
    let hangup = Command::new("kill").args(["-HUP", &freshet.pid().context("a pid")?.to_string()]).status()?;
    ensure!(hangup.success());
    until_logged(freshet, "SIGHUP: the configuration is not read again, the earlier one stays in use")?;
    let shown = rows(&admin.query("SHOW CONFIG")?);
    ensure!(row(&shown, "max_staleness")?.first().is_some_and(|value| value == "3s"), "{shown:?}");

    // What is logged.
    file.write(&format!("{upstream}memory = \"64MiB\"\nlog = \"error\"\n"))?;
    until_shown(admin, freshet, "log", "error")?;
    file.write(&format!("{upstream}memory = \"64MiB\"\n"))?;
    until_shown(admin, freshet, "log", "info")?;
    rest();
    Ok(())
}

#[test]
fn the_example_is_served() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    let Some(program) = program()? else { return Ok(()) };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/freshet.toml");
    let example = example.to_str().context("a path")?;
    let said = run(&program, &["serve", "--check-config", "--config", example])?;
    ensure!(said.0 == Some(0), "{said:?}");
    // Other addresses, and the password in a file of its own.
    let login = database.login();
    let secret = File::new("secret", &format!("{}\n", login.password.unwrap_or_default()))?;
    let upstream = format!("postgres://{}@{}/{}", login.user, database.address(), database.name);
    let mut command = Command::new(program);
    command.args(["serve", "--config", example]).args(LISTEN);
    command.envs([("FRESHET_UPSTREAM", upstream.as_str()), ("FRESHET_UPSTREAM_PASSWORD_FILE", secret.path())]);
    let freshet = Freshet::spawn(database.address(), Some(command))?;
    freshet.wait_ready()?;
    ensure!(freshet.metrics()?.value("freshet_memory_limit_bytes") > 1e9, "the file was not read");
    Ok(())
}

/// The same in MySQL's words, with the password on the command line.
#[test]
fn on_mariadb() -> Result<()> {
    let database = mysql::Database::shared(mysql::Kind::Mariadb)?;
    let file = File::new("mariadb.toml", "memory = \"128MiB\"\n")?;
    let pair = mysql::Pair::over(database, "", &["--config", file.path()])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut admin = pair.connect()?;
    let text = |cells: Vec<Option<String>>| cells.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    let mut shown =
        |sql: &str| -> Result<Vec<Vec<String>>> { Ok(admin.query(sql)?.rows().into_iter().map(text).collect()) };
    ensure!(row(&shown("SHOW CONFIG")?, "memory")? == ["128MiB", "512MiB", "yes", "file", ""]);
    file.write("memory = \"64MiB\"\n")?;
    eventually(PATIENCE, || {
        shown("RELOAD")?;
        ensure!(row(&shown("SHOW CONFIG")?, "memory")?.first().is_some_and(|value| value == "64MiB"));
        Ok(())
    })?;
    let warned = "the password in --upstream can be read in the process list";
    ensure!(pair.freshet.log().contains(warned), "{}", pair.freshet.log());
    file.write("memory = 1\nmemory = 2\n")?;
    let error = admin.query("RELOAD")?.error().context("no error")?;
    ensure!(error.0 == 1105 && error.2.contains("mariadb.toml:2:1: "), "{error:?}");
    Ok(())
}
