//! Logins by every plugin, with and without TLS, and what follows them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_net::mysql::{Client, ConnectError, Error, ServerVersion, Upstream, open};
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld, Tls};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::handshake::{self, Handshake};
use freshet_wire::mysql::packet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::{runtime, with_both};

/// A certificate for 127.0.0.1 in a directory of its own.
fn certificate(directory: &Path) -> Result<Tls> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let (cert, key) = (directory.join("made.crt"), directory.join("made.key"));
    std::fs::write(&cert, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok(Tls { cert, key, client_ca: None })
}

fn temporary(name: &str) -> Result<std::path::PathBuf> {
    let directory = std::env::temp_dir().join(format!("freshet-net-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The logged-in user, and the cipher.
async fn login(server: &Mysqld, user: &str, password: &str, options: &str) -> Result<(String, bool), ConnectError> {
    let url = format!("mariadb://{user}:{password}@{}/freshet?{options}", server.address());
    let mut client = Client::connect(&Upstream::parse(&url).expect("a good URL")).await?;
    let rows = client.query("SELECT CURRENT_USER()").await.map_err(ConnectError::Protocol)?;
    let cipher = client.query("SHOW STATUS LIKE 'Ssl_cipher'").await.map_err(ConnectError::Protocol)?;
    let encrypted = cipher[0][1].as_deref().is_some_and(|cipher| !cipher.is_empty());
    client.close().await;
    Ok((rows[0][0].clone().unwrap_or_default(), encrypted))
}

async fn logs_in(server: &Mysqld, user: &str, password: &str, options: &str) -> Result<bool> {
    let what = || format!("{user} {options}");
    let (who, encrypted) = login(server, user, password, options).await.with_context(what)?;
    ensure!(who == format!("{user}@%"), "{who}");
    Ok(encrypted)
}

fn is_denied(outcome: &Result<(String, bool), ConnectError>) -> bool {
    matches!(outcome, Err(ConnectError::Refused(error)) if error.code == 1045 && error.sqlstate == "28000")
}

#[test]
fn mariadb_logs_in() -> Result<()> {
    let directory = temporary("mariadb")?;
    let tls = certificate(&directory)?;
    let server = Mariadb::start(&MysqlSettings::default().with_tls(tls.clone()))?;
    server.sql(
        "CREATE USER native IDENTIFIED VIA mysql_native_password USING PASSWORD('pass wörd');
         CREATE USER open IDENTIFIED BY '';
         CREATE USER safe IDENTIFIED BY 'secret' REQUIRE SSL;
         GRANT ALL ON freshet.* TO native, open, safe;",
    )?;
    let authority = tls.cert.display();
    runtime().block_on(async {
        for options in ["ssl-mode=preferred", "ssl_mode=REQUIRED", "", &format!("ssl-ca={authority}")] {
            ensure!(logs_in(&server, "native", "pass%20w%C3%B6rd", options).await?, "{options} is not encrypted");
        }
        let verified = format!("ssl-mode=verify-identity&ssl-ca={authority}");
        ensure!(logs_in(&server, "safe", "secret", &verified).await?);
        ensure!(!logs_in(&server, "native", "pass%20w%C3%B6rd", "ssl-mode=disabled").await?);
        ensure!(!logs_in(&server, "open", "", "ssl-mode=disabled").await?);
        ensure!(is_denied(&login(&server, "safe", "secret", "ssl-mode=disabled").await));
        ensure!(is_denied(&login(&server, "native", "wrong", "").await));
        ensure!(is_denied(&login(&server, "nobody", "secret", "").await));
        let other = certificate(&temporary("other")?)?;
        let unknown = login(&server, "safe", "secret", &format!("ssl-ca={}", other.cert.display())).await;
        ensure!(matches!(unknown, Err(ConnectError::Tls(_))), "{unknown:?}");
        let socket = format!("socket={}", server.directory().join("sock").display());
        ensure!(!logs_in(&server, "native", "pass%20w%C3%B6rd", &socket).await?);
        let missing = login(&server, "native", "pass%20w%C3%B6rd", "socket=/nowhere").await;
        ensure!(matches!(&missing, Err(ConnectError::Tcp(error)) if error.to_string().contains("/nowhere")));
        anyhow::Ok(())
    })?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[test]
fn mysql_logs_in() -> Result<()> {
    // It generates a certificate, which is not used here, and a key pair.
    let server = Mysql::start(&MysqlSettings::default())?;
    let long = "long".repeat(40);
    for plugin in ["mysql_native_password", "caching_sha2_password", "sha256_password"] {
        let name = &plugin[..plugin.len() - 9];
        server.sql(&format!(
            "CREATE USER {name} IDENTIFIED WITH {plugin} BY 'pass wörd';
             CREATE USER {name}_long IDENTIFIED WITH {plugin} BY '{long}';
             CREATE USER {name}_open IDENTIFIED WITH {plugin} BY '';
             GRANT ALL ON freshet.* TO {name}, {name}_long, {name}_open;",
        ))?;
    }
    runtime().block_on(async {
        for name in ["mysql_native", "caching_sha2", "sha256"] {
            for mode in ["disabled", "preferred"] {
                // The server forgets the proofs: the first login uses full authentication, the second the fast one.
                server.sql("FLUSH PRIVILEGES")?;
                let options = format!("ssl-mode={mode}");
                for _ in 0..2 {
                    // This server has no cipher in common with Freshet.
                    let encrypted = logs_in(&server, name, "pass%20w%C3%B6rd", &options).await?;
                    ensure!(!encrypted, "{name} {mode}");
                }
                logs_in(&server, &format!("{name}_long"), &long, &options).await?;
                logs_in(&server, &format!("{name}_open"), "", &options).await?;
                for _ in 0..2 {
                    let denied = login(&server, name, "wrong", &options).await;
                    ensure!(is_denied(&denied), "{name} {mode}: {denied:?}");
                }
            }
        }
        server.sql("FLUSH PRIVILEGES")?;
        let socket = format!("socket={}", server.directory().join("sock").display());
        logs_in(&server, "caching_sha2", "pass%20w%C3%B6rd", &socket).await?;
        let encrypted = login(&server, "caching_sha2", "pass%20w%C3%B6rd", "ssl-mode=required").await;
        ensure!(matches!(&encrypted, Err(ConnectError::Tls(error)) if error.to_string().contains("8.0.16")));
        Ok(())
    })
}

#[test]
fn tls_that_is_not_there_is_told() -> Result<()> {
    let server = Mariadb::start(&MysqlSettings::default())?;
    runtime().block_on(async {
        let outcome = login(&server, "root", server.password(), "ssl-mode=required").await;
        ensure!(matches!(outcome, Err(ConnectError::NoTls)), "{outcome:?}");
        ensure!(!logs_in(&server, "root", server.password(), "ssl-mode=preferred").await?);
        let opened = open(&Upstream::parse(&server.url())?).await?;
        let version = ServerVersion::parse(&opened.parse()?.server_version);
        ensure!(version.is_mariadb && version.is_at_least(10, 11, 0) && opened.rest.is_empty(), "{version:?}");
        Ok(())
    })
}

#[test]
fn statements_are_answered() -> Result<()> {
    with_both(&["max-allowed-packet = 64M", "log-bin = binlog", "binlog-format = ROW", "server-id = 1"], |server| {
        let upstream = Upstream::parse(&server.url())?;
        runtime().block_on(async {
            let mut client = Client::connect(&upstream).await?;
            let rows = client.query("SELECT 1, NULL, 'ü' UNION SELECT 2, 'x', ''").await?;
            let text = |text: &str| Some(text.to_owned());
            ensure!(rows == [[text("1"), None, text("ü")], [text("2"), text("x"), text("")]], "{rows:?}");
            ensure!(client.query("SET @a = 1").await?.is_empty());
            let missing = client.query("SELECT * FROM missing").await;
            ensure!(matches!(&missing, Err(error) if error.code() == Some(1146)), "{missing:?}");
            let great = client.query("SELECT REPEAT('x', 17000000)").await?;
            ensure!(great[0][0].as_ref().map(String::len) == Some(17_000_000));
            let great = format!("SELECT LENGTH('{}')", "y".repeat(17_000_000));
            ensure!(client.query(&great).await? == [[text("17000000")]]);
            client.command(b"\x0e").await?;
            ensure!(matches!(client.command(b"\x7f").await, Err(Error::Server(_))) && !client.is_dead());

            let limit = Duration::from_millis(300);
            let slow = client.query_timeout("SELECT SLEEP(1000)", limit).await;
            ensure!(matches!(slow, Err(Error::Timeout(_))) && client.is_dead(), "{slow:?}");
            ensure!(matches!(client.query("SELECT 1").await, Err(Error::Dead)));
            let mut client = Client::connect(&upstream).await?;
            let running = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'";
            while client.query(running).await? != [[text("0")]] {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let dropped = timeout(Duration::from_millis(50), client.query("SELECT SLEEP(1)")).await;
            ensure!(dropped.is_err() && matches!(client.query("SELECT 1").await, Err(Error::Dead)));
            timeout(Duration::from_secs(60), binlog(&upstream)).await.context("the event does not come")?
        })
    })
}

/// A stream of packets, received in many small steps.
async fn binlog(upstream: &Upstream) -> Result<()> {
    let mut writer = Client::connect(upstream).await?;
    writer.query("CREATE TABLE written (x LONGBLOB)").await?;
    let place = writer.query("SHOW MASTER STATUS").await?;
    let (file, at) = (place[0][0].as_deref().context("a file")?, place[0][1].as_deref().context("a position")?);
    let mut reader = Client::connect(upstream).await?;
    reader.query("SET @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4").await?;
    let mut dump = vec![0x12];
    dump.extend_from_slice(&at.parse::<u32>()?.to_le_bytes());
    dump.extend_from_slice(&[0, 0, 77, 0, 0, 0]);
    dump.extend_from_slice(file.as_bytes());
    reader.send_command(&dump).await?;
    let mut events = Vec::new();
    let mut wrote = false;
    while !events.iter().any(|event: &Vec<u8>| event.len() > 20_000_000) {
        let mut receive = std::pin::pin!(timeout(Duration::from_micros(300), reader.receive_packet()));
        if let Ok(event) = receive.as_mut().await {
            events.push(event?);
        } else if !wrote {
            writer.query("INSERT INTO written VALUES (REPEAT('z', 20000000))").await?;
            wrote = true;
        }
    }
    ensure!(events.iter().all(|event| event[0] == 0), "an event is no event");
    ensure!(events[0].windows(file.len()).any(|window| window == file.as_bytes()), "no ROTATE first");
    ensure!(matches!(reader.query("SELECT 1").await, Err(Error::Dead)));
    Ok(())
}

/// A server that asks for the clear-text password gets none where others could read it.
#[test]
fn clear_text_needs_privacy() -> Result<()> {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("mysql://me:secret@{}/", listener.local_addr()?);
        let server = async {
            let (mut socket, _) = listener.accept().await?;
            let capabilities = Capabilities::PROTOCOL_41
                .with(Capabilities::SECURE_CONNECTION)
                .with(Capabilities::PLUGIN_AUTH)
                .with(Capabilities::MYSQL);
            let hello = Handshake {
                server_version: b"8.0.0".to_vec(),
                connection_id: 1,
                capabilities,
                character_set: 45,
                status: freshet_wire::mysql::capabilities::Status::AUTOCOMMIT,
                nonce: vec![7; handshake::NONCE_BYTES],
                plugin: handshake::NATIVE.to_vec(),
            };
            let (mut out, mut sequence) = (Vec::new(), 0);
            packet::put_with(&mut out, &mut sequence, |out| hello.put(out));
            socket.write_all(&out).await?;
            let mut heard = vec![0; 4096];
            let read = socket.read(&mut heard).await?;
            ensure!(read > 36, "no response");
            let mut out = Vec::new();
            packet::put(&mut out, &mut 2, b"\xfemysql_clear_password\0");
            socket.write_all(&out).await?;
            // The client closes the connection without an answer.
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await?;
            ensure!(rest.is_empty(), "{}", rest.escape_ascii());
            ensure!(!heard.windows(6).any(|window| window == b"secret"));
            anyhow::Ok(())
        };
        let upstream = Upstream::parse(&url)?;
        let client = async {
            let outcome = Client::connect(&upstream).await.map(drop);
            ensure!(matches!(outcome, Err(ConnectError::ClearText)), "{outcome:?}");
            anyhow::Ok(())
        };
        let (server, client) = tokio::join!(server, client);
        server?;
        client
    })
}
