//! All connections of an application at once, as after an outage: more than the database accepts, and each is answered.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Settings, process};

use crate::mysql::support::{self as peers, Kind};
use crate::support::frames::startup;
use crate::support::{Database, Freshet, PATIENCE, Pair, Version, files_max, on_both_at_length};

on_both_at_length!(of_postgres);
peers::on_both_at_length!(of_mysql, gone_meanwhile);

/// More than wait for the client's first word at a time, and more than sockets mostly keep for the acceptor.
const CONNECTIONS: usize = 2_500;
/// How long a connection may take that the kernel has room for.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Freshet is stopped meanwhile, so that all come at the same moment. Returns what each heard first.
fn burst(freshet: &Freshet, word: &[u8]) -> Result<Vec<Vec<u8>>> {
    let heard = |mut socket: TcpStream| {
        let mut bytes = vec![0; 512];
        let count = socket.read(&mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    };
    while_stopped(freshet, |count| (0..count).map(|_| open(freshet.address, word)).collect::<Result<Vec<TcpStream>>>())?
        .into_iter()
        .map(heard)
        .collect()
}

/// Opens as many as there is room for.
fn while_stopped<T>(freshet: &Freshet, open: impl FnOnce(usize) -> Result<T>) -> Result<T> {
    let queue: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn")?.trim().parse()?;
    let files = files_max()?.0;
    // Others of these tests run at the same time.
    let room = queue.min(files / 6);
    if room < CONNECTIONS {
        println!("{room} connections: net.core.somaxconn is {queue}, and {files} files may be open");
    }
    let pid = freshet.pid().context("no process")?;
    process::pause(pid)?;
    let opened = open(CONNECTIONS.min(room));
    process::resume(pid)?;
    opened
}

fn open(address: SocketAddr, word: &[u8]) -> Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, CONNECT_MAX).context("no room for a connection")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(word)?;
    Ok(socket)
}

/// Some are let in and the others get the server's own words.
fn answered(heard: &[Vec<u8>], let_in: impl Fn(&[u8]) -> bool, refused: impl Fn(&[u8]) -> bool) -> Result<()> {
    let count = |is: &dyn Fn(&[u8]) -> bool| heard.iter().filter(|bytes| is(bytes)).count();
    let (inside, outside) = (count(&let_in), count(&refused));
    let other =
        heard.iter().find(|bytes| !let_in(bytes) && !refused(bytes)).map(|bytes| bytes.escape_ascii().to_string());
    ensure!(inside + outside == heard.len(), "{inside} let in, {outside} refused, and {other:?} of {}", heard.len());
    ensure!(inside >= 20, "only {inside} of {} were let in", heard.len());
    Ok(())
}

fn of_postgres(version: Version) -> Result<()> {
    let database = Database::create(version.start(&Settings::default().with("max_connections = 50"))?)?;
    let pair = Pair::over(database, "", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let login = pair.login();
    let heard = burst(&pair.freshet, &startup(&[("user", login.user), ("database", login.database)]))?;
    answered(&heard, |bytes| bytes.starts_with(b"R"), |bytes| has(bytes, b"C53300\0"))?;
    pair.connect()?.run("select 1")
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn of_mysql(kind: Kind) -> Result<()> {
    let settings = Kind::settings().with("max-connections = 50");
    let pair = peers::Pair::over(peers::Database::create(kind.start(&settings)?)?, "", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    // The server speaks first.
    let heard = burst(&pair.freshet, b"")?;
    let refused = |bytes: &[u8]| bytes.get(4..7) == Some(&[0xff, 0x10, 0x04]);
    answered(&heard, |bytes| bytes.get(4) == Some(&10), refused)?;
    pair.connect()?.run("select 1")
}

/// Who has given up is not opened a session for.
fn gone_meanwhile(kind: Kind) -> Result<()> {
    let pair = peers::Pair::over(peers::Database::create(kind.start(&Kind::settings())?)?, "", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut direct = pair.database.connect()?;
    let mut opened = || -> Result<usize> {
        let rows = direct.query("SHOW GLOBAL STATUS LIKE 'Connections'")?.rows();
        let value = rows.first().and_then(|row| row.last()?.as_deref()).context("no number")?;
        Ok(value.parse()?)
    };
    let before = opened()?;
    let count = while_stopped(&pair.freshet, |count| {
        for _ in 0..count {
            drop(open(pair.freshet.address, b"")?);
        }
        Ok(count)
    })?;
    // It waits for those before it.
    pair.connect()?.run("select 1")?;
    let after = opened()? - before;
    ensure!(after < count / 10, "{after} sessions for {count} clients that were gone");
    Ok(())
}
