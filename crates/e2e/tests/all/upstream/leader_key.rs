//! Which of several primaries is the right one, where Patroni's members say who holds the leader's key.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use freshet_testbed::{Server, StopMode};

use super::servers::{REASON, ROLE, STATE, port, shows};
use super::start::{Home, command};
use super::{both_hosts, dead_port, expect_value, replicated, serves};
use crate::pooling::until_sessions_wait;
use crate::support::frames::query;
use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, on_both, time_passes};

on_both!(two_primaries_of_one_timeline, an_old_primary_that_comes_back, members_that_do_not_answer);

/// The REST interface of a member, as far as it is asked.
struct Member {
    address: SocketAddr,
    /// What it says; None: it ends each connection.
    says: Arc<Mutex<Option<String>>>,
}

impl Member {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, says) = (listener.local_addr()?, Arc::<Mutex<Option<String>>>::default());
        let told = says.clone();
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(std::result::Result::ok) {
                let body = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let mut request = [0; 4096];
                if client.read(&mut request).is_ok_and(|bytes| request[..bytes].starts_with(b"GET /cluster "))
                    && let Some(body) = body
                {
                    let length = body.len();
                    let _ = write!(client, "HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                }
            }
        });
        Ok(Self { address, says })
    }

    /// From now on it does not answer.
    fn is_silent(&self) {
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// From now on it names this leader, or says that there is none.
    fn says(&self, leader: Option<&Server>) {
        let (role, port) = leader.map_or(("replica", 1), |leader| ("leader", leader.port()));
        let url = format!("http://{}/patroni", self.address);
        let body = format!(
            "{{\"members\": [{{\"name\": \"m\", \"role\": \"{role}\", \"api_url\": \"{url}\", \"host\": \"127.0.0.1\", \
             \"port\": {port}}}], \"scope\": \"shop\"}}"
        );
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }
}

fn start(upstream: &str, members: &[SocketAddr], database: &Database, home: &Home) -> Result<Option<Freshet>> {
    let Some(mut command) = command(Some(upstream), &[], &home.0)? else { return Ok(None) };
    let urls: Vec<_> = members.iter().map(|member| format!("http://{member}")).collect();
    command.args([
        "--auth",
        "trust",
        "--pool",
        "transaction",
        "--failover-timeout",
        "2m",
        "--patroni",
        &urls.join(","),
    ]);
    Ok(Some(Freshet::spawn(database.address(), Some(command))?))
}

/// Waits until clients are led to this server.
fn leads_to(freshet: &Freshet, database: &Database, server: &Server) -> Result<()> {
    eventually(PATIENCE, || {
        let port = port(freshet, database)?;
        ensure!(port == server.port().to_string(), "to {port}");
        Ok(())
    })
}

/// The standby becomes a primary without a new timeline, as an operator may do it who knows no better.
fn two_primaries_of_one_timeline(version: Version) -> Result<()> {
    let ((database, other), home, member) = (replicated(version)?, Home::new()?, Member::start()?);
    other.stop(StopMode::Fast)?;
    fs::remove_file(other.data_dir().join("standby.signal"))?;
    other.start()?;
    let primary = &*database.server;
    let upstream = format!("{}&connect_timeout=2", both_hosts(&database, &other, "primary"));
    member.says(Some(primary));
    let Some(freshet) = start(&upstream, &[member.address], &database, &home)? else { return Ok(()) };
    for (leader, left_out) in [(primary, &other), (&other, primary), (primary, &other)] {
        member.says(Some(leader));
        let row = shows(&freshet, &database, left_out, &[(ROLE, "primary"), (STATE, "left out")])?;
        ensure!(row[REASON].contains("Patroni's leader"), "{row:?}");
        shows(&freshet, &database, leader, &[(ROLE, "primary"), (STATE, "up")])?;
        leads_to(&freshet, &database, leader)?;
    }
    serves(&freshet, &database)?;
    Ok(())
}

/// It comes back before another server was promoted, and nobody holds the key: nothing is written there.
fn an_old_primary_that_comes_back(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    let (member, late) = (Member::start()?, Member::start()?);
    let both = [member.address, late.address];
    let old = &*database.server;
    member.says(Some(old));
    late.says(Some(old));
    let upstream = format!("{}&connect_timeout=2", both_hosts(&database, &standby, "primary"));
    let Some(freshet) = start(&upstream, &both, &database, &home)? else { return Ok(()) };
    serves(&freshet, &database)?;
    // The session that has just written may still have its connection, and would end with it.
    let mut client = RawClient::login(freshet.address, database.login())?;
    old.stop(StopMode::Fast)?;
    // What is sent before Freshet has seen the end of a connection is refused.
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("primary, down"), "{}", freshet.log());
        Ok(())
    })?;
    client.send(&query("insert into film values (500, 'waits')"))?;
    until_sessions_wait(&freshet)?;
    member.says(None);
    late.says(None);
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("Patroni has no leader now"), "{}", freshet.log());
        Ok(())
    })?;
    old.start()?;
    // Sessions ask for a connection several times a second.
    time_passes("the session does not write there", Duration::from_secs(3));
    let written = "select count(*) from film where id = 500";
    expect_value(&mut database.connect()?, written, "0")?;
    // One member reads the new leader's key later than the other; then none answers for some seconds.
    member.says(Some(&standby));
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("do not agree on the leader"), "{}", freshet.log());
        Ok(())
    })?;
    time_passes("the session does not write there", Duration::from_secs(2));
    late.says(Some(&standby));
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains(&format!("leader is 127.0.0.1:{}", standby.port())), "{}", freshet.log());
        Ok(())
    })?;
    member.is_silent();
    late.is_silent();
    time_passes("the session does not write there", Duration::from_secs(3));
    expect_value(&mut database.connect()?, written, "0")?;
    member.says(Some(&standby));
    ensure!(standby.psql("select pg_promote()")? == "t", "not promoted");
    let answer = client.until(b'Z')?;
    ensure!(answer.iter().any(|message| message.tag == b'C'), "{answer:?}");
    expect_value(&mut client, written, "1")?;
    expect_value(&mut database.connect()?, written, "0")?;
    leads_to(&freshet, &database, &standby)
}

/// They are as if nobody had named them.
fn members_that_do_not_answer(version: Version) -> Result<()> {
    let ((database, standby), home, silent) = (replicated(version)?, Home::new()?, Member::start()?);
    let dead = SocketAddr::from((Ipv4Addr::LOCALHOST, dead_port()?));
    let answers = Member::start()?;
    let upstream = format!("{}&connect_timeout=2", both_hosts(&database, &standby, "primary"));
    let members = [dead, silent.address, answers.address];
    let Some(freshet) = start(&upstream, &members, &database, &home)? else { return Ok(()) };
    serves(&freshet, &database)?;
    // The one that answers is believed.
    answers.says(Some(&standby));
    shows(&freshet, &database, &database.server, &[(STATE, "left out")])?;
    // It does not answer any more.
    answers.is_silent();
    shows(&freshet, &database, &database.server, &[(STATE, "up")])?;
    leads_to(&freshet, &database, &database.server)?;
    RawClient::login(freshet.address, database.login())?.run("update film set title = 'again' where id = 1")
}
