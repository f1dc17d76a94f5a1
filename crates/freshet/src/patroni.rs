//! Asks Patroni's members who the leader is: `GET /cluster` of its REST interface.
//!
//! Each member reads the leader's key where all of them keep it (etcd, …). One that cannot read it answers with an error, and counts as silent. The
//! key decides only which primaries are *not* used: that the leader is a primary, its server says itself ([`freshet_proxy::Servers`]).

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use freshet_proxy::Leader;
use freshet_proxy::postgres::{Pg, service};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout};

use crate::endpoint::Endpoint;

/// Interval of questions.
const EVERY: Duration = Duration::from_secs(1);
/// Time for one answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long the last word counts if nobody answers.
const HELD: Duration = Duration::from_secs(10);
/// Patroni's default.
const PORT: u16 = 8008;
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The REST interface of a member, as host:port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberUrl(String);

impl FromStr for MemberUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let authority = text.strip_prefix("http://").map(|rest| rest.split_once('/').map_or(rest, |(host, _)| host));
        let authority = authority.filter(|host| !host.contains('@'));
        let (host, port) = authority.and_then(split).ok_or("a member is http://host:port, such as http://db1:8008")?;
        Ok(Self(format!("{host}:{port}")))
    }
}

/// Host and port.
fn split(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        // An address of IPv6.
        Some(_) if authority.ends_with(']') => (authority, PORT),
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)?),
        None => (authority, PORT),
    };
    let is_host = !host.is_empty() && (host.starts_with('[') == host.contains(':'));
    is_host.then_some((host, port))
}

/// What Patroni says at `/cluster`, as far as it decides.
#[derive(Deserialize)]
struct ClusterView {
    members: Vec<MemberView>,
    #[serde(default)]
    pause: bool,
}

#[derive(Deserialize)]
struct MemberView {
    #[serde(default)]
    role: String,
    host: Option<String>,
    port: Option<u16>,
    api_url: Option<String>,
}

/// What one member says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// The address of the leader's server, and the host of its REST interface.
    Leader {
        server: String,
        rest: String,
    },
    Nobody,
    /// Nothing that decides: a paused cluster goes on without a leader, and the leader of a standby cluster is no primary.
    Nothing,
}

/// What all of them say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Is(Leader),
    Nothing,
    /// The leader is this server, which is none of the upstream's.
    Unknown(String),
    Silence,
}

/// Starts the watch, if members are given. The first service logins wait for the first word.
pub(crate) fn watch(pg: &Arc<Pg>, members: &[MemberUrl]) {
    let conninfo = pg.own.upstream.conninfo();
    if !members.is_empty() && conninfo.hosts.len() > 1 && conninfo.target_session_attrs.is_for_primaries() {
        pg.own.upstream.hold();
        pg.tasks.spawn(ask_again(pg.clone(), members.to_vec()));
    }
}

/// Never returns.
async fn ask_again(pg: Arc<Pg>, members: Vec<MemberUrl>) {
    let hosts: Vec<_> = pg.own.upstream.conninfo().hosts.iter().map(|host| host.address.to_string()).collect();
    let began = Instant::now();
    let (mut heard, mut told, mut is_first) = (None, None, true);
    let mut answering = vec![true; members.len()];
    loop {
        let asked = Instant::now();
        pg.servers.note_asking(asked.into_std());
        let word = round(&pg, &members, (&hosts, &mut answering), asked).await;
        let is_whole = word.is_some();
        if word.as_ref().is_some_and(|word| *word != Word::Silence) {
            heard = Some(asked);
        }
        // A round that did not end says nothing.
        if let Some(word) = word.filter(|word| heard.is_none() || *word != Word::Silence || has_expired(heard)) {
            if !matches!(word, Word::Is(_)) {
                service::note_leader(&pg, None, asked.into_std());
            }
            if told.as_ref() != Some(&word) {
                tell(&word);
                told = Some(word);
            }
        }
        if std::mem::take(&mut is_first) {
            service::choose_from(&pg, began + PATIENCE).await;
        }
        if is_whole {
            tokio::select! {
                () = sleep_until(asked + EVERY) => {}
                () = pg.servers.wants_leader() => {}
            }
        }
    }
}

fn has_expired(heard: Option<Instant>) -> bool {
    heard.is_none_or(|heard| heard.elapsed() > HELD)
}

/// Says why the key decides nothing.
fn tell(word: &Word) {
    match word {
        Word::Is(_) => {}
        Word::Nothing => tracing::info!(
            "Patroni's cluster is paused without a leader, or is a standby cluster: the servers' roles decide alone"
        ),
        Word::Unknown(server) => tracing::warn!(
            "Patroni names {server} as its leader, which upstream does not name (by that name): the servers' roles decide alone"
        ),
        Word::Silence => {
            tracing::warn!("Patroni's members do not say who the leader is: the servers' roles decide alone");
        }
    }
}

/// Asks all members at once, and notes who is the leader: as soon as those have answered that did so the last time (`answering`), and once all others
/// have, or are late. Fewer must not decide: one of them may be behind. After a round without an answer it is those of the last one that had some. None: they must be asked again before all have answered.
async fn round(
    pg: &Arc<Pg>,
    members: &[MemberUrl],
    (hosts, answering): (&[String], &mut Vec<bool>),
    asked: Instant,
) -> Option<Word> {
    let ask_one = async |(at, member)| (at, ask(member).await);
    let mut pending: FuturesUnordered<_> = members.iter().enumerate().map(ask_one).collect();
    let (mut answers, mut done) = (Vec::new(), vec![None; members.len()]);
    loop {
        let answer = tokio::select! {
            answer = pending.next() => answer,
            () = pg.servers.wants_leader() => return None,
        };
        let Some((at, answer)) = answer else {
            if !answers.is_empty() {
                *answering = done.into_iter().map(|answered| answered == Some(true)).collect();
            }
            return Some(word(&answers, hosts));
        };
        if let Some(done) = done.get_mut(at) {
            *done = Some(answer.is_some());
        }
        answers.extend(answer);
        let are_there = answering.iter().zip(&done).all(|(answers, done)| !answers || done.is_some());
        if let (true, Word::Is(leader)) = (are_there, word(&answers, hosts)) {
            service::note_leader(pg, Some(leader), asked.into_std());
        }
    }
}

/// None: it does not answer as it should.
async fn ask(MemberUrl(address): &MemberUrl) -> Option<Said> {
    let endpoint = Endpoint::plain(address.clone(), ANSWER_BYTES_MAX);
    let (status, body) = timeout(PATIENCE, endpoint.get("/cluster")).await.ok()?.ok()?;
    if status == 200 { read(&body) } else { None }
}

fn read(body: &str) -> Option<Said> {
    let ClusterView { members, pause } = serde_json::from_str(body).ok()?;
    let has_role = |role: &str| members.iter().find(|member| member.role == role);
    if let Some(MemberView { host, port, api_url, .. }) = has_role("leader") {
        let (host, port) = (host.as_ref()?, port.as_ref()?);
        let rest = api_url.as_ref().and_then(|url| url.parse::<MemberUrl>().ok());
        let rest = rest.and_then(|MemberUrl(address)| Some(split(&address)?.0.to_owned())).unwrap_or_default();
        let server = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        return Some(Said::Leader { server, rest });
    }
    let decides = !pause && !members.is_empty() && has_role("standby_leader").is_none();
    Some(if decides { Said::Nobody } else { Said::Nothing })
}

/// What all members say that answer.
fn word(answers: &[Said], hosts: &[String]) -> Word {
    let nothing = answers.iter().filter(|said| **said == Said::Nothing).count();
    if nothing > 0 && nothing == answers.len() {
        return Word::Nothing;
    }
    if nothing > 0 || answers.is_empty() {
        return Word::Silence;
    }
    let (mut named, mut has_nobody) = (Vec::new(), false);
    for said in answers {
        let Said::Leader { server, rest } = said else {
            has_nobody = true;
            continue;
        };
        match place(server, rest, hosts) {
            None => return Word::Unknown(server.clone()),
            Some(at) if named.contains(&at) => {}
            Some(at) => named.push(at),
        }
    }
    named.sort_unstable();
    Word::Is(match named[..] {
        [] => Leader::Nobody,
        [at] if !has_nobody => Leader::At(at),
        _ => Leader::OneOf(named),
    })
}

/// Where the upstream names the server: by its address, or by the host of its REST interface, if only one of the upstream's servers is there.
fn place(server: &str, rest: &str, hosts: &[String]) -> Option<usize> {
    let is_at_rest = |host: &String| host.rsplit_once(':').is_some_and(|(host, _)| host == rest);
    let by_rest = || {
        let mut found = (0..hosts.len()).filter(|at| hosts.get(*at).is_some_and(is_at_rest));
        found.next().filter(|_| found.next().is_none())
    };
    hosts.iter().position(|host| host == server).or_else(by_rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = r#"{"members": [
        {"name": "m1", "role": "sync_standby", "state": "streaming", "api_url": "http://10.0.0.1:8008/patroni", "host": "10.0.0.1", "port": 5432},
        {"name": "m2", "role": "leader", "state": "running", "api_url": "http://10.0.0.2:8008/patroni", "host": "10.0.0.2", "port": 5432, "timeline": 3}
        ], "scope": "shop"}"#;

    fn urls(texts: &[&str]) -> Vec<MemberUrl> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn urls_are_read() {
        let read = urls(&["http://db1", "http://db1:8009/", "http://[::1]:1"]);
        assert_eq!(read.into_iter().map(|url| url.0).collect::<Vec<_>>(), ["db1:8008", "db1:8009", "[::1]:1"]);
        for wrong in
            ["db1:8008", "https://db1", "http://", "http://a:b@db1", "http://db1:80080", "http://db1:", "http://::1"]
        {
            assert!(wrong.parse::<MemberUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_leader_is_found_by_its_address() {
        let said = read(CLUSTER).unwrap();
        assert_eq!(said, Said::Leader { server: "10.0.0.2:5432".into(), rest: "10.0.0.2".into() });
        let of = |answers: &[Said], names: &[&str]| {
            word(answers, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let both = [said.clone(), said.clone()];
        let unknown = Word::Unknown("10.0.0.2:5432".into());
        assert_eq!(of(&both, &["10.0.0.2:5432", "10.0.0.1:5432"]), Word::Is(Leader::At(0)));
        assert_eq!(of(&both, &["db1:5432", "db2:5432"]), unknown, "nobody knows which of the names it is");
        assert_eq!(of(&both, &["db1:5432", "10.0.0.2:6432"]), Word::Is(Leader::At(1)), "behind another port");
        assert_eq!(of(&both, &["10.0.0.2:6432", "10.0.0.2:6433"]), unknown, "one of two there");
        let hosts = ["10.0.0.1:5432", "10.0.0.2:5432"];
        let other = read(&CLUSTER.replace("sync_standby", "leader")).unwrap();
        assert_eq!(of(&[said.clone(), other], &hosts), Word::Is(Leader::OneOf(vec![0, 1])));
        assert_eq!(of(&[Said::Nobody, said.clone()], &hosts), Word::Is(Leader::OneOf(vec![1])));
        assert_eq!(of(&[Said::Nobody], &hosts), Word::Is(Leader::Nobody));
        assert_eq!((of(&[], &hosts), of(&[said, Said::Nothing], &hosts)), (Word::Silence, Word::Silence));
        assert_eq!(of(&[Said::Nothing], &hosts), Word::Nothing);
    }

    #[test]
    fn a_cluster_without_a_leader() {
        let replica = CLUSTER.replace("\"leader\"", "\"replica\"");
        assert_eq!(read(&replica), Some(Said::Nobody));
        assert_eq!(read(&replica.replace("\"scope\"", "\"pause\": true, \"scope\"")), Some(Said::Nothing));
        assert_eq!(read(&CLUSTER.replace("\"leader\"", "\"standby_leader\"")), Some(Said::Nothing));
        assert_eq!(read("{\"members\": []}"), Some(Said::Nothing));
        assert_eq!((read("{}"), read("not found")), (None, None));
    }
}
