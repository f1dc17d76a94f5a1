//! The installed peers: each starts, answers through its target, and has ended afterwards.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use freshet_testbed::process::Process as Seen;
use freshet_testbed::{Postgres, Server, Settings};

use super::*;
use crate::driver::{Driver, Protocol, Rows};
use crate::statement::Statement;
use crate::value::Value;

/// A port that is free at the moment.
pub(super) fn port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Whether a process runs. A process that has ended but was not waited for does not.
pub(super) fn runs(pid: u32) -> bool {
    Seen::read(pid).is_ok_and(|process| process.state != 'Z')
}

pub(super) fn gone(pid: u32) -> bool {
    !runs(pid)
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("freshet-peers-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    directory
}

async fn postgres(settings: Settings) -> Server {
    let start = move || Postgres::find(Some(15)).unwrap().start(&settings).unwrap();
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Starts peers and prints the skipped ones with the reason.
async fn start(server: &Server, want: &[PeerKind], name: &str) -> (Peers, Vec<Target>, PathBuf) {
    let directory = directory(name);
    let upstream = format!("direct={}", server.url()).parse().unwrap();
    let (peers, targets, left_out) = Peers::start(&upstream, want, &directory).await.unwrap();
    for reason in &left_out {
        println!("skipped: {reason}");
    }
    // The only accepted reason is that a program is not installed.
    assert!(left_out.iter().all(|reason| reason.contains("installed")), "{left_out:?}");
    assert_eq!(targets.len() + left_out.len(), want.len());
    (peers, targets, directory)
}

/// Stops the peers and checks that no process of their groups remains.
fn end(peers: Peers, directory: &Path) {
    let mut pids = peers.pids();
    for pid in peers.pids() {
        assert!(runs(pid));
        pids.extend(freshet_testbed::process::children(pid).unwrap().into_iter().map(|child| child.pid));
    }
    drop(peers);
    assert!(pids.into_iter().all(gone));
    std::fs::remove_dir_all(directory).unwrap();
}

async fn ask(target: &Target, text: &str, protocol: Protocol) -> String {
    let statements = [Statement::read("s", text)];
    let mut driver = Driver::open(target, &statements.into(), protocol).await.unwrap();
    let mut rows = Vec::new();
    driver.run(0, &[], Rows::Kept(&mut rows)).await.unwrap();
    String::from_utf8(rows[0][0].clone().unwrap()).unwrap()
}

const PROXIES: [PeerKind; 3] = [PeerKind::PgBouncer, PeerKind::HaProxy, PeerKind::Pgpool];

#[tokio::test]
async fn proxies_answer_with_the_databases_rows() {
    let server = postgres(Settings::default()).await;
    server.psql("CREATE TABLE t AS SELECT 'from the database'::text AS a").unwrap();
    let (peers, targets, directory) = start(&server, &PROXIES, "proxies").await;
    for target in &targets {
        assert_ne!(target.address().unwrap().1, server.port());
        for protocol in [Protocol::Prepared, Protocol::Text] {
            assert_eq!(ask(target, "SELECT a FROM t", protocol).await, "from the database", "{}", target.name);
        }
    }
    end(peers, &directory);
}

#[tokio::test]
async fn proxies_log_in_where_a_password_is_asked_for() {
    let server = postgres(Settings::default().with_scram()).await;
    let (peers, targets, directory) = start(&server, &PROXIES, "scram").await;
    for target in &targets {
        assert_eq!(ask(target, "SELECT current_user::text", Protocol::Prepared).await, "postgres", "{}", target.name);
    }
    end(peers, &directory);
}

#[tokio::test]
async fn pgpool_keeps_answers_and_its_shared_memory_goes() {
    let server = postgres(Settings::default()).await;
    server.psql("CREATE TABLE t AS SELECT 1 AS a").unwrap();
    let (peers, targets, directory) = start(&server, &[PeerKind::Pgpool], "pgpool").await;
    let pids = peers.pids();
    for target in &targets {
        assert_eq!(target.counters, Some(crate::target::Counters::PoolCache));
        for _ in 0..3 {
            assert_eq!(ask(target, "SELECT a FROM t", Protocol::Text).await, "1");
        }
        let hits: u32 = ask(target, "SHOW pool_cache", Protocol::Text).await.parse().unwrap();
        assert!(hits >= 1, "{hits}");
        assert!(shared_memory(pids[0]) >= CACHE_BYTES);
    }
    end(peers, &directory);
    assert!(pids.into_iter().all(|pid| shared_memory(pid) == 0));
}

/// Bytes of System V shared memory that a process created: proc(5), fourth and fifth column.
fn shared_memory(creator: u32) -> u64 {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[4] == creator.to_string()).map(|row| row[3].parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn stores_keep_what_they_are_given() {
    let server = postgres(Settings::default()).await;
    let (peers, targets, directory) = start(&server, &[PeerKind::Memcached, PeerKind::Redis], "stores").await;
    for target in &targets {
        assert!(target.counters.is_some());
        let mut driver = Driver::open(target, &[].into(), Protocol::Text).await.unwrap();
        let Driver::KeyValue(connection) = &mut driver else { panic!("{target:?}") };
        connection.set("k", b"v").await.unwrap();
        let mut rows = Vec::new();
        assert_eq!(driver.run(0, &[Value::from("k")], Rows::Kept(&mut rows)).await.unwrap(), 1);
        assert_eq!(rows, [[Some(b"v".to_vec())]]);
    }
    end(peers, &directory);
}

#[tokio::test]
async fn the_account_decides_whether_mariadbs_query_cache_is_used() {
    let server = postgres(Settings::default()).await;
    let (peers, targets, directory) = start(&server, &[PeerKind::MariadbQcache, PeerKind::Mariadb], "mariadb").await;
    let [cached, direct] = targets.as_slice() else { panic!("{targets:?}") };
    assert_eq!((cached.name.as_str(), direct.name.as_str()), ("mariadb-qcache", "mariadb"));
    assert_eq!(cached.address(), direct.address());
    let mut driver = Driver::open(direct, &[].into(), Protocol::Text).await.unwrap();
    driver.command("CREATE TABLE t (a INT)").await.unwrap();
    driver.command("INSERT INTO t VALUES (1)").await.unwrap();
    let hits = async |target| {
        for _ in 0..3 {
            assert_eq!(ask(target, "SELECT a FROM t", Protocol::Text).await, "1");
        }
        let sql = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QCACHE_HITS'";
        ask(target, sql, Protocol::Text).await
    };
    assert_eq!(hits(direct).await, "0");
    // The query cache is skipped shortly after a write, and while another thread has its lock.
    let mut found = hits(cached).await;
    for _ in 0..100 {
        if found != "0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        found = hits(cached).await;
    }
    assert_ne!(found, "0");
    assert_eq!(hits(direct).await, found);
    drop(driver);
    end(peers, &directory);

    // Without `mariadb-qcache` the server has no query cache at all.
    let (peers, targets, directory) = start(&server, &[PeerKind::Mariadb], "mariadb-alone").await;
    assert_eq!(ask(&targets[0], "SELECT @@query_cache_size", Protocol::Text).await, "0");
    end(peers, &directory);
}

/// The next test runs this as a separate process.
#[test]
#[ignore = "only as the child of the_echo_server_is_a_process"]
fn be_the_echo_server() {
    echo::serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ECHO_REQUEST, ECHO_ANSWER).unwrap();
}

#[tokio::test]
async fn the_echo_server_is_a_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "peers::tests::be_the_echo_server", "--ignored", "--nocapture"]);
    let (process, target) = super::start_echo(command).await.unwrap();
    let mut driver = Driver::open(&target, &[].into(), Protocol::Text).await.unwrap();
    for _ in 0..3 {
        driver.run(0, &[], Rows::Counted).await.unwrap();
    }
    let pid = process.pid();
    assert!(runs(pid));
    drop(process);
    assert!(gone(pid));
}

/// The next test runs this in a separate process and kills it.
#[tokio::test]
#[ignore = "only as the child of a_killed_parent_takes_the_peers_along"]
async fn start_and_wait_to_be_killed() {
    let server = postgres(Settings::default()).await;
    let want = [PeerKind::PgBouncer, PeerKind::Pgpool, PeerKind::Memcached, PeerKind::Redis];
    let (peers, _, directory) = start(&server, &want, "killed").await;
    println!("peers {:?}", peers.pids());
    println!("directory {}", directory.display());
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_killed_parent_takes_the_peers_along() {
    use std::io::{BufRead, BufReader};
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "peers::tests::start_and_wait_to_be_killed", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pids = lines.find_map(|line| line.split_once("peers [").map(|(_, pids)| pids.to_owned())).unwrap();
    let pids: Vec<u32> = pids.trim_end_matches(']').split(", ").map(|pid| pid.parse().unwrap()).collect();
    let directory = lines.find_map(|line| line.strip_prefix("directory ").map(PathBuf::from)).unwrap();
    assert!(!pids.is_empty() && pids.iter().all(|pid| runs(*pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while pids.iter().any(|pid| runs(*pid)) {
        assert!(std::time::Instant::now() < deadline, "peers are still there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_dir_all(directory).unwrap();
}
