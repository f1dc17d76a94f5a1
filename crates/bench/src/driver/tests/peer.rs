//! memcached and Redis, started for a test.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use freshet_testbed::Leash;

/// A running peer. It is stopped when dropped.
pub(crate) struct Peer {
    child: Child,
    _leash: Leash,
    /// `127.0.0.1:port`
    pub(crate) place: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a peer, again if another process took its port. None if it is not installed.
pub(crate) fn start(program: &str, arguments: impl Fn(u16) -> Vec<String>) -> Option<Peer> {
    for _ in 0..10 {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(arguments(port)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                left_out(&format!("{program}: {error}; run `script/setup test`"));
                return None;
            }
        };
        let leash = Leash::tie(child.id()).unwrap();
        while child.try_wait().unwrap().is_none() {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Some(Peer { child, _leash: leash, place: format!("127.0.0.1:{port}") });
            }
            std::thread::yield_now();
        }
    }
    panic!("{program} does not start");
}

pub(crate) fn memcached() -> Option<Peer> {
    // `-u` applies only to root, as which memcached does not run.
    start("memcached", |port| {
        ["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p", &port.to_string()].map(str::to_owned).into()
    })
}

pub(crate) fn redis(more: &[&str]) -> Option<Peer> {
    start("redis-server", |port| {
        let port = port.to_string();
        let settings = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port];
        settings.iter().chain(more).map(|word| (*word).to_owned()).collect()
    })
}

/// Reports a skipped test. In strict mode the test fails.
pub(crate) fn left_out(reason: &str) {
    assert!(std::env::var_os("FRESHET_TEST_STRICT").is_none(), "{reason}");
    println!("skipped: {reason}");
}
