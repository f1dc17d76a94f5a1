//! Prepared statements with names, over few server connections: the same as direct, and nobody waits for them.

mod conversations;
mod random;

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::{PID, is_silent, shared, shared_by_one, shared_with};
use crate::support::frames::{
    bind_text, close_statement, describe_portal, describe_statement, execute, parse, query, sync,
};
use crate::support::{Message, PATIENCE, Pair, RawClient, Version, connect, ensure_same, eventually, on_both};

on_both!(
    sessions_have_names_of_their_own,
    tables_are_those_of_the_session,
    many_sessions_need_few_connections,
    hits_need_no_connection,
    few_stay_prepared,
    redefined_tables,
    constants_are_read_as_at_the_login,
    functions_that_drop_statements,
    sql_that_names_statements,
    a_driver_with_names,
);

const SCHEMA: &str = "create table t (id int primary key, v int, d date);
    create schema a; create table a.w as select 1 as id, 10 as x;
    create schema b; create table b.w as select 'one'::text as id, 'ten'::text as x;
    insert into t values (1, 10, '2024-01-02'), (2, 20, '2024-03-04');
    create function statements_there() returns bigint language sql as
        'select count(*) from pg_prepared_statements where starts_with(name, ''_freshet_s'')';
    create function drop_all() returns void language plpgsql as $$ begin execute 'deallocate all'; end $$";

/// Messages of one session, and how many times the server will be ready.
type Step = (usize, Vec<u8>, usize);

fn together(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.concat()
}

/// An execution of a named statement.
fn run(name: &str, values: &[&str]) -> Vec<u8> {
    together(&[bind_text("", name, values), describe_portal(""), execute("", 0)])
}

fn prepare(name: &str, sql: &str) -> Vec<u8> {
    together(&[parse(name, sql), describe_statement(name), sync()])
}

fn run_alone(name: &str, values: &[&str]) -> Vec<u8> {
    together(&[run(name, values), sync()])
}

/// Errors without the place in the server's source.
fn comparable(messages: Vec<Message>) -> Vec<Message> {
    let told = |message: &Message| b"SCMDHP".iter().filter_map(|f| message.field(*f)).collect::<Vec<_>>().join("|");
    let comparable = |message: Message| match message.tag {
        b'E' => Message { body: told(&message).into_bytes(), ..message },
        _ => message,
    };
    messages.into_iter().map(comparable).collect()
}

/// What is heard behind each step.
fn play(pair: &Pair, address: SocketAddr, sessions: usize, steps: &[Step]) -> Result<Vec<Vec<Message>>> {
    let mut clients = Vec::new();
    for _ in 0..sessions {
        clients.push(RawClient::login(address, pair.login())?);
    }
    let step = |(at, bytes, ready): &Step| clients[*at].exchange(bytes, *ready).map(comparable);
    steps.iter().map(step).collect()
}

/// The same with a connection for each session, and with shared ones.
fn same(pair: &Pair, sessions: usize, steps: &[Step]) -> Result<()> {
    let direct = play(pair, pair.database.address(), sessions, steps).context("direct")?;
    for time in ["the first time", "the second time"] {
        let through = play(pair, pair.address(), sessions, steps).context(time)?;
        for (step, (direct, through)) in direct.iter().zip(&through).enumerate() {
            ensure_same(direct, through).with_context(|| format!("step {step}, {time}"))?;
        }
    }
    Ok(())
}

fn sessions_have_names_of_their_own(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut steps = vec![
        (0, prepare("s", "select v from t where id = $1::int"), 1),
        (1, prepare("s", "update t set v = v + $1::int returning id, v"), 1),
        (2, prepare("other", "select v from t where id = $1::int"), 1),
    ];
    for round in 0..3 {
        steps.push((0, run_alone("s", &["1"]), 1));
        steps.push((1, run_alone("s", &["0"]), 1));
        steps.push((2, run_alone("other", &["2"]), 1));
        steps.push((round, run_alone("nobody", &[]), 1));
        steps.push((2, run_alone("s", &["2"]), 1));
    }
    steps.push((0, [close_statement("s"), sync()].concat(), 1));
    steps.push((1, run_alone("s", &["0"]), 1));
    steps.push((0, run_alone("s", &["1"]), 1));
    same(&pair, 3, &steps)
}

/// Two schemas have tables of one name with columns of other types. A third session holds a connection, so that the two have different ones.
fn tables_are_those_of_the_session(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 3)?;
    let within = |at: usize, schema: &str, messages: Vec<u8>| {
        let set = query(&format!("set local search_path to {schema}"));
        [(at, query("begin"), 1), (at, set, 1), (at, messages, 1), (at, query("commit"), 1)]
    };
    let text = "select x from w where id = $1";
    let steps = [
        within(0, "b", prepare("s", text)).to_vec(),
        vec![(2, query("begin"), 1), (2, query("select 1"), 1)],
        within(1, "a", prepare("s", text)).to_vec(),
        within(0, "b", run_alone("s", &["one"])).to_vec(),
        within(1, "a", run_alone("s", &["1"])).to_vec(),
        vec![(2, query("commit"), 1)],
        within(0, "b", run_alone("s", &["one"])).to_vec(),
    ];
    same(&pair, 3, &steps.concat())
}

fn many_sessions_need_few_connections(version: Version) -> Result<()> {
    for size in [1, 2] {
        let pair = shared(version, SCHEMA, size)?;
        let (mut clients, mut busy) = (Vec::new(), pair.connect()?);
        for at in 0..30 {
            let mut client = pair.connect()?;
            client.exchange(
                &prepare("s", &format!("update t set v = v + $1::int where id = {} returning v", 1 + at % 2)),
                1,
            )?;
            client.exchange(&prepare("r", "select count(*) from t where v > $1::int"), 1)?;
            clients.push(client);
        }
        for round in 0..3 {
            // All connections are used: one of several waits for its client.
            if size > 1 {
                busy.run(if round % 2 == 0 { "begin; select 1 from t for key share" } else { "rollback" })?;
            }
            for client in &mut clients {
                let told = client.exchange(&run_alone("s", &["1"]), 1)?;
                ensure!(told.iter().any(|message| message.tag == b'D'), "round {round}: {told:?}");
                let told = client.exchange(&run_alone("r", &["0"]), 1)?;
                ensure!(told.iter().any(|message| message.columns() == [Some(b"2".to_vec())]), "{told:?}");
            }
        }
        ensure!(clients[0].value("select sum(v) from t")? == "120");
        // Three texts on each connection, and Freshet's own.
        let sql = "select count(*) from pg_stat_activity where application_name = '' and datname = current_database() \
                   and backend_type = 'client backend' and pid <> pg_backend_pid()";
        let mut direct = pair.database.connect()?;
        ensure!(direct.value(sql)? == size.to_string());
    }
    Ok(())
}

fn hits_need_no_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    for client in [&mut a, &mut b] {
        client.exchange(&prepare("s", "select v from t where id = $1::int"), 1)?;
    }
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        for client in [&mut a, &mut b] {
            client.exchange(&run_alone("s", &["2"]), 1)?;
        }
        ensure!(pair.freshet.metrics()?.hits() == before + 2, "not both are hits");
        Ok(())
    })?;
    b.run("begin; select 1 from t for update")?;
    let before = pair.freshet.metrics()?.hits();
    for _ in 0..5 {
        let told = a.exchange(&run_alone("s", &["2"]), 1)?;
        ensure!(told.iter().any(|message| message.columns() == [Some(b"20".to_vec())]), "{told:?}");
    }
    ensure!(pair.freshet.metrics()?.hits() == before + 5);
    b.run("rollback")
}

fn few_stay_prepared(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 1, &["--max-prepared-statements", "2"])?;
    let mut steps = Vec::new();
    for at in 0..6 {
        steps.push((
            at % 2,
            prepare(&format!("s{at}"), &format!("update t set v = {at} where id = $1::int returning v")),
            1,
        ));
    }
    for round in 0..3 {
        for at in 0..6 {
            let at = (at + round) % 6;
            steps.push((at % 2, run_alone(&format!("s{at}"), &["1"]), 1));
        }
    }
    let all: Vec<Vec<u8>> = (0..6).step_by(2).map(|at| run(&format!("s{at}"), &["2"])).collect();
    steps.push((0, together(&[together(&all), sync()]), 1));
    same(&pair, 2, &steps)?;
    let mut a = pair.connect()?;
    a.exchange(&prepare("s", "select 1"), 1)?;
    let mut b = pair.connect()?;
    b.exchange(&together(&[run("nobody", &[]), sync()]), 1)?;
    for client in [&mut a, &mut b] {
        client.exchange(&prepare("x", "select 2"), 1)?;
        client.exchange(&prepare("y", "select 3"), 1)?;
    }
    let there: u32 = a.value("select statements_there()")?.parse()?;
    ensure!(there == 2, "{there} statements are prepared");
    ensure!(a.value("select count(*) from pg_prepared_statements")? == "3", "the session's own");
    Ok(())
}

fn redefined_tables(version: Version) -> Result<()> {
    let pair = shared(version, "create table w (a int); insert into w values (1)", 2)?;
    let (mut a, mut b, mut c) = (pair.connect()?, pair.connect()?, pair.connect()?);
    let mut direct = pair.database.connect()?;
    let values = |client: &mut RawClient, name: &str| -> Result<Vec<Vec<Option<Vec<u8>>>>> {
        let told = client.exchange(&run_alone(name, &[]), 1)?;
        ensure!(told.iter().all(|message| message.tag != b'E'), "{told:?}");
        Ok(told.iter().filter(|message| message.tag == b'D').map(Message::columns).collect())
    };
    // Both connections have it.
    for client in [&mut a, &mut b] {
        client.exchange(&prepare("s", "select * from w"), 1)?;
        client.run("begin")?;
        values(client, "s")?;
    }
    a.run("commit")?;
    b.run("commit")?;
    direct.run("alter table w add column b int default 2")?;
    c.exchange(&prepare("s", "select * from w"), 1)?;
    for keeper in [&mut a, &mut b] {
        // One connection after the other is in use.
        keeper.run("begin; select 1 from w for share")?;
        ensure!(values(&mut c, "s")?[0].len() == 2);
        keeper.run("commit")?;
    }
    Ok(())
}

fn constants_are_read_as_at_the_login(version: Version) -> Result<()> {
    let pair = shared_by_one(version, SCHEMA, 2)?;
    let date = "update t set v = v where d = '01/02/2024' returning id";
    let steps = |other: usize| {
        vec![
            (0, prepare("s", date), 1),
            (0, query("set datestyle = 'SQL, DMY'"), 1),
            (0, prepare("later", date), 1),
            (0, run_alone("s", &[]), 1),
            (0, run_alone("later", &[]), 1),
            (other, prepare("s", date), 1),
            (other, run_alone("s", &[]), 1),
            (0, query("reset datestyle"), 1),
            (0, run_alone("later", &[]), 1),
            (0, run_alone("s", &[]), 1),
            (other, run_alone("s", &[]), 1),
        ]
    };
    same(&pair, 2, &steps(1))?;
    same(&pair, 1, &steps(0)[..5])?;
    // Another connection than the one where it was prepared, and other settings at once.
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.exchange(&prepare("s", date), 1)?;
    let here = a.value(PID)?;
    b.run("begin")?;
    ensure!(b.value(PID)? == here, "it has the connection");
    a.run("begin; set local datestyle = 'SQL, DMY'")?;
    let told = a.exchange(&run_alone("s", &[]), 1)?;
    ensure!(told.iter().any(|message| message.tag == b'D'), "{told:?}");
    a.run("commit")?;
    b.run("commit")
}

fn functions_that_drop_statements(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    b.exchange(&prepare("s", "select v from t where id = $1::int for share"), 1)?;
    a.run("select drop_all()")?;
    let told = b.exchange(&run_alone("s", &["1"]), 1)?;
    ensure!(told.iter().any(|message| message.tag == b'D'), "{told:?}");
    Ok(())
}

/// What SQL has seen keeps the connection until it is closed.
fn sql_that_names_statements(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.exchange(&prepare("s", "select v from t where id = $1::int"), 1)?;
    b.run("update t set v = v")?;
    ensure!(a.value("execute s(2)")? == "20");
    b.send(&query("update t set v = v"))?;
    ensure!(is_silent(&b)?);
    a.run("deallocate s")?;
    b.until(b'Z')?;
    Ok(())
}

fn a_driver_with_names(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..10 {
            let client = connect(pair.address(), pair.login()).await?;
            let add = client.prepare("update t set v = v + $1 where id = $2").await?;
            let read = client.prepare("select v, d::text from t where id = $1").await?;
            clients.push((client, add, read));
        }
        for round in 0..10_i32 {
            for (at, (client, add, read)) in clients.iter_mut().enumerate() {
                ensure!(client.execute(add, &[&1_i32, &1_i32]).await? == 1);
                let row = client.query_one(read, &[&1_i32]).await?;
                let expected = 10 + round * 10 + i32::try_from(at)? + 1;
                ensure!(row.get::<_, i32>(0) == expected, "round {round}, client {at}: {row:?}");
                let transaction = client.transaction().await?;
                transaction.execute(add, &[&100_i32, &2_i32]).await?;
                ensure!(transaction.query_one(read, &[&2_i32]).await?.get::<_, i32>(0) == 120);
                transaction.rollback().await?;
            }
        }
        Ok(())
    })
}
