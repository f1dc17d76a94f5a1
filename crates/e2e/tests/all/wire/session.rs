//! The start and end of sessions, and events from outside: cancellation, replication, unknown messages.

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::support::frames::{
    bind_text, cancel, execute, frame, gss_request, parse, query, ssl_request, startup_of, sync, unnamed,
};
use crate::support::{Login, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    the_same_start,
    encryption_is_refused_politely,
    newer_protocols_are_negotiated,
    refused_logins,
    cancel_request,
    cancel_request_of_nobody,
    unknown_messages,
    broken_messages,
    a_broken_start,
    function_calls,
    replication,
    many_sessions,
);

/// What may differ between two sessions is left out: the key to cancel with.
fn comparable(messages: Vec<Message>) -> Vec<Message> {
    let mut messages: Vec<_> = messages.into_iter().filter(|m| m.tag != b'K').collect();
    // ParameterStatus may come in any order.
    messages
        .sort_by_key(|m| if m.tag == b'S' { (1, m.body.clone()) } else { (u8::from(m.tag == b'Z') * 2, Vec::new()) });
    messages
}

/// Both ways of logging in are answered the same.
fn same_start(pair: &Pair, login: Login<'_>) -> Result<Vec<Message>> {
    let start = |address| -> Result<_> {
        let mut client = RawClient::open(address)?;
        let messages = comparable(client.start(login)?);
        let closed = messages.last().is_some_and(|m| m.tag == b'E') && client.read_unheard()?.is_none();
        Ok((messages, closed))
    };
    let (direct, through) = (start(pair.database.address())?, start(pair.address())?);
    ensure!(direct == through, "{login:?}\n direct:  {direct:?}\n through: {through:?}");
    Ok(direct.0)
}

fn the_same_start(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let login = pair.login();
    for more in [
        &[][..],
        &[("application_name", "an application")],
        &[("TimeZone", "Europe/Vienna"), ("client_encoding", "LATIN1"), ("extra_float_digits", "2")],
        &[("options", "-c search_path=pg_catalog -c statement_timeout=5s")],
        &[("DateStyle", "SQL, DMY")],
    ] {
        same_start(&pair, Login { more, ..login })?;
        // The settings count from the first statement on.
        let sql = "show search_path; show timezone; select seen, born from public.item where id = 1";
        let ask = |address| RawClient::login(address, Login { more, ..login })?.query(sql);
        let (direct, through) = (ask(pair.database.address())?, ask(pair.address())?);
        ensure!(direct == through, "{more:?}\n direct:  {direct:?}\n through: {through:?}");
    }
    Ok(())
}

fn encryption_is_refused_politely(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(()); // a server may well be built with GSSAPI
    }
    for requests in [vec![gss_request()], vec![ssl_request()], vec![gss_request(), ssl_request()]] {
        let mut client = RawClient::open(pair.address())?;
        for request in &requests {
            client.send(request)?;
            ensure!(client.read_byte()? == b'N', "not refused by N");
        }
        let messages = client.start(pair.login())?;
        ensure!(messages.last().is_some_and(|m| m.tag == b'Z'), "{messages:?}");
        client.expect_silence()?;
    }
    Ok(())
}

fn newer_protocols_are_negotiated(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let login = pair.login();
    let option = ("_pq_.of_the_future", "on");
    let messages = same_start(&pair, Login { more: &[option], ..login })?;
    ensure!(messages.iter().any(|m| m.tag == b'v'), "no NegotiateProtocolVersion: {messages:?}");
    // 3.2, which version 18 speaks, with longer keys to cancel with; older ones answer with what they have.
    let start = |address| -> Result<_> {
        let mut client = RawClient::open(address)?;
        client.send(&startup_of(196_610, &[("user", login.user), ("database", login.database)]))?;
        let messages = client.until(b'Z')?;
        let key = messages.iter().find(|m| m.tag == b'K').context("no BackendKeyData")?.body.len();
        Ok((comparable(messages), key))
    };
    let (direct, through) = (start(pair.database.address())?, start(pair.address())?);
    ensure!(direct == through, "\n direct:  {direct:?}\n through: {through:?}");
    Ok(())
}

fn refused_logins(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let login = pair.login();
    for refused in [
        Login { database: "no_such_database", ..login },
        Login { user: "no_such_user", ..login },
        Login { more: &[("datestyle", "nonsense")], ..login },
        Login { more: &[("no_such_setting", "1")], ..login },
        Login { more: &[("client_encoding", "nonsense")], ..login },
    ] {
        let messages = same_start(&pair, refused)?;
        ensure!(messages.iter().any(|m| m.tag == b'E'), "{refused:?} was let in");
    }
    pair.connect()?.expect_silence()
}

fn cancel_request(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for sleep in [query("select pg_sleep(60)"), [unnamed("select pg_sleep(60)", &[]), sync()].concat()] {
        let mut client = pair.connect()?;
        client.send(&sleep)?;
        wait_until_sleeping(&pair)?;
        let mut canceller = RawClient::open(pair.address())?;
        canceller.send(&cancel(&client.key_data))?;
        ensure!(canceller.read_unheard()?.is_none(), "a CancelRequest is answered by closing the connection");
        let messages = client.until(b'Z')?;
        let code = messages.iter().find(|m| m.tag == b'E').and_then(|m| m.field(b'C'));
        ensure!(code.as_deref() == Some("57014"), "{messages:?}");
        client.expect_silence()?;
    }
    Ok(())
}

fn wait_until_sleeping(pair: &Pair) -> Result<()> {
    let mut watcher = pair.database.connect()?;
    eventually(PATIENCE, || {
        let sql = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        ensure!(watcher.value(sql)? == "1", "nobody sleeps");
        Ok(())
    })
}

fn cancel_request_of_nobody(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut client = pair.connect()?;
    for key in [vec![0; 8], vec![0xff; 8], vec![], vec![1; 260]] {
        let mut canceller = RawClient::open(pair.address())?;
        canceller.send(&cancel(&key))?;
        ensure!(canceller.read_unheard()?.is_none_or(|m| m.tag == b'E'), "an answer to a CancelRequest");
    }
    // A cancellation that comes too late must not hit the next statement for long, nor break the session.
    let mut canceller = RawClient::open(pair.address())?;
    canceller.send(&cancel(&client.key_data))?;
    ensure!(canceller.read_unheard()?.is_none(), "an answer to a CancelRequest");
    eventually(PATIENCE, || client.expect_silence())
}

fn unknown_messages(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    // The server ends the session (FATAL): so must Freshet.
    for bytes in [frame(b'y', b"what is this"), frame(b'p', b"secret\0"), frame(b'T', &[]), frame(0, &[])] {
        pair.same(|c| {
            c.query("select * from item where id = 1")?;
            c.send(&bytes)?;
            ensure!(c.until(b'E')?.len() == 1, "more than an error");
            ensure!(c.read_unheard()?.is_none(), "the session goes on");
            Ok(())
        })?;
    }
    pair.connect()?.expect_silence()
}

fn broken_messages(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for bytes in [
        frame(b'Q', b"select 1"),
        frame(b'Q', b""),
        frame(b'Q', b"select 1\0more\0"),
        [frame(b'P', b"\0select 1\0"), sync()].concat(),
        [frame(b'P', b"\0select 1\0\0\xff"), sync()].concat(),
        [parse("", "select 1"), frame(b'B', b"\0\0\0\x07"), sync()].concat(),
        [parse("", "select $1::int"), frame(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"), sync()].concat(),
        [parse("", "select 1"), bind_text("", "", &[]), frame(b'E', b"\0\0"), sync()].concat(),
        [frame(b'D', b"X\0"), sync()].concat(),
        [frame(b'D', b""), sync()].concat(),
        [frame(b'C', b"?\0"), sync()].concat(),
        frame(b'S', b"surplus"),
        frame(b'Q', b"select '\xff\xfe'\0"),
    ] {
        pair.same(|c| {
            c.send(&bytes)?;
            // The error ends the statement or the session; both are in the transcript.
            while c.read_or_end()?.is_some_and(|tag| tag != b'Z') {}
            Ok(())
        })?;
    }
    pair.connect()?.expect_silence()
}

fn a_broken_start(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0, 0, 0, 4],
        vec![0, 0, 0, 0],
        vec![0xff; 64],
        startup_of(131_072, &[("user", "postgres")]),
        startup_of(196_608, &[("database", "postgres")]),
    ] {
        let mut client = RawClient::open(pair.address())?;
        client.send(&bytes)?;
        // A clear error or a closed connection, at once.
        let answer = client.bytes_to_end()?;
        let said = answer.first().is_none_or(|tag| *tag == b'E');
        ensure!(said, "{} to {}", answer.escape_ascii(), bytes.escape_ascii());
    }
    // A client that says nothing does not keep others out.
    let silent = RawClient::open(pair.address())?;
    pair.connect()?.expect_silence()?;
    drop(silent);
    Ok(())
}

fn function_calls(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    // int4abs (oid 1397) of -5, binary in and out.
    let abs = b"\0\0\x05\x75\0\x01\0\x01\0\x01\0\0\0\x04\xff\xff\xff\xfb\0\x01";
    pair.same(|c| {
        c.exchange(&frame(b'F', abs), 1)?;
        c.exchange(&frame(b'F', b"\0\0\0\x01\0\0\0\0\0\0"), 1)?;
        c.expect_silence()
    })
}

fn replication(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let login = Login { more: &[("replication", "database")], ..pair.login() };
    let talk = |address| -> Result<_> {
        let mut client = RawClient::login(address, login)?;
        let system = client.query("IDENTIFY_SYSTEM")?;
        // The position moves; the rest is the same.
        let row = system.iter().find(|m| m.tag == b'D').context("no row")?.columns();
        client.query("SHOW wal_level")?;
        client.query("CREATE_REPLICATION_SLOT \"nonsense name\" LOGICAL pgoutput")?;
        client.query("select name from item where id = 1")?;
        Ok((row[0].clone(), row[3].clone(), client.heard[system.len()..].to_vec()))
    };
    let (direct, through) = (talk(pair.database.address())?, talk(pair.address())?);
    ensure!(direct == through, "\n direct:  {direct:?}\n through: {through:?}");
    // A stream of changes: CopyBoth, in which both sides talk.
    let mut client = RawClient::login(pair.address(), login)?;
    let slot = format!("{}_through", pair.database.name);
    client.run(&format!("CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL test_decoding NOEXPORT_SNAPSHOT"))?;
    client.send(&query(&format!("START_REPLICATION SLOT {slot} LOGICAL 0/0")))?;
    client.until(b'W')?;
    pair.database.run("update log set line = 'streamed' where id = 1")?;
    loop {
        let message = client.read()?;
        ensure!(message.tag == b'd', "{message:?}");
        if message.body.windows(8).any(|w| w == b"streamed") {
            break;
        }
    }
    client.send(&frame(b'c', &[]))?;
    client.until(b'Z')?;
    Ok(())
}

fn many_sessions(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut clients = (0..60).map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let id = (number + round) % 90 + 1;
            let all =
                [parse("", "select id from item where id = $1"), bind_text("", "", &[&id.to_string()]), execute("", 0)];
            let messages = client.exchange(&[all.concat(), sync()].concat(), 1)?;
            let row = messages.iter().find(|m| m.tag == b'D').context("no row")?.columns();
            ensure!(row == [Some(id.to_string().into_bytes())], "session {number} got {row:?}");
        }
    }
    Ok(())
}
