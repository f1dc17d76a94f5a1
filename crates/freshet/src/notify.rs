//! Tells systemd what this process does, as sd_notify(3) has it: ready, reloading, stopping, and alive.
//!
//! Without a service manager that asks for it (`NOTIFY_SOCKET`) nothing is sent.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use freshet_proxy::Workers;
use rustix::time::{ClockId, clock_gettime};

/// The status of a process at work.
pub(crate) const SERVING: &str = "serving";

/// The service manager.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// A process that is silent for longer is killed.
    watchdog: Option<Duration>,
    /// The service is another process now, which says the rest.
    handed_over: AtomicBool,
}

impl ServiceManager {
    /// The one that has started this process.
    pub(crate) fn of_environment() -> Arc<Self> {
        let variable = |name| std::env::var(name).ok();
        let number = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
        let socket = variable("NOTIFY_SOCKET").and_then(|name| connect(&name));
        // The variable may be meant for another process that has passed its environment on.
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_meant).map(Duration::from_micros);
        Arc::new(Self { socket, watchdog, handed_over: AtomicBool::new(false) })
    }

    /// Connections are accepted, or a reload has ended.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// A reload begins. systemd compares the time with that of its request.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The process ends within this time.
    pub(crate) fn stopping(&self, within: Duration) {
        self.send(&format!("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={}", within.as_micros()));
    }

    /// From now on this process is the service.
    pub(crate) fn hand_over(&self, process: u32) {
        self.send(&format!("MAINPID={process}"));
        self.handed_over.store(true, Relaxed);
    }

    /// The process that had taken over is gone: this one is the service again.
    pub(crate) fn take_back(&self) {
        self.handed_over.store(false, Relaxed);
        self.send(&format!("MAINPID={}", std::process::id()));
    }

    /// Says that the process is alive as long as this runtime and all workers turn, for ever.
    pub(crate) async fn keep_alive(self: Arc<Self>, workers: Arc<Workers>) {
        let Some(watchdog) = self.watchdog.filter(|_| self.socket.is_some()) else { return };
        loop {
            workers.turn().await;
            self.send("WATCHDOG=1");
            tokio::time::sleep(watchdog / 3).await;
        }
    }

    fn send(&self, message: &str) {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.handed_over.load(Relaxed)) else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::debug!(%error, "the service manager cannot be told");
        }
    }
}

/// A name that begins with @ is one in the abstract namespace.
fn connect(name: &str) -> Option<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A full queue must not stop the program.
    socket.set_nonblocking(true).ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}
