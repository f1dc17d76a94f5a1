//! The old process's side.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IoSlice};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use freshet_proxy::{Databases, Workers};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::predecessor::PredecessorEnd;
use super::sessions::Departures;
use super::{END, GO, READY, TAKEN, VARIABLE};
use crate::exit::SuccessorFailed;
use crate::notify::ServiceManager;
use crate::web::Web;

/// Limit of the time that the new process takes to read its configuration and to open everything.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// And then to take over.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The first process of a container: the container ends with it.
const INIT: u32 = 1;

/// What another process can take over.
pub(crate) struct Handover {
    /// SIGUSR2.
    pub(crate) requests: Signal,
    /// The command line of this process.
    pub(crate) arguments: Vec<OsString>,
    /// Ends all changes of this process, and its cache (true), or undoes that. Returns the previous state.
    pub(crate) set_retired: Box<dyn Fn(bool) -> bool + Send + Sync>,
    pub(crate) databases: Arc<Databases>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) web: Option<Web>,
    /// Reads changed files.
    pub(crate) watch: AbortHandle,
    pub(crate) predecessor: PredecessorEnd,
}

impl Handover {
    /// Returns after a request when another process accepts the connections, and this one does not any more. A failure is logged, and this process goes
    /// on.
    pub(crate) async fn complete(&mut self, manager: &Arc<ServiceManager>) -> SuccessorEnd {
        loop {
            if self.requests.recv().await.is_none() {
                return std::future::pending().await;
            }
            tracing::info!("SIGUSR2: a new process is to take over");
            match self.hand_over(manager).await {
                Ok(end) => return end,
                Err(error) => tracing::error!("no new process has taken over, and this one goes on: {error:#}"),
            }
        }
    }

    async fn hand_over(&self, manager: &Arc<ServiceManager>) -> Result<SuccessorEnd> {
        ensure!(self.predecessor.has_come(), "the process before this one has not ended yet");
        ensure!(std::process::id() != INIT, "a container ends with its first process: replace the container");
        let mut successor = Successor::start(&self.arguments, &self.sockets()?)?;
        successor.says(READY, READY_TIMEOUT).await?;
        let process = successor.process.id().context("it has ended")?;
        // From here on the new process may acknowledge writes that this one's stream does not deliver in time.
        let was_retired = (self.set_retired)(true);
        if let Err(error) = successor.go().await {
            if error.is::<Ended>() && !was_retired {
                // It has not accepted a connection, nor has one before it.
                (self.set_retired)(false);
                return Err(error);
            }
            return Err(error.context("its cache stays off until it is restarted"));
        }
        manager.hand_over(process);
        self.workers.hand_over();
        self.watch.abort();
        if let Some(web) = &self.web {
            web.stop();
        }
        tracing::info!(connections = self.connections(), "handed over to process {process}; sessions go on here");
        let (process, departures) = successor.leave();
        self.databases.begin_handover(departures.sender());
        Ok(SuccessorEnd::of(process, departures, manager.clone()))
    }

    fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut all = self.workers.duplicates()?;
        if let Some(web) = &self.web {
            all.push(web.duplicate()?);
        }
        Ok(all)
    }

    /// Connections that this process has accepted and that are still open.
    pub(crate) fn connections(&self) -> usize {
        self.workers.connections()
    }
}

/// The new process.
struct Successor {
    /// Killed when this is dropped, as by SIGTERM amid the handover, and before the link is: it may have taken over unheard, and the end of the
    /// link would tell it that this process has ended.
    process: Child,
    link: tokio::net::UnixStream,
}

impl Successor {
    /// Starts the program from its path, where a new version may be now.
    fn start(arguments: &[OsString], sockets: &[(String, OwnedFd)]) -> Result<Self> {
        let (program, arguments) = arguments.split_first().context("the program has no name")?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        send(&ours, sockets).context("the sockets cannot be sent")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(OwnedFd::from(theirs)).env(VARIABLE, "stdin");
        // It names this process; the new one is watched as well.
        command.env_remove("WATCHDOG_PID");
        command.kill_on_drop(true);
        let process = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self { process, link: tokio::net::UnixStream::from_std(ours)? })
    }

    /// Waits for this word. If another comes, or none within this time, the process is killed. [`Ended`] if it has closed the link before it has said
    /// as much as the word has bytes.
    async fn says(&mut self, word: &str, within: Duration) -> Result<()> {
        let mut line = vec![0; word.len() + 1];
        match timeout(within, self.link.read_exact(&mut line)).await {
            Ok(Ok(_)) if line.starts_with(word.as_bytes()) => Ok(()),
            Ok(Err(_)) => {
                let status = self.end(Duration::from_secs(1)).await?;
                Err(Ended(status).into())
            }
            Ok(_) => {
                self.end(Duration::ZERO).await?;
                bail!("it does not know how to take over");
            }
            Err(_) => {
                self.end(Duration::ZERO).await?;
                bail!("it has not said {word:?} within {} s", within.as_secs());
            }
        }
    }

    /// Waits for its end. After this time it is killed.
    async fn end(&mut self, within: Duration) -> io::Result<ExitStatus> {
        if let Ok(status) = timeout(within, self.process.wait()).await {
            return status;
        }
        self.process.kill().await?;
        self.process.wait().await
    }

    /// Lets it accept.
    async fn go(&mut self) -> Result<()> {
        // If it has ended, no answer comes.
        let _ = self.link.write_all(format!("{GO}\n").as_bytes()).await;
        self.says(TAKEN, TAKEN_TIMEOUT).await
    }

    /// The process, which outlives this one, and what takes sessions there. The link ends with this process and not before: by that the new one sees its
    /// end.
    fn leave(self) -> (ManuallyDrop<Child>, Departures) {
        (ManuallyDrop::new(self.process), Departures::begin(self.link))
    }
}

/// The new process has ended, and has not said what was waited for.
#[derive(Debug)]
struct Ended(ExitStatus);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has ended with {}; its own line is in this log", self.0)
    }
}

impl std::error::Error for Ended {}

/// The end of the new process, as long as this one is there.
pub(crate) struct SuccessorEnd {
    ended: watch::Receiver<Option<ExitStatus>>,
    departures: Option<Departures>,
}

impl SuccessorEnd {
    fn of(mut process: ManuallyDrop<Child>, departures: Departures, manager: Arc<ServiceManager>) -> Self {
        let (end, ended) = watch::channel(None);
        tokio::spawn(async move {
            let Ok(status) = process.wait().await else { return };
            if !status.success() {
                tracing::error!("the process that has taken over has ended with {status}: this one ends, too");
                // Otherwise the service manager would wait for a process that is gone.
                manager.take_back();
            }
            let _ = end.send(Some(status));
        });
        Self { ended, departures: Some(departures) }
    }

    /// Returns when the sessions are there that have left this process. No more leave it.
    pub(crate) async fn receive_all(&mut self) {
        if let Some(departures) = self.departures.take() {
            departures.finish().await;
        }
    }

    /// Returns after the end.
    pub(crate) async fn come(&mut self) {
        if self.ended.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// An error if the new process has failed.
    pub(crate) fn check(&self) -> Result<()> {
        match *self.ended.borrow() {
            Some(status) if !status.success() => Err(SuccessorFailed(status).into()),
            _ => Ok(()),
        }
    }
}

/// Sends listening sockets. The buffer of the link must hold all messages, since nobody reads them yet.
fn send(link: &UnixStream, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    for (address, socket) in sockets {
        let rights = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&rights));
        let line = format!("{address}\n");
        sendmsg(link, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    }
    rustix::net::send(link, END.as_bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::predecessor::receive;
    use super::*;

    #[test]
    fn sockets_arrive_with_their_addresses() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let bound: Vec<TcpListener> =
            (0..100).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let addresses: Vec<_> = bound.iter().map(|socket| socket.local_addr().expect("an address")).collect();
        let all = bound.into_iter().zip(&addresses).map(|(socket, at)| (at.to_string(), socket.into()));
        send(&ours, &all.collect::<Vec<_>>()).expect("room for all");
        let received = receive(&theirs).expect("all");
        assert_eq!(received.len(), addresses.len());
        for ((text, socket), address) in received.into_iter().zip(addresses) {
            assert_eq!(text, address.to_string());
            assert_eq!(TcpListener::from(socket).local_addr().expect("an address"), address);
        }
        drop(ours);
        assert!(receive(&theirs).is_err(), "the end without a word");
    }
}
