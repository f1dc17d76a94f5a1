//! Between two commands: the session waits for both sides.
//!
//! A server that ends an idle session sends the reason before it closes (`wait_timeout`, KILL, shutdown), and that is forwarded. When the program
//! ends, an idle session receives the server's own error. Servers give such an error the number of an answer, so a client that has just sent a
//! command takes it for the answer.

use std::io;
use std::task::Poll;
use std::time::Duration;

use freshet_wire::mysql::capabilities::Status;
use freshet_wire::mysql::command::QUERY;
use freshet_wire::mysql::error::put_error;
use freshet_wire::mysql::packet::{HEADER_BYTES, Header};
use tokio::time::timeout;

use crate::mysql::session::{Session, SessionError};
use crate::peer::Peer;
use crate::statement::registry::TEXT_BYTES_MAX;

/// Time limit for last messages.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// ER_CONNECTION_KILLED of MariaDB
pub(super) const KILLED: (u16, &str, &str) = (1927, "70100", "Connection was killed");

/// The first word of statements for Freshet itself, and where it begins at the latest: attributes or a comment may come before it.
const VERB: &[u8] = b"freshet ";
const VERB_WITHIN: usize = 64;

/// A command at the start of the client's input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// The length of its first packet.
    pub(crate) header: Header,
    /// Its first byte; None if it is empty.
    pub(crate) code: Option<u8>,
    /// Whether it has arrived completely.
    pub(crate) whole: bool,
}

/// What ended the wait for a command.
enum Came {
    /// Bytes, or the end, of either side.
    Something,
    /// The end of the program.
    Drain,
    /// A KILL of the session, which has no connection at the server.
    Kill,
}

impl Session {
    /// The next command; None if the session ends.
    pub(crate) async fn next_command(&mut self) -> Result<Option<Command>, SessionError> {
        loop {
            if self.client.output.is_high() {
                self.client.flush().await?;
            }
            if self.forward_unasked() {
                return Ok(None);
            }
            let command = self.command_at_hand();
            if command.is_none() && self.take_due() {
                Box::pin(self.give_up_diagnostics()).await?;
            }
            let waits = self.is_paused() && !command.is_some_and(|command| self.is_for_freshet(command));
            self.server.link.set_parked(self.is_paused());
            if let Some(command) = command
                && !waits
            {
                return Ok(Some(command));
            }
            if self.client.ended {
                return Ok(None);
            }
            let (code, state, text) = match self.wait(command.is_some()).await? {
                Came::Something => continue,
                // ER_SERVER_SHUTDOWN
                Came::Drain => (1053, "08S01", "Server shutdown in progress"),
                Came::Kill => KILLED,
            };
            put_error(self.client.output.buffer(), &mut 1, code, Some(state), text);
            return Ok(None);
        }
    }

    fn command_at_hand(&self) -> Option<Command> {
        let bytes = self.client.input.bytes();
        let header = Header::read(bytes)?;
        let code = bytes.get(HEADER_BYTES).copied();
        if header.payload_bytes > 0 && code.is_none() {
            return None;
        }
        let whole = bytes.len() >= header.packet_bytes();
        // Small commands are received completely first.
        (whole || header.payload_bytes > TEXT_BYTES_MAX || self.client.ended).then_some(Command { header, code, whole })
    }

    /// Forwards messages that the server sends unasked; true if it has ended the connection.
    fn forward_unasked(&mut self) -> bool {
        let Some(server) = self.server.peer() else { return false };
        let bytes = server.input.bytes();
        let count = bytes.len();
        self.client.output.put(bytes);
        server.input.consume(count);
        server.ended
    }

    fn is_to_leave(&self) -> bool {
        let switches = &self.shared.switches;
        switches.is_draining()
            && self.client.input.bytes().is_empty()
            && (switches.is_closing() || !self.status.has(Status::IN_TRANS) && !self.transaction.is_within_block())
    }

    /// Whether the next command waits for RESUME. A transaction is ended first.
    fn is_paused(&self) -> bool {
        self.server.link.is_paused()
            && !self.status.has(Status::IN_TRANS)
            && !self.transaction.is_within_block()
            && !self.shared.switches.is_draining()
    }

    /// Whether it is a statement for Freshet itself, such as FRESHET RESUME.
    fn is_for_freshet(&self, command: Command) -> bool {
        let payload = self.client.input.bytes().get(HEADER_BYTES..command.header.packet_bytes()).unwrap_or_default();
        command.code == Some(QUERY)
            && payload.windows(VERB.len()).take(VERB_WITHIN).any(|word| word.eq_ignore_ascii_case(VERB))
    }

    /// Sends the output, until something arrives. `is_full`: the next command is at hand.
    async fn wait(&mut self, is_full: bool) -> io::Result<Came> {
        std::future::poll_fn(|cx| {
            if self.is_to_leave() {
                return Poll::Ready(Ok(Came::Drain));
            }
            if self.server.pooling.is_some() && self.server.link.is_killed() {
                return Poll::Ready(Ok(Came::Kill));
            }
            if let Some(server) = self.server.peer()
                && server.has_output()
                && let Poll::Ready(Err(error)) = server.poll_send(cx)
            {
                return Poll::Ready(Err(error));
            }
            if self.client.has_output()
                && let Poll::Ready(Err(error)) = self.client.poll_send(cx)
            {
                return Poll::Ready(Err(error));
            }
            if let Some(pooling) = &mut self.server.pooling
                && pooling.resting.poll(cx)
            {
                return Poll::Ready(Ok(Came::Something));
            }
            if self.server.link.take_news() {
                return Poll::Ready(Ok(Came::Something));
            }
            if let Poll::Ready(received) = self.server.poll_receive(cx) {
                return Poll::Ready(received.map(|()| Came::Something));
            }
            if is_full {
                return Poll::Pending;
            }
            self.client.poll_receive(cx).map_ok(|()| Came::Something)
        })
        .await
    }

    /// Sends the last messages to both sides.
    pub(crate) async fn farewell(&mut self) -> io::Result<()> {
        let end = async {
            if let Some(server) = self.server.peer() {
                let _ = server.flush().await;
            }
            self.client.flush().await?;
            self.client.shut_down().await
        };
        timeout(FAREWELL_TIMEOUT, end).await.unwrap_or(Ok(()))
    }

    /// The session cannot interpret the messages any more: bytes are forwarded both ways until one side ends.
    pub(crate) async fn raw(&mut self) -> Result<(), SessionError> {
        let client = &mut self.client;
        let Some(server) = self.server.peer() else { return Ok(()) };
        loop {
            move_bytes(client, server);
            move_bytes(server, client);
            if server.ended || (client.ended && !server.has_output()) {
                return Ok(());
            }
            std::future::poll_fn(|cx| {
                let mut progress = false;
                for peer in [&mut *server, &mut *client] {
                    if peer.has_output()
                        && let Poll::Ready(sent) = peer.poll_send(cx)
                    {
                        sent?;
                        progress = true;
                    }
                }
                let (upstream_high, client_high) = (server.output.is_high(), client.output.is_high());
                for (peer, high) in [(&mut *server, client_high), (&mut *client, upstream_high)] {
                    if !high && let Poll::Ready(received) = peer.poll_receive(cx) {
                        received?;
                        progress = true;
                    }
                }
                if progress { Poll::Ready(Ok::<(), io::Error>(())) } else { Poll::Pending }
            })
            .await?;
        }
    }
}

fn move_bytes(from: &mut Peer, to: &mut Peer) {
    if !to.output.is_high() {
        let bytes = from.input.bytes();
        let count = bytes.len();
        to.output.put(bytes);
        from.input.consume(count);
    }
}
