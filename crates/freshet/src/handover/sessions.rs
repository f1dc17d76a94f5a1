//! Sessions on their way to another process.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net;
use std::sync::Arc;
use std::time::Duration;

use freshet_net::postgres::secret::SecretBytes;
use freshet_proxy::CarriedSession;
use rustix::io::Errno;
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
/// The longest wait for it to take one.
const SEND_MAX: Duration = Duration::from_secs(2);
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
    pub(super) fn begin(link: UnixStream) -> Self {
        let (sender, mut sessions) = mpsc::channel::<CarriedSession>(QUEUE_MAX);
        let finish = Arc::new(Notify::new());
        let finishes = finish.clone();
        let mut link = ManuallyDrop::new(link);
        let task = tokio::spawn(async move {
            loop {
                // In this order: those that have left come before the end.
                let session = tokio::select! {
                    biased;
                    () = answered(&link) => {
                        sessions.close();
                        tracing::warn!("the new process takes no more sessions");
                        break;
                    }
                    session = sessions.recv() => session,
                    () = finishes.notified() => {
                        sessions.close();
                        continue;
                    }
                };
                let Some(session) = session else { break };
                let sent = timeout(SEND_MAX, send(&mut link, &session)).await;
                if let Err(error) = sent.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
                    tracing::warn!(%error, "a session has ended between two processes; no more are handed over");
                    session.end();
                    break;
                }
            }
            sessions.close();
            while let Some(session) = sessions.recv().await {
                session.end();
            }
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

/// Returns when the other process says anything, or has ended.
async fn answered(link: &UnixStream) {
    while link.readable().await.is_ok() {
        match link.try_read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

/// What has come.
pub(super) enum Arrival {
    Session(CarriedSession),
    /// A session without its socket, which is closed: this process has no descriptor for it.
    WithoutSocket,
    /// The end of the link.
    End,
}

/// The next session.
pub(super) fn receive(mut link: &net::UnixStream) -> io::Result<Arrival> {
    let mut head = [0; HEAD_BYTES];
    let (socket, received) = receive_socket(link, &mut head)?;
    if received == 0 {
        return Ok(Arrival::End);
    }
    link.read_exact(head.get_mut(received..).unwrap_or_default())?;
    let length = u32::from_le_bytes(head) as usize;
    if length > BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let state = SecretBytes::read_from(&mut link, length)?;
    Ok(socket.map_or(Arrival::WithoutSocket, |socket| Arrival::Session(CarriedSession { socket, state })))
}

/// The socket that comes with the first bytes, and their number.
fn receive_socket(link: &net::UnixStream, head: &mut [u8]) -> io::Result<(Option<OwnedFd>, usize)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(link, &mut [IoSliceMut::new(head)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    Ok((socket, received))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The link of a process that sends sessions, and the other end.
    fn departures() -> (Departures, net::UnixStream) {
        let (ours, theirs) = net::UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        (Departures::begin(UnixStream::from_std(ours).expect("a socket")), theirs)
    }

    /// A session with this state, and its client.
    fn session(state: &str) -> (CarriedSession, net::UnixStream) {
        let (socket, client) = net::UnixStream::pair().expect("a pair");
        (CarriedSession { socket: socket.into(), state: SecretBytes::new(state.into()) }, client)
    }

    #[tokio::test]
    async fn sessions_arrive_with_their_sockets() {
        let (departures, theirs) = departures();
        let texts = [0, 1, 300_000].map(|length| "x".repeat(length));
        let expected = texts.clone();
        let arrivals = std::thread::spawn(move || {
            for text in expected {
                let Ok(Arrival::Session(session)) = receive(&theirs) else { panic!("no session") };
                assert_eq!(session.state.expose(), text.as_bytes());
                let mut read = String::new();
                net::UnixStream::from(session.socket).read_to_string(&mut read).expect("its socket");
                assert_eq!(read, format!("{}", text.len()));
            }
        });
        for text in texts {
            let (session, mut client) = session(&text);
            client.write_all(format!("{}", text.len()).as_bytes()).expect("room");
            departures.sender().send(session).await.expect("a queue");
        }
        departures.finish().await;
        arrivals.join().expect("all arrive");
    }

    /// As at the limit of descriptors, when the state comes alone.
    #[tokio::test]
    async fn a_session_without_its_socket_is_no_end() {
        let (mut ours, theirs) = net::UnixStream::pair().expect("a pair");
        ours.write_all(&[&3_u32.to_le_bytes()[..], b"one"].concat()).expect("room");
        ours.set_nonblocking(true).expect("a socket");
        let departures = Departures::begin(UnixStream::from_std(ours).expect("a socket"));
        let (session, _client) = session("another");
        departures.sender().send(session).await.expect("a queue");
        departures.finish().await;
        assert!(matches!(receive(&theirs), Ok(Arrival::WithoutSocket)));
        let Ok(Arrival::Session(session)) = receive(&theirs) else { panic!("the other one is lost") };
        assert_eq!(session.state.expose(), b"another");
    }

    #[tokio::test]
    async fn sessions_that_cannot_be_sent_are_told() {
        for says in [true, false] {
            let (ours, mut theirs) = net::UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("a socket");
            let ours = UnixStream::from_std(ours).expect("a socket");
            let _alive = if says {
                theirs.write_all(b"\n").expect("room");
                Some(theirs)
            } else {
                drop(theirs);
                None
            };
            // Otherwise the first might be sent before the word is noticed.
            ours.readable().await.expect("a word or the end");
            let departures = Departures::begin(ours);
            let clients = ["one", "two"].map(|state| {
                let (session, client) = session(state);
                assert!(departures.sender().try_send(session).is_ok(), "a queue");
                client
            });
            let sender = departures.sender().clone();
            departures.finish().await;
            assert!(sender.is_closed());
            for mut client in clients {
                let mut told = String::new();
                client.read_to_string(&mut told).expect("text");
                assert!(told.contains("57P01"), "{told:?}");
            }
        }
    }
}
