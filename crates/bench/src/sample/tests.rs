//! The observer on real processes.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use freshet_testbed::{Mariadb, MariadbSettings, Postgres, Settings};

use super::*;
use crate::load::Marks as _;
use crate::result::TargetInfo;

/// A server on its own port, killed when dropped. None if it is not installed.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &str, arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|argument| argument.replace("PORT", &port.to_string())));
        let child = match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("left out: {program}: {error}");
                return None;
            }
        };
        let server = Self { child, port };
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn memcached() -> Option<Self> {
        Self::start("memcached", &["-l", "127.0.0.1", "-p", "PORT", "-u", "nobody", "-m", "16"])
    }

    fn redis() -> Option<Self> {
        Self::start("redis-server", &["--bind", "127.0.0.1", "--port", "PORT", "--save", "", "--appendonly", "no"])
    }

    fn target(&self, scheme: &str) -> Target {
        let place = format!("{scheme}://127.0.0.1:{}", self.port);
        format!("{scheme}={place},metrics={place}").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends lines and waits for this many answers.
fn say(port: u16, text: &str, answers: usize) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let lines: Vec<_> = BufReader::new(stream).lines().take(answers).collect::<Result<_, _>>().unwrap();
    assert_eq!(lines.len(), answers, "{lines:?}");
}

#[test]
fn a_server_is_found_by_its_port_and_named_once() {
    let Some(first) = Server::memcached() else { return };
    let Some(second) = Server::memcached() else { return };
    let same: Target = format!("again=memcached://localhost:{}", first.port).parse().unwrap();
    let aside: Target = format!("a=postgres://u@192.0.2.1/db,lookaside=127.0.0.1:{}", second.port).parse().unwrap();
    let found = processes(&[first.target("memcached"), same, aside]);
    let named = |name: &str, pid| Process { name: name.to_owned(), pid };
    assert_eq!(found, [named("memcached", first.child.id()), named("memcached-2", second.child.id())]);
    let nobody: Target = "n=memcached://127.0.0.1:1".parse().unwrap();
    assert_eq!(processes(&[nobody]), []);
}

#[test]
fn memcached_is_observed() {
    let Some(server) = Server::memcached() else { return };
    let target = server.target("memcached");
    say(server.port, "get warm\r\nset a 0 0 3\r\nabc\r\n", 2);
    let observer = Observer::start(&target, &processes(std::slice::from_ref(&target))).unwrap();
    observer.begin();
    wait_until_begun(&observer);
    say(server.port, "get a\r\nget a\r\nget b\r\n", 7);
    observer.end();
    let observed = observer.finish().unwrap();
    let cache = observed.cache.unwrap();
    assert_eq!((cache.hits, cache.fills, cache.passed, cache.evictions, cache.entries), (2.0, 0.0, 1.0, 0.0, 1.0));
    assert!(cache.bytes > 3.0, "{cache:?}");
    assert_eq!(observed.processes.keys().collect::<Vec<_>>(), ["client", "memcached"]);
    assert!(observed.processes.values().all(|usage| usage.memory > 100_000), "{:?}", observed.processes);
    assert!(!observed.series.is_empty() && observed.series[0].memory > 100_000, "{:?}", observed.series);
    assert!(observer.finish().is_err());
}

fn wait_until_begun(observer: &Observer) {
    while !observer.has_begun() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn redis_is_observed_and_described() {
    let Some(server) = Server::redis() else { return };
    let target = server.target("redis");
    let found = processes(std::slice::from_ref(&target));
    let info = info(&target, &found).unwrap();
    assert!(info.version.starts_with("Redis ") || info.version.starts_with("Valkey "), "{info:?}");
    assert_eq!(info.process.as_ref(), found.first().map(|process| &process.name));
    let observer = Observer::start(&target, &found).unwrap();
    observer.begin();
    wait_until_begun(&observer);
    say(server.port, "SET a 1\r\nGET a\r\nGET b\r\n", 4);
    observer.end();
    let cache = observer.finish().unwrap().cache.unwrap();
    assert_eq!((cache.hits, cache.passed, cache.entries), (1.0, 1.0, 1.0));
}

fn info(target: &Target, processes: &[Process]) -> anyhow::Result<TargetInfo> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(target_info(target, processes))
}

#[test]
fn postgresql_is_one_process_whatever_it_forks() {
    let server = Postgres::find(None).unwrap().start(&Settings::default()).unwrap();
    let mut target: Target = format!("direct={}", server.url()).parse().unwrap();
    let found = processes(std::slice::from_ref(&target));
    assert_eq!(found, [Process { name: "postgres".to_owned(), pid: server.pid().unwrap() }]);
    let info = info(&target, &found).unwrap();
    assert!(info.version.starts_with("PostgreSQL ") && info.settings.contains_key("fsync"), "{info:?}");
    assert_eq!((info.process.as_deref(), info.url.contains(server.password())), (Some("postgres"), false));

    // The metrics are missing, which must not end the run.
    target.counters = Some(crate::target::Counters::Prometheus("http://127.0.0.1:1/metrics".to_owned()));
    let observer = Observer::start(&target, &found).unwrap();
    observer.begin();
    // The backend uses processor time and ends before the interval does.
    server.psql("SELECT count(*) FROM generate_series(1, 3000000)").unwrap();
    observer.end();
    let observed = observer.finish().unwrap();
    let usage = observed.processes["postgres"];
    assert!(usage.user + usage.system > 0.03 && usage.memory > 1 << 20, "{usage:?}");
    assert_eq!(observed.cache, None);
}

#[test]
fn a_target_that_is_not_there_has_nothing_to_say() {
    for url in [
        "postgres://u@127.0.0.1:1/d",
        "mysql://u@127.0.0.1:1/d",
        "memcached://127.0.0.1:1",
        "redis://127.0.0.1:1",
        "echo://127.0.0.1:1/2/3",
    ] {
        let target: Target = format!("nobody={url}").parse().unwrap();
        assert!(info(&target, &[]).is_err(), "{url}");
    }
}

#[test]
fn mariadbs_query_cache_is_observed() {
    let settings = MariadbSettings::default().with("query_cache_type = 1").with("query_cache_size = 1M");
    let server = match Mariadb::start(&settings) {
        Ok(server) => server,
        Err(error) => return println!("left out: {error:#}"),
    };
    let target: Target = format!("maria={},metrics=qcache", server.url()).parse().unwrap();
    let found = processes(std::slice::from_ref(&target));
    assert_eq!(found, [Process { name: "mariadbd".to_owned(), pid: server.pid().unwrap() }]);
    let info = info(&target, &found).unwrap();
    assert!(info.version.contains("MariaDB") && info.settings["query_cache_size"] == "1048576", "{info:?}");
    server.sql("CREATE DATABASE q; CREATE TABLE q.t (a INT); INSERT INTO q.t VALUES (1)").unwrap();
    let observer = Observer::start(&target, &found).unwrap();
    observer.begin();
    wait_until_begun(&observer);
    server.sql("SELECT a FROM q.t; SELECT a FROM q.t; SELECT a FROM q.t; SELECT now()").unwrap();
    observer.end();
    let cache = observer.finish().unwrap().cache.unwrap();
    assert_eq!((cache.hits, cache.fills, cache.entries), (2.0, 1.0, 1.0), "{cache:?}");
    assert!(cache.passed >= 1.0 && cache.bytes > 0.0, "{cache:?}");
}
