//! Sessions on their way to another process.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net;
use std::sync::Arc;
use std::time::Duration;

use freshet_net::postgres::secret::SecretBytes;
use freshet_proxy::CarriedSession;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The longest wait for the other process to take those that have left.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// Limit of sessions that have left and are not sent yet.
const QUEUE_MAX: usize = 16;
/// Limit of a session's bytes.
const BYTES_MAX: usize = 16 << 20;
/// The bytes before a session's own: their number.
const HEAD_BYTES: usize = size_of::<u32>();

/// Sessions that leave this process.
pub(super) struct Departures {
    sessions: mpsc::Sender<CarriedSession>,
    finish: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Departures {
    /// They go to the process at the other end of the link, which stays open as long as this process is there.
    pub(super) fn begin(mut link: UnixStream) -> Self {
        let (sender, mut sessions) = mpsc::channel::<CarriedSession>(QUEUE_MAX);
        let finish = Arc::new(Notify::new());
        let finishes = finish.clone();
        let task = tokio::spawn(async move {
            loop {
                // In this order: those that have left come first.
                let session = tokio::select! {
                    biased;
                    session = sessions.recv() => session,
                    () = finishes.notified() => None,
                };
                let Some(session) = session else { break };
                if let Err(error) = send(&mut link, &session).await {
                    tracing::warn!(%error, "a session has ended between two processes; no more are handed over");
                    break;
                }
            }
            std::mem::forget(link);
        });
        Self { sessions: sender, finish, task }
    }

    pub(super) fn sender(&self) -> &mpsc::Sender<CarriedSession> {
        &self.sessions
    }

    /// Returns when those are sent that have left.
    pub(super) async fn finish(self) {
        self.finish.notify_one();
        let _ = timeout(FINISH_MAX, self.task).await;
    }
}

async fn send(link: &mut UnixStream, session: &CarriedSession) -> io::Result<()> {
    let state = session.state.expose();
    let head = u32::try_from(state.len()).map_err(io::Error::other)?.to_le_bytes();
    let sent = link.async_io(Interest::WRITABLE, || send_socket(link, &head, &session.socket)).await?;
    link.write_all(head.get(sent..).unwrap_or_default()).await?;
    link.write_all(state).await
}

/// Returns the number of bytes that were sent with it.
fn send_socket(link: &UnixStream, head: &[u8], socket: &OwnedFd) -> io::Result<usize> {
    let rights = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&rights));
    Ok(sendmsg(link, &[IoSlice::new(head)], &mut control, SendFlags::NOSIGNAL)?)
}

/// The next session; None at the end of the link.
pub(super) fn receive(mut link: &net::UnixStream) -> io::Result<Option<CarriedSession>> {
    let mut head = [0; HEAD_BYTES];
    let Some((socket, received)) = receive_socket(link, &mut head)? else { return Ok(None) };
    link.read_exact(head.get_mut(received..).unwrap_or_default())?;
    let length = u32::from_le_bytes(head) as usize;
    if length > BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut state = vec![0; length];
    link.read_exact(&mut state)?;
    Ok(Some(CarriedSession { socket, state: SecretBytes::new(state) }))
}

/// The socket that comes with the first bytes, and their number.
fn receive_socket(link: &net::UnixStream, head: &mut [u8]) -> io::Result<Option<(OwnedFd, usize)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(link, &mut [IoSliceMut::new(head)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    match (received, socket) {
        (0, _) => Ok(None),
        (_, Some(socket)) => Ok(Some((socket, received))),
        (_, None) => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn sessions_arrive_with_their_sockets() {
        let (ours, theirs) = net::UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        let departures = Departures::begin(UnixStream::from_std(ours).expect("a socket"));
        let texts = [0, 1, 300_000].map(|length| "x".repeat(length));
        let expected = texts.clone();
        let arrivals = std::thread::spawn(move || {
            for text in expected {
                let session = receive(&theirs).expect("a session").expect("not the end");
                assert_eq!(session.state.expose(), text.as_bytes());
                let mut read = String::new();
                net::UnixStream::from(session.socket).read_to_string(&mut read).expect("its socket");
                assert_eq!(read, format!("{}", text.len()));
            }
        });
        for text in texts {
            let (client, mut other) = net::UnixStream::pair().expect("a pair");
            other.write_all(format!("{}", text.len()).as_bytes()).expect("room");
            let state = SecretBytes::new(text.into_bytes());
            departures.sender().send(CarriedSession { socket: client.into(), state }).await.expect("a queue");
        }
        departures.finish().await;
        arrivals.join().expect("all arrive");
    }
}
