//! A session whose client and server talk the login out between themselves, message by message.

use super::error::ConnectError;
use super::frames::frame;
use super::login::{SessionLogin, hand_on, is_last_question, open_session};
use super::open::Opened;
use super::secret::Credentials;
use crate::Upstream;

/// A session on which AuthenticationOk has not come yet.
pub struct Relay {
    opened: Opened,
    /// What was to follow the login has been sent.
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

    /// An AuthenticationOk that nobody had to ask for may be meant for Freshet instead of its client: a Unix socket
    /// tells the server who Freshet is (`peer`), and so does a certificate of Freshet's own (`cert`).
    pub fn may_vouch_for_freshet(&self, upstream: &Upstream) -> bool {
        !self.opened.frames.is_tcp() || (self.is_encrypted() && upstream.conninfo().tls.cert.is_some())
    }

    /// The next message: its tag and its body.
    pub async fn receive(&mut self) -> Result<(u8, &[u8]), ConnectError> {
        self.opened.frames.receive().await.map_err(ConnectError::Protocol)
    }

    /// Sends the client's answer, a PasswordMessage or its like, to a question with this body. `behind`: messages to be sent with the
    /// last answer, if it is known to be the last.
    pub async fn answer(&mut self, question: &[u8], body: &[u8], behind: &[u8]) -> Result<(), ConnectError> {
        let mut message = frame(b'p', body);
        if is_last_question(question) && !behind.is_empty() && !self.asked {
            message.extend_from_slice(behind);
            self.asked = true;
        }
        self.opened.frames.send(&message).await.map_err(ConnectError::Tcp)
    }

    /// Answers the question received last, and what follows, for the client.
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
