//! The testbed with real servers. If a version is not installed, its test fails with the command to run.

use std::path::Path;
use std::time::{Duration, Instant};

use freshet_testbed::{Leash, Postgres, Server, Settings, StopMode, Tls, process};

fn start(major: u32, settings: &Settings) -> Server {
    Postgres::find(Some(major)).unwrap().start(settings).unwrap()
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !check() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn whole_life(major: u32) {
    let server = start(major, &Settings::default().with("work_mem = 5MB"));
    assert_eq!(server.psql("SHOW wal_level; SHOW work_mem; SHOW fsync;").unwrap(), "logical\n5MB\noff");
    assert!(server.psql("SHOW server_version_num").unwrap().starts_with(&major.to_string()));
    assert!(server.psql("SELECT 1/0").unwrap_err().to_string().contains("division by zero"));

    server.psql("CREATE TABLE t AS SELECT generate_series(1, 100000) AS n").unwrap();
    let before = server.cpu_seconds().unwrap();
    server.psql("SELECT count(*) FROM t a JOIN t b ON a.n = b.n JOIN t c ON c.n = b.n").unwrap();
    // The session has ended: its time is part of the sum once the server has waited for its process.
    eventually("the time of an ended session", || server.cpu_seconds().unwrap() > before);

    let port = server.port();
    server.restart().unwrap();
    assert_eq!(server.psql("SELECT count(*) FROM t").unwrap(), "100000");
    server.psql("INSERT INTO t VALUES (0)").unwrap();
    server.kill9().unwrap();
    assert_eq!(server.pid(), None);
    server.start().unwrap();
    assert_eq!(server.psql("SELECT count(*) FROM t").unwrap(), "100001");
    assert_eq!(server.port(), port);
    server.stop(StopMode::Fast).unwrap();
    server.stop(StopMode::Fast).unwrap();

    let directory = server.data_dir();
    drop(server);
    assert!(!directory.parent().unwrap().exists());
}

#[test]
fn postgresql_15_lives_and_leaves_nothing() {
    whole_life(15);
}

#[test]
fn postgresql_18_lives_and_leaves_nothing() {
    whole_life(18);
}

fn synchronous_standby(major: u32) {
    let primary = start(major, &Settings::default().with_scram());
    primary.psql("CREATE TABLE t (n int)").unwrap();
    let standby = primary.standby("echo").unwrap();
    primary.set("synchronous_standby_names", "echo").unwrap();
    eventually("the standby is synchronous", || {
        primary.psql("SELECT sync_state FROM pg_stat_replication").unwrap() == "sync"
    });

    standby.pause_receiver().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| primary.psql("INSERT INTO t VALUES (1)").unwrap());
        eventually("the commit waits for the standby", || {
            primary.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").unwrap() == "1"
        });
        assert_eq!(primary.psql("SELECT count(*) FROM t").unwrap(), "0");
        standby.resume_receiver().unwrap();
        writer.join().unwrap();
    });
    eventually("the standby replays", || standby.psql("SELECT count(*) FROM t").unwrap() == "1");
    assert!(primary.pause_receiver().is_err());
}

#[test]
fn postgresql_15_waits_for_its_standby() {
    synchronous_standby(15);
}

#[test]
fn postgresql_18_waits_for_its_standby() {
    synchronous_standby(18);
}

#[test]
fn scram_asks_for_the_password() {
    let server = start(15, &Settings::default().with_scram());
    assert_eq!(server.psql("SELECT 1").unwrap(), "1");
    assert!(server.psql("SELECT rolpassword FROM pg_authid WHERE rolcanlogin").unwrap().starts_with("SCRAM-SHA-256$"));
}

#[test]
fn a_broken_setting_is_reported_with_the_log() {
    let error = Postgres::find(Some(15)).unwrap().start(&Settings::default().with("no_such_setting = 1")).unwrap_err();
    assert!(format!("{error:#}").contains("no_such_setting"), "{error:#}");
}

#[test]
fn an_unknown_version_says_what_to_run() {
    let error = Postgres::find(Some(7)).unwrap_err().to_string();
    assert!(error.contains("script/setup demo"), "{error}");
}

#[test]
fn a_stopped_child_does_not_hold_up_the_drop() {
    let server = start(15, &Settings::default());
    // The server is ready before all of its processes exist.
    let writer = || server.children().unwrap().into_iter().find(|child| child.title().contains("walwriter"));
    let child = std::iter::repeat_with(writer).take(100).find_map(|found| {
        found.or_else(|| {
            std::thread::sleep(Duration::from_millis(100));
            None
        })
    });
    let child = child.unwrap();
    process::pause(child.pid).unwrap();
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// The next test runs this in another process, which is then killed.
#[test]
#[ignore = "only as the child of a_killed_parent_takes_its_server_along"]
fn start_and_wait_to_be_killed() {
    let server = start(15, &Settings::default());
    // Started on a thread that ends at once: the server must not end with it.
    let other = std::thread::spawn(|| start(15, &Settings::default())).join().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(other.psql("SELECT 1").unwrap(), "1");
    #[expect(clippy::zombie_processes, reason = "this process is killed before it could wait")]
    let tied = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let _leash = Leash::tie(tied.id()).unwrap();
    println!("tied {} pid {} directory {}", tied.id(), server.pid().unwrap(), server.data_dir().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_parent_takes_its_server_along() {
    use std::io::{BufRead, BufReader};
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "start_and_wait_to_be_killed", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.contains("pid ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "pid").unwrap();
    let pid: u32 = words[at + 1].parse().unwrap();
    let tied: u32 = words[at - 1].parse().unwrap();
    let directory = Path::new(words[at + 3]);
    assert!(directory.exists());
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("server and directory are gone", || {
        process::Process::read(pid).is_err()
            && process::Process::read(tied).is_err()
            && !directory.parent().unwrap().exists()
    });
}

/// A self-signed certificate and its key.
fn certificate(directory: &Path, name: &str) -> Tls {
    let (cert, key) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["req", "-new", "-x509", "-nodes", "-subj", &format!("/CN={name}"), "-out"]).arg(&cert);
    let output = openssl.arg("-keyout").arg(&key).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Tls { client_ca: Some(cert.clone()), cert, key }
}

#[test]
fn a_server_with_tls_and_its_own_lines_of_who_may_log_in() {
    let directory = std::env::temp_dir().join(format!("freshet-testbed-tls-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (first, second) = (certificate(&directory, "first"), certificate(&directory, "second"));
    let settings = Settings::default().with_tls(first).with_hba("hostssl all all 127.0.0.1/32 trust");
    let server = start(15, &settings.with_hba("local all all trust"));
    assert_eq!(server.psql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").unwrap(), "t");
    server.replace_tls(&second).unwrap();
    server.replace_hba(&["hostnossl all all 127.0.0.1/32 trust".into(), "local all all trust".into()]).unwrap();
    assert_eq!(server.psql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").unwrap(), "f");
    assert!(server.socket_directory().join(format!(".s.PGSQL.{}", server.port())).exists());
    std::fs::remove_dir_all(&directory).unwrap();
}
