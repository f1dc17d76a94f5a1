//! Which servers are left out, and why.

use std::time::Duration;

use super::*;

fn found(system_id: &str, role: Role, timeline: u32) -> Found {
    let (position, lag_seconds) = (Some(Lsn(100)), String::new());
    let postmaster_start = timeline.to_string();
    let timeline = Some(timeline);
    let (configuration, gtids) = (String::new(), None);
    let system_id = system_id.into();
    Found { system_id, postmaster_start, role, timeline, position, lag_seconds, configuration, gtids }
}

/// A primary that began at this time.
fn run(start: &str) -> Found {
    Found { postmaster_start: start.into(), ..found("7", Role::Primary, 1) }
}

/// Patroni's members say this now.
fn note(servers: &Servers, leader: Option<Leader>) -> bool {
    servers.note_leader(leader, Instant::now())
}

fn three() -> Servers {
    let servers = Servers::default();
    servers.begin(["a", "b", "c"].map(str::to_owned).into_iter(), &ReplicaLimits::default());
    servers
}

fn stream() -> ServerIdentity {
    ServerIdentity { system_id: "7".into(), postmaster_start: "1".into(), database: "d".into() }
}

fn left_out(changes: Vec<Change>) -> Vec<(usize, Option<LeftOut>)> {
    changes.into_iter().map(|change| (change.at, change.left_out)).collect()
}

#[test]
fn an_old_primary_is_left_out_until_it_is_a_standby() {
    let (servers, stream) = (three(), stream());
    assert!(
        servers.note(0, Ok(found("7", Role::Primary, 1)), 1) && servers.note(1, Ok(found("7", Role::Standby, 1)), 1)
    );
    assert_eq!(servers.decide(Some(&stream), 0), []);
    assert!(
        servers.note(1, Ok(found("7", Role::Primary, 2)), 1) && !servers.note(1, Ok(found("7", Role::Primary, 2)), 1)
    );
    let old = Some(LeftOut::OldTimeline(2));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, old)]);
    // The new primary is lost: the old one is still the wrong one.
    assert!(servers.note(1, Err("refused".into()), 1));
    assert_eq!(servers.decide(None, 0), []);
    servers.note(0, Ok(found("7", Role::Standby, 2)), 1);
    assert_eq!(left_out(servers.decide(None, 1)), [(0, None)]);
}

#[test]
fn of_two_primaries_with_one_timeline_the_one_in_use_stays() {
    let (servers, stream) = (three(), stream());
    let in_use = found("7", Role::Primary, 1);
    servers.note(2, Ok(in_use.clone()), 1);
    servers.note(0, Ok(in_use.clone()), 1);
    assert_eq!(servers.decide(Some(&stream), 2), [], "one server under two addresses");
    servers.note(0, Ok(Found { postmaster_start: "other".into(), ..in_use }), 1);
    assert_eq!(left_out(servers.decide(Some(&stream), 2)), [(0, Some(LeftOut::SecondPrimary))]);
    servers.note(2, Err("gone".into()), 1);
    assert_eq!(left_out(servers.decide(Some(&stream), 2)), [(0, None)], "no rival is left");
}

#[test]
fn a_primary_without_the_leaders_key_is_left_out() {
    let (servers, stream) = (three(), stream());
    servers.note(0, Ok(run("1")), 1);
    servers.note(1, Ok(run("2")), 1);
    assert!(note(&servers, Some(Leader::At(1))) && !note(&servers, Some(Leader::At(1))));
    let without = |leader| Some(LeftOut::WithoutKey(leader));
    assert_eq!(left_out(servers.decide(None, 0)), [(0, without(1))], "before any stream");
    // It is the other's; nobody says.
    note(&servers, Some(Leader::At(0)));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, None), (1, without(0))]);
    note(&servers, None);
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(1, Some(LeftOut::SecondPrimary))]);
    // An old primary is the right one if it has the key, and a standby may have it before it is promoted.
    servers.note(1, Ok(found("7", Role::Primary, 2)), 1);
    note(&servers, Some(Leader::At(0)));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(1, without(0))]);
    servers.note(1, Ok(Found { role: Role::Standby, ..run("2") }), 1);
    note(&servers, Some(Leader::At(1)));
    let changes = left_out(servers.decide(Some(&stream), 0));
    assert_eq!(changes, [(0, without(1)), (1, None)]);
    // Two addresses of one server.
    servers.note(2, Ok(run("1")), 1);
    note(&servers, Some(Leader::At(2)));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, None)]);
}

#[test]
fn without_a_key_only_the_last_leader_goes_on() {
    let (servers, stream) = (three(), stream());
    servers.note(0, Ok(run("1")), 1);
    note(&servers, Some(Leader::Nobody));
    let nobodys = Some(LeftOut::NobodysKey);
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, nobodys)], "it may never have had it");
    note(&servers, Some(Leader::At(0)));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, None)]);
    // failsafe_mode: it goes on. Another primary is the wrong one.
    servers.note(1, Ok(run("2")), 1);
    note(&servers, Some(Leader::Nobody));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(1, nobodys)]);
    assert!(!servers.has_left_out(&stream));
    // It is down, and back; down, and restarted.
    for (answer, changes) in [
        (Err("gone".into()), vec![(0, nobodys)]),
        (Ok(run("1")), vec![(0, None)]),
        (Err("gone".into()), vec![(0, nobodys)]),
        (Ok(run("3")), vec![]),
    ] {
        servers.note(0, answer, 1);
        assert_eq!(left_out(servers.decide(Some(&stream), 0)), changes);
    }
}

#[test]
fn where_members_contradict_each_other_only_those_that_they_name_are_used() {
    let (servers, stream) = (three(), stream());
    servers.note(0, Ok(run("1")), 1);
    servers.note(1, Ok(Found { role: Role::Standby, ..run("2") }), 1);
    note(&servers, Some(Leader::At(0)));
    assert_eq!(servers.decide(Some(&stream), 0), []);
    note(&servers, Some(Leader::OneOf(vec![0, 1])));
    assert_eq!(servers.decide(Some(&stream), 0), []);
    note(&servers, Some(Leader::OneOf(vec![1])));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, Some(LeftOut::NotNamed))]);
    assert!(servers.has_left_out(&stream));
}

#[tokio::test]
async fn a_new_primary_is_used_before_patroni_is_asked_again() {
    let (servers, stream) = (three(), stream());
    servers.note(0, Ok(found("7", Role::Primary, 1)), 1);
    servers.note(1, Ok(found("7", Role::Standby, 1)), 1);
    let asked = Instant::now();
    servers.note_asking(asked);
    servers.note_leader(Some(Leader::At(0)), asked);
    assert_eq!(servers.decide(Some(&stream), 0), []);
    servers.note(1, Ok(found("7", Role::Primary, 2)), 1);
    assert_eq!(servers.decide(Some(&stream), 0), []);
    servers.wants_leader().await;
    // It still does not have the key.
    let asked = Instant::now();
    servers.note_asking(asked);
    assert_eq!(servers.decide(Some(&stream), 0), [], "until there is an answer");
    servers.note_leader(Some(Leader::At(0)), asked);
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(1, Some(LeftOut::WithoutKey(0)))]);
    servers.note_leader(Some(Leader::At(1)), asked);
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, Some(LeftOut::WithoutKey(1))), (1, None)]);
}

#[test]
fn another_system_is_left_out_and_nothing_before_a_stream_says_which() {
    let (servers, stream) = (three(), stream());
    servers.note(0, Ok(found("8", Role::Primary, 9)), 1);
    servers.note(1, Ok(found("7", Role::Primary, 1)), 1);
    assert_eq!(servers.decide(None, 1), []);
    assert_eq!(left_out(servers.decide(Some(&stream), 1)), [(0, Some(LeftOut::OtherSystem))]);
    let rows = servers.shown("", &PoolSettings::default(), Some(&stream));
    assert_eq!(rows.iter().map(|row| row[7].as_str()).collect::<Vec<_>>(), ["left out", "up", "unknown"]);
    assert_eq!(rows[1][6], "yes");
}

#[test]
fn a_standby_may_lag_as_far_as_the_operator_allows() {
    let limits = |lag_max| ReplicaLimits { lag_max, ..ReplicaLimits::default() };
    let standby = |lag: &str| Found { lag_seconds: lag.into(), ..found("7", Role::Standby, 1) };
    let (bytes, time) = (limits(Some(LagMax::Bytes(50))), limits(Some(LagMax::Time(Duration::from_secs(2)))));
    let ends = [None, Some(Lsn(90)), Some(Lsn(150)), Some(Lsn(151))];
    assert_eq!(ends.map(|end| standby("0").lags_beyond(&bytes, end)), [true, false, false, true]);
    assert_eq!(
        ["", "0", "2.000", "2.001"].map(|lag| standby(lag).lags_beyond(&time, None)),
        [true, false, false, true]
    );
    assert!(!standby("9").lags_beyond(&limits(None), None));
    assert!(!found("7", Role::Primary, 1).lags_beyond(&bytes, Some(Lsn(1000))));
}

#[test]
fn before_any_stream_the_key_decides_alone() {
    let decided = |leader: Leader| {
        let servers = three();
        servers.note(0, Ok(run("1")), 1);
        note(&servers, Some(leader));
        left_out(servers.decide(None, 0))
    };
    assert_eq!(decided(Leader::Nobody), [(0, Some(LeftOut::NobodysKey))]);
    assert_eq!(decided(Leader::At(1)), [(0, Some(LeftOut::WithoutKey(1)))], "it has not answered yet");
    assert_eq!(decided(Leader::OneOf(vec![1, 2])), [(0, Some(LeftOut::NotNamed))]);
    assert_eq!(decided(Leader::OneOf(vec![0, 1])), []);
    assert_eq!(decided(Leader::At(0)), []);
}

#[test]
fn a_leader_that_lost_the_key_to_another_does_not_go_on() {
    let (servers, stream) = (three(), stream());
    servers.note(0, Ok(run("1")), 1);
    note(&servers, Some(Leader::At(0)));
    assert_eq!(servers.decide(Some(&stream), 0), []);
    // The other dies before anybody has seen it as a primary.
    note(&servers, Some(Leader::At(1)));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, Some(LeftOut::WithoutKey(1)))]);
    note(&servers, Some(Leader::Nobody));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, Some(LeftOut::NobodysKey))]);
    note(&servers, Some(Leader::At(0)));
    assert_eq!(left_out(servers.decide(Some(&stream), 0)), [(0, None)]);
}
