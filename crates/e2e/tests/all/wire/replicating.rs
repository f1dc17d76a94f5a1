//! Replication connections pass through: the commands, streams in both directions, and the real programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::SCHEMA;
use crate::support::frames::{cancel, frame, query, terminate};
use crate::support::{Database, Login, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    commands,
    a_logical_stream_with_feedback,
    a_physical_stream,
    a_stream_is_cancelled,
    base_backup,
    pg_recvlogical,
    pg_receivewal,
);

fn replicating<'a>(pair: &'a Pair, kind: &str) -> Login<'a> {
    Login {
        more: if kind == "true" { &[("replication", "true")] } else { &[("replication", "database")] },
        ..pair.login()
    }
}

/// A server of its own: slots, base backups and streams of the whole log concern all databases.
fn own_pair(version: Version) -> Result<Pair> {
    let settings = Settings::default().with("wal_sender_timeout = 5s");
    Pair::over(Database::create(version.start(&settings)?)?, SCHEMA, &[])
}

fn row(messages: &[Message]) -> Result<Vec<String>> {
    let row = messages.iter().find(|m| m.tag == b'D').with_context(|| format!("no row: {messages:?}"))?;
    let text = |column: Option<Vec<u8>>| String::from_utf8_lossy(&column.unwrap_or_default()).into_owned();
    Ok(row.columns().into_iter().map(text).collect())
}

fn commands(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    for kind in ["database", "true"] {
        let talk = |address| -> Result<_> {
            let mut client = RawClient::login(address, replicating(&pair, kind))?;
            let mut system = row(&client.query("IDENTIFY_SYSTEM")?)?;
            system[2].clear(); // the position moves
            client.heard.clear();
            for command in [
                "SHOW server_version",
                "SHOW data_directory_mode",
                "TIMELINE_HISTORY 1",
                "READ_REPLICATION_SLOT nothing",
                "START_REPLICATION SLOT nothing PHYSICAL 0/1000000",
                "CREATE_REPLICATION_SLOT \"No Name\" PHYSICAL",
                "DROP_REPLICATION_SLOT nothing",
                "nonsense",
                "select name from item where id = 1",
                "select 1; select 2",
                "BASE_BACKUP (NONSENSE)",
            ] {
                client.query(command)?;
            }
            client.send(&terminate())?;
            ensure!(client.read_unheard()?.is_none(), "something after Terminate");
            Ok((system, client.heard))
        };
        let (direct, through) = (talk(pair.database.address())?, talk(pair.address())?);
        ensure!(direct.0 == through.0, "{:?} {:?}", direct.0, through.0);
        crate::support::ensure_same(&direct.1, &through.1)?;
    }
    Ok(())
}

/// Standby status update: written, flushed and applied up to here, and an answer is wanted.
fn feedback(position: u64) -> Vec<u8> {
    let mut body = vec![b'r'];
    for _ in 0..3 {
        body.extend(position.to_be_bytes());
    }
    body.extend([0; 8]);
    body.push(1);
    frame(b'd', &body)
}

/// The position in a message of the stream.
fn position(message: &Message) -> Result<u64> {
    ensure!(message.tag == b'd', "{message:?}");
    let bytes = message.body.get(9..17).or(message.body.get(1..9)).context("too short")?;
    let at = if message.body.first() == Some(&b'w') { bytes } else { message.body.get(1..9).context("too short")? };
    Ok(u64::from_be_bytes(at.try_into()?))
}

/// What the client confirms is what the server's slot shows; what it asks for is answered.
fn a_logical_stream_with_feedback(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let mut client = RawClient::login(pair.address(), replicating(&pair, "database"))?;
    client.run("CREATE_REPLICATION_SLOT through LOGICAL test_decoding NOEXPORT_SNAPSHOT")?;
    client.send(&query("START_REPLICATION SLOT through LOGICAL 0/0"))?;
    client.until(b'W')?;
    for round in 0..5 {
        pair.database.run(&format!("update log set line = 'streamed {round}' where id = 1"))?;
        let marker = format!("streamed {round}");
        let mut end = 0;
        let mut seen = false;
        while !seen || end == 0 {
            let message = client.read()?;
            end = end.max(position(&message)?);
            seen |= message.body.windows(marker.len()).any(|w| w == marker.as_bytes());
        }
        client.send(&feedback(end))?;
        // Answered by a keepalive, and retained by the slot.
        while client.read()?.body.first() != Some(&b'k') {}
        eventually(PATIENCE, || {
            let sql = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = 'through'";
            let confirmed: u64 = pair.database.connect()?.value(sql)?.parse()?;
            ensure!(confirmed == end, "confirmed {confirmed}, not {end}");
            Ok(())
        })?;
    }
    // Both say goodbye, and the connection speaks SQL again.
    client.send(&frame(b'c', &[]))?;
    client.until(b'Z')?;
    client.query("select name from item where id = 1")?;
    client.run("DROP_REPLICATION_SLOT through")
}

fn a_physical_stream(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let mut client = RawClient::login(pair.address(), replicating(&pair, "true"))?;
    let system = row(&client.query("IDENTIFY_SYSTEM")?)?;
    client.send(&query(&format!("START_REPLICATION PHYSICAL {} TIMELINE 1", system[2])))?;
    client.until(b'W')?;
    // Some megabytes of log, while the client talks as well.
    pair.database.run("create table bulk as select i, repeat(md5(i::text), 20) from generate_series(1, 20000) i")?;
    let mut bytes = 0;
    while bytes < 8_000_000 {
        let message = client.read_unheard()?.context("closed")?;
        bytes += message.body.len();
        client.send(&feedback(position(&message)?))?;
    }
    client.send(&frame(b'c', &[]))?;
    while client.read_unheard()?.context("closed")?.tag != b'Z' {}
    ensure!(row(&client.query("IDENTIFY_SYSTEM")?)?[0] == system[0], "another system");
    Ok(())
}

fn a_stream_is_cancelled(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let talk = |address: std::net::SocketAddr| -> Result<_> {
        let mut client = RawClient::login(address, replicating(&pair, "database"))?;
        let slot = format!("cancelled_{}", address.port());
        client.run(&format!("CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL test_decoding NOEXPORT_SNAPSHOT"))?;
        client.send(&query(&format!("START_REPLICATION SLOT {slot} LOGICAL 0/0")))?;
        client.until(b'W')?;
        let mut canceller = RawClient::open(address)?;
        canceller.send(&cancel(&client.key_data))?;
        ensure!(canceller.read_unheard()?.is_none(), "answered");
        let mut last = client.until(b'E')?;
        Ok(last.pop().and_then(|m| m.field(b'C')))
    };
    let (direct, through) = (talk(pair.database.address())?, talk(pair.address())?);
    ensure!(direct == through, "{direct:?} {through:?}");
    Ok(())
}

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(pair: &Pair) -> Result<Self> {
        let path =
            std::env::temp_dir().join(format!("freshet-e2e-{}-{}", std::process::id(), pair.database.server.port()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One of PostgreSQL's own programs, connected through Freshet.
fn program(pair: &Pair, name: &str, database: &str) -> Command {
    let mut command = Command::new(pair.database.server.installation().program(name));
    let address = pair.address();
    command.arg("--dbname").arg(format!(
        "host={} port={} user={} password={} {database}",
        address.ip(),
        address.port(),
        pair.login().user,
        pair.database.server.password()
    ));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(said)
}

/// Started, and killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn size(directory: &Path, prefix: &str) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            size += entry.metadata()?.len();
        }
    }
    Ok(size)
}

/// `pg_basebackup` uses two connections at once, of which one streams the log; `pg_verifybackup` checks every file.
fn base_backup(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let scratch = Scratch::new(&pair)?;
    let target = scratch.0.join("backup");
    let mut backup = program(&pair, "pg_basebackup", "");
    backup.arg("--pgdata").arg(&target).args(["--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
    run(backup)?;
    let mut verify = Command::new(pair.database.server.installation().program("pg_verifybackup"));
    verify.arg("--no-parse-wal").arg(&target);
    let said = run(verify)?;
    ensure!(said.contains("successfully verified"), "{said}");
    // As a tar file, with the log fetched at the end by the same connection.
    let mut tar = program(&pair, "pg_basebackup", "");
    tar.args(["--pgdata=-", "--format=tar", "--wal-method=fetch", "--checkpoint=fast", "--no-sync"]);
    tar.stdout(fs::File::create(scratch.0.join("backup.tar"))?);
    run(tar)?;
    ensure!(size(&scratch.0, "backup.tar")? > 10_000_000, "a small backup");
    Ok(())
}

fn pg_recvlogical(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let scratch = Scratch::new(&pair)?;
    let file = scratch.0.join("changes");
    let receive = |arguments: &[&str]| {
        let mut command = program(&pair, "pg_recvlogical", &format!("dbname={}", pair.database.name));
        command.args(["--slot=program"]).args(arguments);
        command
    };
    run(receive(&["--create-slot", "--plugin=test_decoding"]))?;
    let mut start = receive(&["--start", "--no-loop", "--fsync-interval=0", "--status-interval=1", "--file"]);
    let mut running = Running(start.arg(&file).spawn()?);
    for round in 0..3 {
        pair.database.run(&format!("update log set line = 'received {round}' where id = 2"))?;
        eventually(PATIENCE, || {
            let changes = fs::read_to_string(&file).unwrap_or_default();
            ensure!(changes.contains(&format!("received {round}")), "not received: {changes}");
            Ok(())
        })?;
    }
    // Interrupted, it says goodbye, and the slot is free.
    freshet_testbed::process::terminate(running.0.id())?;
    eventually(PATIENCE, || running.0.try_wait()?.context("still running"))?;
    eventually(PATIENCE, || run(receive(&["--drop-slot"])))?;
    Ok(())
}

fn pg_receivewal(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    let scratch = Scratch::new(&pair)?;
    let mut receive = program(&pair, "pg_receivewal", "");
    receive.arg("--directory").arg(&scratch.0).args(["--no-loop", "--no-sync", "--status-interval=1"]);
    let mut running = Running(receive.spawn()?);
    // A whole segment, and the beginning of the next.
    pair.database.run("create table bulk as select i, repeat(md5(i::text), 20) from generate_series(1, 30000) i")?;
    pair.database.run("select pg_switch_wal(); insert into log values (50, 'next')")?;
    eventually(PATIENCE, || {
        ensure!(running.0.try_wait()?.is_none(), "it has ended");
        ensure!(size(&scratch.0, "0000")? >= 32 << 20, "not two segments");
        Ok(())
    })?;
    let whole = fs::read_dir(&scratch.0)?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let whole = whole.filter(|name| name.len() == 24).min().context("no complete segment")?;
    let received = fs::read(scratch.0.join(&whole))?;
    let original = fs::read(pair.database.server.data_dir().join("pg_wal").join(&whole))?;
    ensure!(received == original, "{whole} differs");
    Ok(())
}
