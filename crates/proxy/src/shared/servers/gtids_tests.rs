//! Which of several servers is the right one.

use super::*;
use crate::pool::ReplicaLimits;
use crate::shared::servers::Found;

const A: &str = "0-1-10";
/// All of A's, and more.
const B: &str = "0-1-10,0-2-11";

fn found(name: &str, role: Role, executed: &str) -> Found {
    let (system_id, postmaster_start) = (name.to_owned(), "1".to_owned());
    let (timeline, position, lag_seconds, configuration) = Default::default();
    let gtids = Some(Gtids { executed: Executed::of_mariadb(executed).unwrap(), receives: role == Role::Replica });
    Found { system_id, postmaster_start, role, timeline, position, lag_seconds, configuration, gtids }
}

fn stream(name: &str) -> ServerIdentity {
    ServerIdentity { system_id: name.into(), postmaster_start: "1".into(), database: String::new() }
}

fn two(second: Found) -> Servers {
    let servers = Servers::default();
    servers.begin(["a", "b"].map(str::to_owned).into_iter(), &ReplicaLimits::default());
    servers.note(0, Ok(found("a", Role::Primary, A)), 1);
    servers.note(1, Ok(second), 1);
    servers
}

impl Servers {
    /// The server does not answer for long.
    fn lose(&self, at: usize) {
        for _ in 0..FAILED_MAX {
            self.note(at, Err("gone".into()), 2);
        }
    }
}

fn decided(servers: &Servers, stream: Option<&ServerIdentity>) -> Vec<(usize, Option<LeftOut>)> {
    servers.decide_by_gtids(stream).into_iter().map(|change| (change.at, change.left_out)).collect()
}

#[test]
fn positions_are_compared() {
    let mariadb = |text: &str| Executed::of_mariadb(text).unwrap();
    assert!(mariadb(B).has_all_of(&mariadb(A)) && !mariadb(A).has_all_of(&mariadb(B)));
    assert!(!mariadb(B).has_all_of(&mariadb("1-1-1")), "another domain");
    assert!(!mariadb("0-1-15").has_all_of(&mariadb(B)), "it has written on its own");
    assert!(Executed::Unknown.shares(&mariadb(B)) && !Executed::Unknown.has_all_of(&mariadb(B)));
    assert!(
        mariadb(B).shares(&mariadb(A)) && !mariadb("0-9-50").shares(&mariadb(A)) && !mariadb("").shares(&mariadb(A))
    );
    assert_eq!(mariadb("0-1-10,0-2-11,0-1-12,3-1-1").to_string(), "0-1-12,3-1-1");
    assert_eq!(["0-1", "0-1-2-3", "x"].map(Executed::of_mariadb), [None, None, None]);
    let mysql = |ranges: &str| {
        let (one, two) = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002");
        Executed::of_mysql(&ranges.replace('A', one).replace('B', two)).unwrap()
    };
    assert!(mysql("A:1-9,B:1").has_all_of(&mysql("A:1-9")) && !mysql("A:1-8,B:1").has_all_of(&mysql("A:1-9")));
    assert!(mysql("A:1-8,B:1").shares(&mysql("A:9")) && !mysql("B:1").shares(&mysql("A:1")));
}

#[test]
fn before_a_stream_nothing_is_known() {
    let servers = two(found("b", Role::Primary, "0-9-1"));
    assert_eq!(decided(&servers, None), []);
    assert_eq!(decided(&servers, Some(&stream("a"))), [(1, Some(LeftOut::Unrelated))]);
    assert_eq!((servers.role_in_use(0), servers.role_in_use(1)), (Some(Role::Primary), None));
}

#[test]
fn the_streams_server_stays_until_it_is_none() {
    let servers = two(found("b", Role::Primary, B));
    assert_eq!(decided(&servers, Some(&stream("a"))), [(1, Some(LeftOut::SecondWritable))]);
    // It does not answer for a moment, or the stream goes on.
    servers.note(0, Err("gone".into()), 2);
    assert_eq!(decided(&servers, None), []);
    servers.lose(0);
    assert_eq!(decided(&servers, Some(&stream("a"))), []);
    assert_eq!(decided(&servers, None), [(1, None)]);
    servers.note(0, Ok(found("a", Role::Primary, A)), 3);
    assert_eq!(decided(&servers, Some(&stream("a"))), [(1, Some(LeftOut::SecondWritable))]);
    // It is read-only.
    servers.note(0, Ok(found("a", Role::Replica, A)), 4);
    assert_eq!(decided(&servers, Some(&stream("a"))), [(1, None)]);
}

#[test]
fn an_old_primary_is_left_out_until_it_is_a_replica() {
    let servers = two(found("b", Role::Replica, A));
    assert_eq!(decided(&servers, Some(&stream("a"))), []);
    servers.note(0, Err("gone".into()), 2);
    servers.note(1, Ok(found("b", Role::Primary, B)), 2);
    assert_eq!(decided(&servers, Some(&stream("b"))), [(0, Some(LeftOut::Replaced))]);
    servers.note(0, Ok(found("a", Role::Primary, A)), 3);
    assert_eq!(decided(&servers, Some(&stream("b"))), []);
    // The new one is lost: the old one still lacks what it had.
    servers.lose(1);
    assert_eq!(decided(&servers, None), []);
    servers.note(0, Ok(found("a", Role::Replica, A)), 5);
    assert_eq!(decided(&servers, None), [(0, None)]);
    servers.note(0, Ok(found("a", Role::Primary, A)), 6);
    assert_eq!(decided(&servers, None), [], "promoted again");
}

#[test]
fn a_replica_that_can_be_written_replaces_nobody() {
    let receives = |role| {
        let mut one = found("b", role, A);
        one.gtids = one.gtids.map(|gtids| Gtids { receives: true, ..gtids });
        one
    };
    let servers = two(receives(Role::Primary));
    decided(&servers, Some(&stream("a")));
    servers.lose(0);
    assert_eq!(decided(&servers, None), [(1, Some(LeftOut::WritableReplica))]);
    // It is promoted, by the end of its replication.
    servers.note(1, Ok(found("b", Role::Primary, A)), 3);
    assert_eq!(decided(&servers, None), [(1, None)]);
    // Or it was read-only, as in a pair of servers that receive from each other.
    let pair = two(receives(Role::Replica));
    decided(&pair, Some(&stream("a")));
    pair.lose(0);
    pair.note(1, Ok(receives(Role::Primary)), 2);
    assert_eq!(decided(&pair, None), []);
}

#[test]
fn a_server_with_two_addresses_is_no_rival_of_itself() {
    let servers = two(found("a", Role::Primary, A));
    assert_eq!(decided(&servers, Some(&stream("a"))), []);
    // It restarts, and the second address shows that first.
    let again = ServerIdentity { postmaster_start: "2".into(), ..stream("a") };
    let restarted = || Found { postmaster_start: "2".into(), ..found("a", Role::Primary, B) };
    servers.note(1, Ok(restarted()), 2);
    assert_eq!(decided(&servers, Some(&again)), []);
    servers.note(0, Ok(restarted()), 3);
    assert_eq!(decided(&servers, Some(&again)), []);
}
