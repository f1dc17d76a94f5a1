//! MariaDB's extended capabilities with its own connectors: columns that are not described again, bulk executions, extended types, and `-1` for the
//! statement prepared last.

use anyhow::{Result, ensure};

use super::super::SCHEMA;
use crate::mysql::support::packets::{self, Value, capability, counted};
use crate::mysql::support::{Kind, Login, Packet, Pair, RawClient, ensure_same};
use crate::support::{PATIENCE, eventually, rest};

/// `MARIADB_CLIENT_STMT_BULK_OPERATIONS`, `_EXTENDED_METADATA`, `_CACHE_METADATA`.
const EXTENDED: u32 = 1 << 2 | 1 << 3 | 1 << 4;
/// `COM_STMT_BULK_EXECUTE`
const BULK: u8 = 0xfa;
/// Stands for the statement prepared last.
const LAST: u32 = u32::MAX;

/// A connection with these capabilities, of an account without a password.
fn connect(address: std::net::SocketAddr, login: Login<'_>) -> Result<RawClient> {
    let mut client = RawClient::open(address)?;
    let mut response = login.response(&[]);
    // The bit that says whether the reserved bytes are MySQL's.
    response[0] &= !(capability::LONG_PASSWORD as u8);
    response[28..32].copy_from_slice(&EXTENDED.to_le_bytes());
    client.reply(&response)?;
    let last = client.read()?;
    ensure!(last.payload.first() == Some(&0), "login refused: {last:?}");
    Ok(client)
}

/// Sends commands in one go and reads their answers, whatever they are made of: up to that of a ping behind them.
fn commands(client: &mut RawClient, payloads: &[Vec<u8>]) -> Result<()> {
    for payload in payloads.iter().chain([&packets::ping()]) {
        client.send(payload)?;
    }
    let mut answers = 0;
    while answers <= payloads.len() {
        // Each answer is counted anew.
        answers += usize::from(client.read()?.sequence == 1);
    }
    Ok(())
}

fn command(client: &mut RawClient, payload: Vec<u8>) -> Result<()> {
    commands(client, &[payload])
}

/// `COM_STMT_BULK_EXECUTE` of a text and an integer for each row, with types.
fn bulk(statement: u32, rows: &[(Option<&str>, i32)]) -> Vec<u8> {
    let mut payload = vec![BULK];
    payload.extend(statement.to_le_bytes());
    payload.extend(128_u16.to_le_bytes());
    payload.extend([253, 0, 3, 0]);
    for (text, number) in rows {
        // 1 says NULL.
        payload.extend(text.map_or(vec![1], |text| [&[0], counted(text.as_bytes()).as_slice()].concat()));
        payload.push(0);
        payload.extend(number.to_le_bytes());
    }
    payload
}

fn conversation(client: &mut RawClient) -> Result<()> {
    // A text result with types behind the types.
    command(client, packets::query("SELECT JSON_OBJECT('a', 1), POINT(1, 2), id FROM item WHERE id < 3"))?;
    let number = |client: &RawClient| client.heard.iter().rev().find_map(prepared);
    command(client, packets::prepare("SELECT id, name FROM item WHERE id = ?"))?;
    let read = number(client).unwrap_or_default();
    for value in [1, 2, 1, 1, 77, 1] {
        command(client, packets::execute(read, &[Value::Int(value)]))?;
    }
    command(client, packets::prepare("INSERT INTO log (line, n) VALUES (?, ?)"))?;
    let write = number(client).unwrap_or_default();
    command(client, bulk(write, &[(Some("one"), 1), (Some("two"), 2), (Some("ünïcode ✓"), -3)]))?;
    command(client, bulk(LAST, &[(Some("last"), 4)]))?;
    // No text where there has to be one: the row is refused.
    command(client, bulk(write, &[(Some("five"), 5), (None, 6)]))?;
    command(client, packets::query("SELECT line, n FROM log ORDER BY id"))?;
    command(client, packets::query("TRUNCATE TABLE log"))?;
    // The columns of a table that has changed are described again.
    command(client, packets::query("ALTER TABLE item ADD more INT"))?;
    command(client, packets::execute(read, &[Value::Int(1)]))?;
    command(client, packets::query("ALTER TABLE item DROP more"))?;
    for value in [1, 1, 1] {
        command(client, packets::execute(read, &[Value::Int(value)]))?;
    }
    last_prepared(client)
}

/// Prepared and executed in one go, without waiting for the number; also where it cannot be prepared.
fn last_prepared(client: &mut RawClient) -> Result<()> {
    for sql in ["SELECT name FROM item WHERE id = ?", "SELECT nothing FROM item WHERE id = ?"] {
        for _ in 0..2 {
            commands(client, &[packets::prepare(sql), packets::execute(LAST, &[Value::Int(2)])])?;
        }
    }
    command(client, packets::query("SELECT name FROM item WHERE id = 1"))
}

/// The number of a statement that this packet says is prepared.
fn prepared(packet: &Packet) -> Option<u32> {
    match (packet.sequence, packet.payload.as_slice()) {
        (1, [0, a, b, c, d, _, _, _, _, 0, ..]) => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

#[test]
fn of_mariadb() -> Result<()> {
    let pair = Pair::in_session_mode(Kind::Mariadb, SCHEMA)?;
    let user = format!("{}_user", pair.database.name);
    pair.database.run(&format!("CREATE USER {user}@'%' IDENTIFIED BY ''; GRANT ALL ON *.* TO {user}@'%'"))?;
    for capabilities in [capability::MODERN, capability::OLD] {
        let login = Login { user: &user, password: "", capabilities, ..pair.login() };
        let transcript = |address| {
            let mut client = connect(address, login)?;
            conversation(&mut client)?;
            Ok::<_, anyhow::Error>(client.heard.into_iter().map(without_number).collect::<Vec<_>>())
        };
        let direct = transcript(pair.database.address())?;
        // Until some of its reads come from the cache.
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            // A difference is not mended by trying again.
            ensure_same(&direct, &transcript(pair.address())?).unwrap_or_else(|error| panic!("{error:#}"));
            let after = pair.freshet.metrics()?;
            ensure!(after.hits() > before.hits() || !pair.freshet.is_there(), "{:?}", after.passed_since(&before));
            rest();
            Ok(())
        })?;
    }
    pair.database.run(&format!("DROP USER {user}@'%'"))
}

/// Statements are numbered among all sessions.
fn without_number(mut packet: Packet) -> Packet {
    if prepared(&packet).is_some() {
        packet.payload[1..5].fill(0);
    }
    packet
}
