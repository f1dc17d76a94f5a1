//! Forwards commands and answers of any size in bounded memory.
//!
//! A server may answer before it has read the whole command (if a packet is too large, say), and then close. So the answer is read as soon as it
//! arrives, and after a failed write the server's last message is still read.

use std::io;
use std::task::Poll;

use freshet_wire::mysql::ok::OK_MARK;
use freshet_wire::mysql::packet::{HEADER_BYTES, Header};
use freshet_wire::mysql::response::{Done, Kind, Response, Scanned, Step};

use tokio::time::timeout;

use crate::mysql::session::answer::Fill;
use crate::mysql::session::idle::Command;
use crate::mysql::session::{Session, SessionError};
use crate::peer::STALL_MAX;

/// Limit of an answer to a statement of Freshet's own.
const OWN_ANSWER_BYTES_MAX: usize = 256 << 10;

/// What to do with an answer.
pub(crate) enum To<'a> {
    /// Send it to the client, and perhaps cache it.
    Client {
        /// The fill that caches it.
        fill: Option<&'a mut Option<Box<Fill>>>,
        /// The command may have committed new changes.
        impure: bool,
    },
    /// Return it to Freshet.
    Own(&'a mut Vec<u8>),
    /// Return the payload of its error, if it is one, to Freshet.
    Error(&'a mut Vec<u8>),
    /// Drop it.
    Nobody,
}

/// Puts the number of a statement into the first packet of an answer to COM_STMT_PREPARE, unless it is an error.
fn put_given(packet: &mut [u8], number: u32) {
    if let Some([OK_MARK, place @ ..]) = packet.get_mut(HEADER_BYTES..HEADER_BYTES + 5) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

impl Session {
    /// Sends a command that is at the start of the client's input, with all its packets.
    pub(crate) async fn send_command(&mut self, command: Command) -> Result<(), SessionError> {
        if let Some((rewritten, replaced)) = self.at_hand.rewritten.take() {
            if self.at_hand.refused.is_none() {
                self.server.put(&rewritten);
            }
            self.client.input.consume(replaced);
            return self.send_bytes(command.header.packet_bytes().saturating_sub(replaced)).await;
        }
        self.server.answer_from = command.header.sequence.wrapping_add(1);
        if command.whole && !command.header.continues() {
            let bytes = self.client.input.bytes().get(..command.header.packet_bytes()).unwrap_or_default();
            if self.at_hand.refused.is_none() {
                self.server.put(bytes);
            }
            if let Some(reading) = &mut self.at_hand.reading {
                reading.packet(bytes);
            }
            self.client.input.consume(command.header.packet_bytes());
            return Ok(());
        }
        let last = self.send_packets(|header| !header.continues()).await?;
        // A server continues the numbers of the command's packets.
        self.server.answer_from = last.sequence.wrapping_add(1);
        Ok(())
    }

    /// Sends the client's packets up to the last one of the command.
    async fn send_packets(&mut self, mut is_last: impl FnMut(Header) -> bool) -> Result<Header, SessionError> {
        loop {
            if !self.client.receive_at_least(HEADER_BYTES).await? {
                return Err(SessionError::ClientEnded);
            }
            let header = Header::read(self.client.input.bytes()).ok_or(SessionError::ClientEnded)?;
            if let Some(reading) = &mut self.at_hand.reading {
                reading.packet(&[]);
            }
            self.send_bytes(header.packet_bytes()).await?;
            if is_last(header) {
                return Ok(header);
            }
        }
    }

    /// Sends this number of the client's bytes.
    pub(crate) async fn send_bytes(&mut self, count: usize) -> Result<(), SessionError> {
        let mut rest = count;
        while rest > 0 {
            let bytes = self.client.input.bytes();
            let bytes = bytes.get(..rest).unwrap_or(bytes);
            let count = bytes.len();
            if !self.server.is_deaf() && self.at_hand.refused.is_none() {
                self.server.put(bytes);
            }
            if let Some(reading) = &mut self.at_hand.reading {
                reading.feed(bytes);
            }
            self.client.input.consume(count);
            rest -= count;
            if rest > 0 || self.server.is_high() {
                self.make_room(rest > 0).await?;
            }
        }
        Ok(())
    }

    /// Sends to the server until the output is low, and receives from the client if more of the command is needed.
    async fn make_room(&mut self, more: bool) -> Result<(), SessionError> {
        std::future::poll_fn(|cx| {
            self.server.poll_send(cx);
            let low = self.server.is_deaf() || !self.server.is_high();
            if !more && low {
                return Poll::Ready(Ok(()));
            }
            if !low {
                return Poll::Pending;
            }
            if self.client.ended {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.client.poll_receive(cx)
        })
        .await
        .map_err(SessionError::Io)
    }

    /// Follows the answer to a command that was sent. Its last bytes stay in the client's output.
    pub(crate) async fn answer(&mut self, kind: Kind, to: To<'_>) -> Result<Done, SessionError> {
        self.settle_question().await?;
        self.settle_source().await?;
        let last_words = std::mem::take(&mut self.server.last_words);
        let refusal = self.settle_owed().await?;
        if matches!(to, To::Client { .. })
            && let Some(error) = self.at_hand.refused.take()
        {
            let done = self.answer_refused(&error);
            // Pieces of parameters that may belong to the command would be taken for those of the next one: the session ends.
            return if self.server.prepareds.have_pieces() { Err(SessionError::NoConnection) } else { Ok(done) };
        }
        self.begin_time_limit();
        let done = self.follow(kind, to).await;
        self.end_time_limit().await;
        if matches!(done, Err(SessionError::UpstreamEnded)) {
            // It may say why the connection ended.
            self.client.output.put(if refusal.is_empty() { &last_words } else { &refusal });
        }
        done
    }

    /// The same, if no other answer is due.
    pub(crate) async fn follow(&mut self, kind: Kind, mut to: To<'_>) -> Result<Done, SessionError> {
        let first = std::mem::replace(&mut self.server.answer_from, 1);
        let mut response = Response::new(kind, self.capabilities()).starting_at(first);
        loop {
            let scanned = response.scan(self.server.received())?;
            let bytes = self.server.received().get(..scanned.consumed).unwrap_or_default();
            match &mut to {
                To::Client { fill, .. } => {
                    if let Some(fill) = fill {
                        fill.take_if(|fill| !fill.keep(bytes)); // at once: the client may read it slowly
                    }
                    if let Some(counting) = &mut self.at_hand.counting {
                        counting.keep(bytes);
                    }
                    self.put_part(&scanned);
                }
                To::Own(all) if all.len() + bytes.len() > OWN_ANSWER_BYTES_MAX => return Err(SessionError::OwnAnswer),
                To::Own(all) => all.extend_from_slice(bytes),
                To::Error(_) | To::Nobody => {}
            }
            match scanned.step {
                Step::Done(done) => {
                    if !matches!(to, To::Client { .. }) && self.server.pooling.is_some() {
                        self.answer.warned |= done.error.is_some() || done.warnings > 0;
                    }
                    if let To::Error(error) = &mut to
                        && done.error.is_some()
                    {
                        error.extend_from_slice(self.server.received().get(done.last.clone()).unwrap_or_default());
                    }
                    self.server.answer_ends(&done);
                    self.server.consume(scanned.consumed);
                    return Ok(done);
                }
                Step::SendFile => {
                    self.server.consume(scanned.consumed);
                    self.client.flush().await?;
                    let mut continues = false;
                    let ends = |header: Header| {
                        let part = std::mem::replace(&mut continues, header.continues());
                        header.payload_bytes == 0 && !part
                    };
                    self.send_packets(ends).await?;
                }
                Step::Continue => {
                    self.server.consume(scanned.consumed);
                    if matches!(to, To::Client { impure: true, .. }) && response.results() > 0 {
                        // The client may learn of a commit before the end of the answer, which may wait.
                        self.shared.cache.fence_since(self.now());
                        self.shared.want_log_end();
                    }
                    let kept = match &mut to {
                        To::Client { fill: Some(fill), .. } if fill.is_some() => Some(fill),
                        _ => None,
                    };
                    match kept.filter(|_| self.client.output.is_high()) {
                        None => self.exchange().await?,
                        Some(fill) => match timeout(STALL_MAX, self.exchange()).await {
                            Ok(exchanged) => exchanged?,
                            Err(_) => **fill = None,
                        },
                    }
                }
            }
        }
    }

    /// Adds a part of an answer to the client's output.
    fn put_part(&mut self, scanned: &Scanned) {
        let shown = self.before_interruption(&scanned.step, scanned.consumed);
        let at = self.client.output.buffer().len();
        self.put_shown(shown, &scanned.changes);
        if let Some(number) = self.at_hand.number.take_if(|_| shown > 0) {
            put_given(self.client.output.buffer().get_mut(at..).unwrap_or_default(), number);
        }
        if shown < scanned.consumed {
            self.put_interruption(shown);
        }
    }

    /// Writes the output until more of the server's answer has arrived.
    async fn exchange(&mut self) -> Result<(), SessionError> {
        if self.server.has_ended() {
            // An incomplete packet is for the client, too: it is the server's last message.
            let bytes = self.server.received();
            self.client.output.put(bytes);
            return Err(SessionError::UpstreamEnded);
        }
        std::future::poll_fn(|cx| {
            self.server.poll_send(cx);
            if self.client.has_output()
                && let Poll::Ready(Err(error)) = self.client.poll_send(cx)
            {
                return Poll::Ready(Err(error));
            }
            if self.client.output.is_high() {
                return Poll::Pending;
            }
            self.server.poll_receive(cx)
        })
        .await
        .map_err(SessionError::Io)
    }
}
