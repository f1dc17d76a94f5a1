//! The start of a connection: capabilities offered and agreed on, and refusals.

mod extensions;

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, capability};
use crate::mysql::support::programs::mariadb;
use crate::mysql::support::{Kind, Login, Packet, Pair, RawClient, on_both};

on_both!(
    the_same_offer,
    capabilities,
    collations,
    attributes,
    refused_logins,
    another_plugin_first,
    no_database,
    broken_starts,
    many_sessions,
    clients_that_would_compress,
);

fn the_same_offer(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut direct = RawClient::open(pair.database.address())?.handshake;
    if pair.is_shared() && kind == Kind::Mariadb {
        // Sessions that share prepared statements have no cached column definitions.
        direct.reserved[6] &= !(1 << 4);
    }
    let through = RawClient::open(pair.address())?.handshake;
    ensure!(direct.comparable() == through.comparable(), "\n direct:  {direct:?}\n through: {through:?}");
    ensure!(through.nonce.len() == 20 && through.nonce != direct.nonce, "{through:?}");
    if pair.freshet.is_there() {
        let not_offered = capability::COMPRESS | capability::ZSTD | capability::SSL;
        ensure!(through.capabilities & not_offered == 0, "{:#x}", through.capabilities);
    }
    Ok(())
}

fn capabilities(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let login = pair.login();
    let without = |flags: u32| capability::MODERN & !flags;
    for capabilities in [
        capability::PROTOCOL_41 | capability::SECURE_CONNECTION,
        without(capability::DEPRECATE_EOF),
        without(capability::SESSION_TRACK),
        without(capability::PLUGIN_AUTH | capability::PLUGIN_AUTH_LENENC | capability::CONNECT_ATTRS),
        without(capability::MULTI_STATEMENTS),
        without(capability::TRANSACTIONS),
        capability::MODERN | capability::FOUND_ROWS,
        capability::MODERN | capability::IGNORE_SPACE,
        capability::MODERN | capability::INTERACTIVE,
    ] {
        pair.same_as(Login { capabilities, ..login }, |c| {
            for _ in 0..2 {
                c.query("SELECT id, name FROM item WHERE id < 3 ORDER BY id")?;
                c.query("UPDATE item SET name = name WHERE id = 1")?;
                c.query("SELECT 1; SELECT 2")?;
                c.query("SELECT COUNT (*) FROM item")?;
                c.query("SET NAMES utf8mb4")?;
                c.query("SELECT @@wait_timeout = @@interactive_timeout")?;
            }
            let statement = c.prepare("SELECT id, name FROM item WHERE id = ?")?;
            c.execute(statement, &[packets::Value::Int(1)])?;
            c.expect_silence()
        })
        .with_context(|| format!("{capabilities:#x}"))?;
    }
    Ok(())
}

fn collations(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let login = pair.login();
    // latin1_swedish_ci, utf8_general_ci, utf8mb4_general_ci, utf8mb4_bin, binary, one that is not there.
    for collation in [8, 33, 45, 46, 63, 1] {
        pair.same_as(Login { collation, ..login }, |c| {
            for _ in 0..2 {
                c.query("SELECT @@character_set_client, @@character_set_results, @@collation_connection")?;
                c.query("SELECT name FROM item WHERE id = 5")?;
                c.query("SELECT name FROM item WHERE name = 'ITEM 1'")?;
                c.query("SELECT COUNT(*) FROM item WHERE name = 'ünïcode ✓'")?;
            }
            c.expect_silence()
        })
        .with_context(|| format!("collation {collation}"))?;
    }
    Ok(())
}

fn attributes(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let long = "x".repeat(3000);
    let pairs = [("program_name", "a test"), ("empty", ""), ("long", &long)];
    for attributes in [[].as_slice(), &pairs] {
        let login = Login { attributes, ..pair.login() };
        pair.same_as(login, |c| c.query("SELECT name FROM item WHERE id = 1").map(drop))?;
    }
    Ok(())
}

/// The packet that ends the login.
fn refusal(address: std::net::SocketAddr, login: Login<'_>) -> Result<Packet> {
    let mut client = RawClient::open(address)?;
    let last = client.start(login)?;
    ensure!(last.payload.first() == Some(&0xff), "{last:?}");
    ensure!(client.bytes_to_end()?.is_empty(), "said after the refusal");
    Ok(last)
}

fn refused_logins(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let login = pair.login();
    for wrong in [
        Login { password: "wrong", ..login },
        Login { password: "", ..login },
        Login { user: "nobody", ..login },
        Login { user: "", ..login },
        Login { database: Some("no_such_database"), ..login },
    ] {
        let direct = refusal(pair.database.address(), wrong)?;
        let through = refusal(pair.address(), wrong)?;
        ensure!(direct == through, "{wrong:?}\n direct:  {direct:?}\n through: {through:?}");
    }
    // A refused client may connect again, and others were not disturbed.
    pair.connect()?.expect_silence()
}

/// The client begins with a plugin that is not the account's: the server asks it to switch.
fn another_plugin_first(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let login = pair.login();
    // Not among them is mysql_clear_password, which Freshet hands on over TLS alone.
    for plugin in ["caching_sha2_password", "client_ed25519", "no_such_plugin"] {
        pair.same_as(Login { plugin, ..login }, |c| c.query("SELECT name FROM item WHERE id = 1").map(drop))?;
    }
    Ok(())
}

fn no_database(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let login = Login { database: None, ..pair.login() };
    pair.same_as(login, |c| {
        c.query("SELECT DATABASE()")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        let qualified = format!("SELECT name FROM {}.item WHERE id = 1", pair.database.name);
        c.query(&qualified)?;
        c.query(&qualified)?;
        c.query(&format!("USE {}", pair.database.name))?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.expect_silence()
    })
}

/// Messages that no client sends. The server may answer or only close; the connection ends in both cases, and no other is affected.
fn broken_starts(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let complete = pair.login().response(&[7; 20]);
    let starts: [&[u8]; 6] =
        [&[], &[0], &complete[..20], &complete[..40], &[0xff; 100], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"];
    for start in starts {
        for address in [pair.database.address(), pair.address()] {
            let mut client = RawClient::open(address)?;
            client.reply(start)?;
            // A start that says it is longer than it is waits for more: the client gives up.
            client.socket()?.shutdown(std::net::Shutdown::Write)?;
            client.bytes_to_end()?;
        }
    }
    drop(RawClient::open(pair.address())?);
    pair.connect()?.expect_silence()
}

fn many_sessions(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let mut clients = (0..100).map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
    let mut ids: Vec<u32> = clients.iter().map(|client| client.handshake.connection).collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == 100, "{} connections have numbers of their own", ids.len());
    for client in &mut clients {
        let id = client.value("SELECT CONNECTION_ID()")?;
        ensure!(id == client.handshake.connection.to_string(), "{id} instead of {}", client.handshake.connection);
        client.run("SELECT name FROM item WHERE id = 1")?;
    }
    Ok(())
}

/// Compression is not offered: a client that would like it does without.
fn clients_that_would_compress(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let run = |address| {
        let mut command = mariadb(address, pair.login().user, pair.login().password, &pair.database.name);
        command.args(["--compress", "-e", "SELECT name FROM item; SHOW STATUS LIKE 'Compression'"]);
        let output = command.output().context("the mariadb program")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (direct, through) = (run(pair.database.address())?, run(pair.address())?);
    ensure!(direct.contains("Compression\tON"), "{direct}");
    if pair.freshet.is_there() {
        ensure!(through == direct.replace("Compression\tON", "Compression\tOFF"), "{through}");
    }
    Ok(())
}
