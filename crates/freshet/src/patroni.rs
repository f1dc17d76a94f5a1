//! Asks Patroni's members who the leader is: `GET /cluster` of its REST interface.
//!
//! Each member reads the leader's key where all of them keep it (etcd, …). One that cannot read it answers with an error, and counts as silent. The
//! key decides only which primaries are *not* used: that the leader is a primary, its server says itself ([`freshet_proxy::Servers`]).

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use freshet_proxy::Leader;
use freshet_proxy::postgres::{Pg, service};
use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::endpoint::Endpoint;

/// Interval of questions.
const EVERY: Duration = Duration::from_secs(1);
/// Time for one answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Patroni's default.
const PORT: u16 = 8008;

/// The REST interface of a member, as host:port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberUrl(String);

impl FromStr for MemberUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let authority = text.strip_prefix("http://").map(|rest| rest.split_once('/').map_or(rest, |(host, _)| host));
        let authority = authority.filter(|host| !host.is_empty() && !host.contains('@'));
        let authority = authority.ok_or("a member is http://host:port, such as http://db1:8008")?;
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self(if has_port { authority.to_owned() } else { format!("{authority}:{PORT}") }))
    }
}

/// What one member says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// The addresses of the leader's server and of its REST interface.
    Leader {
        server: String,
        rest: String,
    },
    Nobody,
    /// Nothing that decides: a paused cluster goes on without a leader, and the leader of a standby cluster is no primary.
    Nothing,
}

/// Starts the watch, if members are given.
pub(crate) fn watch(pg: &Arc<Pg>, members: &[MemberUrl]) {
    if !members.is_empty() && pg.own.upstream.conninfo().hosts.len() > 1 {
        pg.tasks.spawn(ask_again(pg.clone(), members.to_vec()));
    }
}

/// Never returns.
async fn ask_again(pg: Arc<Pg>, members: Vec<MemberUrl>) {
    let hosts: Vec<_> = pg.own.upstream.conninfo().hosts.iter().map(|host| host.address.to_string()).collect();
    let mut unknown = None;
    loop {
        let answers: Vec<_> = join_all(members.iter().map(ask)).await.into_iter().flatten().collect();
        let leader = leader(&answers, &hosts, &members);
        if let (None, [Said::Leader { server, .. }, ..]) = (leader, &answers[..])
            && unknown.as_ref() != Some(server)
        {
            tracing::warn!(
                "Patroni names {server} as its leader, which must be the one that upstream names for all members"
            );
            unknown = Some(server.clone());
        }
        service::note_leader(&pg, leader);
        sleep(EVERY).await;
    }
}

/// None: it does not answer as it should.
async fn ask(MemberUrl(address): &MemberUrl) -> Option<Said> {
    let endpoint = Endpoint::local(address.clone(), None, None).ok()?;
    let (status, body) = timeout(PATIENCE, endpoint.get("/cluster")).await.ok()?.ok()?;
    if status == 200 { read(&body) } else { None }
}

fn read(body: &str) -> Option<Said> {
    let cluster: Value = serde_json::from_str(body).ok()?;
    let members = cluster.get("members")?.as_array()?;
    let has_role = |role: &str| members.iter().find(|member| member.get("role").is_some_and(|is| is == role));
    if let Some(leader) = has_role("leader") {
        let (host, port) = (leader.get("host")?.as_str()?, leader.get("port")?.as_u64()?);
        let rest = leader.get("api_url").and_then(Value::as_str).and_then(|url| url.parse::<MemberUrl>().ok());
        let server = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        return Some(Said::Leader { server, rest: rest.map(|MemberUrl(address)| address).unwrap_or_default() });
    }
    let is_paused = cluster.get("pause").is_some_and(|pause| *pause != Value::Bool(false));
    let decides = !is_paused && !members.is_empty() && has_role("standby_leader").is_none();
    Some(if decides { Said::Nobody } else { Said::Nothing })
}

/// What all members say that answer, if it is the same.
///
/// The leader's server is the host of that address. If the upstream has other names for its servers, it is the host at the place that the leader's
/// REST interface has among the members.
fn leader(answers: &[Said], hosts: &[String], members: &[MemberUrl]) -> Option<Leader> {
    let (first, others) = answers.split_first()?;
    if others.iter().any(|other| other != first) {
        return None;
    }
    match first {
        Said::Nothing => None,
        Said::Nobody => Some(Leader::Nobody),
        Said::Leader { server, rest } => {
            let by_rest =
                || members.iter().position(|member| member.0 == *rest).filter(|_| members.len() == hosts.len());
            hosts.iter().position(|host| host == server).or_else(by_rest).map(Leader::At)
        }
    }
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
        for wrong in ["db1:8008", "https://db1", "http://", "http://a:b@db1"] {
            assert!(wrong.parse::<MemberUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_leader_is_found_by_its_address_or_its_place() {
        let said = read(CLUSTER).unwrap();
        assert_eq!(said, Said::Leader { server: "10.0.0.2:5432".into(), rest: "10.0.0.2:8008".into() });
        let hosts = |names: &[&str]| names.iter().map(|name| format!("{name}:5432")).collect::<Vec<_>>();
        let members = urls(&["http://10.0.0.1:8008", "http://10.0.0.2:8008"]);
        let of = |answers: &[Said], names: &[&str]| leader(answers, &hosts(names), &members);
        let both = [said.clone(), said.clone()];
        assert_eq!(of(&both, &["10.0.0.2", "10.0.0.1"]), Some(Leader::At(0)));
        assert_eq!(of(&both, &["db1", "db2"]), Some(Leader::At(1)));
        assert_eq!(of(&both, &["db1", "db2", "db3"]), None, "nobody knows which of the names it is");
        assert_eq!(of(&[said, Said::Nobody], &["db1", "db2"]), None, "they do not agree");
        assert_eq!(of(&[], &["db1", "db2"]), None);
        assert_eq!(of(&[Said::Nobody], &["db1", "db2"]), Some(Leader::Nobody));
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
