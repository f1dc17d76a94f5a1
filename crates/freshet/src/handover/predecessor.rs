//! The new process's side.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use freshet_proxy::{CarriedSession, Inherited, Shared};
use freshet_replication::Control;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use super::sessions::{self, Arrival};
use super::{END, GO, READY, TAKEN, VARIABLE};

/// All has been sent before the process was started.
const SOCKETS_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of the addresses' text.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Why nothing is cached yet.
pub(crate) const WAITING: &str = "sessions of the process before this one go on";

/// The process that this one replaces.
#[derive(Debug)]
pub(crate) struct Predecessor {
    link: UnixStream,
}

impl Predecessor {
    /// The process that has started this one, with its listening sockets. None if this is an ordinary start.
    pub(crate) fn of_environment() -> Result<(Option<Self>, Inherited)> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok((None, Inherited::default()));
        }
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let link = UnixStream::from(stdin);
        link.set_read_timeout(Some(SOCKETS_TIMEOUT))?;
        let sockets = receive(&link).with_context(|| format!("{VARIABLE} is set, but no sockets come"))?;
        Ok((Some(Self { link }), Inherited::new(sockets)))
    }

    /// Returns when this process is to accept connections. An error if the other one has ended before. `rest`: sockets that are not listened on any more.
    /// `read_again` is called when nothing can be changed through the other one any more.
    pub(crate) async fn take_over(
        self,
        rest: Inherited,
        read_again: impl FnOnce(),
    ) -> Result<(PredecessorEnd, Arrivals)> {
        self.link.set_nonblocking(true)?;
        let mut link = tokio::net::UnixStream::from_std(self.link)?;
        link.write_all(format!("{READY}\n").as_bytes()).await?;
        let mut line = [0; GO.len() + 1];
        link.read_exact(&mut line).await.context("the process before this one has not handed over")?;
        ensure!(line.starts_with(GO.as_bytes()), "unexpected: {:?}", String::from_utf8_lossy(&line));
        read_again();
        link.write_all(format!("{TAKEN}\n").as_bytes()).await?;
        for address in rest.rest() {
            tracing::warn!("no longer listening on {address}: the configuration does not name it any more");
        }
        drop(rest);
        let link = link.into_std()?;
        link.set_nonblocking(false)?;
        link.set_read_timeout(None)?;
        let (end, ended) = watch::channel(false);
        Ok((PredecessorEnd(Some(ended)), Arrivals { link, end }))
    }
}

/// The sessions of the process before this one that go on here.
pub(crate) struct Arrivals {
    link: UnixStream,
    end: watch::Sender<bool>,
}

impl Arrivals {
    /// Takes them, and notices the end of that process, in a thread.
    pub(crate) fn receive(self, take: impl Fn(CarriedSession) + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().name("arrivals".to_owned()).spawn(move || {
            let (mut sessions, mut without_socket) = (0_usize, 0_usize);
            // Any word stops the other process: it keeps those that it has not sent.
            let takes_no_more = || (&self.link).write_all(b"\n");
            loop {
                match sessions::receive(&self.link) {
                    Ok(Arrival::Session(session)) => {
                        sessions += 1;
                        take(session);
                    }
                    Ok(Arrival::WithoutSocket) => {
                        without_socket += 1;
                        if without_socket == 1 {
                            tracing::warn!(
                                "no descriptor is left for a session of the process before this one (nofile): \
                                 it has ended, and no more are taken"
                            );
                            let _ = takes_no_more();
                        }
                    }
                    Ok(Arrival::End) => break,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                    Err(error) => {
                        tracing::warn!(%error, "a session of the process before this one is lost; no more are taken");
                        let _ = takes_no_more();
                        // Its end alone is waited for.
                        let _ = io::copy(&mut &self.link, &mut io::sink());
                        break;
                    }
                }
            }
            let _ = self.end.send(true);
            tracing::info!(
                sessions,
                without_socket,
                "the process before this one has ended; its sessions that go on here are counted"
            );
        })?;
        Ok(())
    }
}

/// Receives the listening sockets.
pub(super) fn receive(link: &UnixStream) -> io::Result<Vec<(String, OwnedFd)>> {
    let (mut text, mut sockets) = (Vec::new(), Vec::new());
    while !text.ends_with(END.as_bytes()) {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let count = recvmsg(link, into, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if count == 0 || text.len() > TEXT_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text.extend(bytes.iter().take(count));
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                sockets.extend(rights);
            }
        }
    }
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    let addresses = text.strip_suffix(END).unwrap_or_default().lines().map(str::to_owned);
    Ok(addresses.zip(sockets).collect())
}

/// The end of the process that this one replaces, if it replaces any.
#[derive(Clone, Debug, Default)]
pub(crate) struct PredecessorEnd(Option<watch::Receiver<bool>>);

impl PredecessorEnd {
    pub(crate) fn has_come(&self) -> bool {
        self.0.as_ref().is_none_or(|ended| *ended.borrow())
    }

    /// Waits for the end, or until the follower of a stream is to stop. The reason is shown meanwhile.
    pub(crate) async fn come(self, shared: Arc<Shared>, control: Arc<Control>) {
        let Some(mut ended) = self.0.filter(|ended| !*ended.borrow()) else { return };
        shared.stream_lost(WAITING);
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => {}
            () = control.stopped() => {}
        }
    }
}
