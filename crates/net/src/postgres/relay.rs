//! A session whose client and server exchange the login themselves, message by message.

use super::error::ConnectError;
use super::frames::frame;
use super::login::{SessionLogin, hand_on, is_last_question, open_session};
use super::open::Opened;
use super::secret::Credentials;
use crate::Upstream;

/// A session on which AuthenticationOk has not come yet.
pub struct Relay {
    opened: Opened,
    /// The messages behind the login have been sent.
    asked: bool,
}

impl Relay {
    /// Sends a client's start-up packet; the server's first message is there.
    pub async fn open(upstream: &Upstream, packet: &[u8]) -> Result<Self, ConnectError> {
        Ok(Self { opened: open_session(upstream, packet).await?, asked: false })
    }

    /// The leg to the server is TLS.
    pub fn is_encrypted(&self) -> bool {
        self.opened.frames.is_encrypted()
    }

    /// Whether AuthenticationOk without a request may be meant for Freshet instead of its client. A Unix socket tells
    /// the server Freshet's user (`peer`), and so does Freshet's own certificate (`cert`).
    pub fn may_vouch_for_freshet(&self, upstream: &Upstream) -> bool {
        !self.opened.frames.is_tcp() || (self.is_encrypted() && upstream.conninfo().tls.cert.is_some())
    }

    /// The next message: its tag and its body.
    pub async fn receive(&mut self) -> Result<(u8, &[u8]), ConnectError> {
        self.opened.frames.receive().await.map_err(ConnectError::Protocol)
    }

    /// Sends the client's answer to a request with this body: a PasswordMessage or similar. `behind` has messages to
    /// send with the last answer, if it is known to be the last.
    pub async fn answer(&mut self, question: &[u8], body: &[u8], behind: &[u8]) -> Result<(), ConnectError> {
        let mut message = frame(b'p', body);
        if is_last_question(question) && !behind.is_empty() && !self.asked {
            message.extend_from_slice(behind);
            self.asked = true;
        }
        self.opened.frames.send(&message).await.map_err(ConnectError::Tcp)
    }

    /// Answers the last request and those that follow, on behalf of the client.
    pub async fn hand_on(
        mut self,
        upstream: &Upstream,
        user: &str,
        credentials: &Credentials,
        behind: &[u8],
    ) -> Result<SessionLogin, ConnectError> {
        self.opened.frames.put_back();
        hand_on(upstream, self.opened, user, credentials, behind).await
    }

    /// AuthenticationOk was the message received last.
    pub fn into_session(self) -> SessionLogin {
        let (socket, received) = self.opened.frames.into_parts();
        SessionLogin { socket, received, asked: self.asked }
    }
}
