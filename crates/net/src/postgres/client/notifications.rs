//! Notifications (NOTIFY) of a service connection.

use std::collections::VecDeque;

use freshet_wire::reader::{Malformed, Reader};

use super::{Client, State};
use crate::postgres::error::{Error, ServerError};

/// A notification of a channel to which the connection listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification<'m> {
    /// The process id of the session that sent it.
    pub process: u32,
    /// The channel.
    pub channel: &'m [u8],
    /// What was sent.
    pub payload: &'m [u8],
}

impl<'m> Notification<'m> {
    /// Reads the body of a `NotificationResponse`.
    pub fn read(body: &'m [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let process = reader.u32("process id")?;
        let (channel, payload) = (reader.cstr("channel")?, reader.cstr("payload")?);
        reader.finish()?;
        Ok(Self { process, channel, payload })
    }
}

impl Client {
    /// Keeps notifications from now on, for [`Self::notification`].
    pub fn keep_notifications(&mut self) {
        self.notifications.get_or_insert_default();
    }

    /// The body of the next notification. Cancel-safe: a dropped call loses nothing.
    pub async fn notification(&mut self) -> Result<Box<[u8]>, Error> {
        if self.state != State::Ready {
            return Err(Error::Dead);
        }
        loop {
            if let Some(next) = self.notifications.as_mut().and_then(VecDeque::pop_front) {
                return Ok(next);
            }
            let came = match self.frames.wait().await {
                Ok(()) => self.take_unasked(),
                Err(error) => Err(error),
            };
            if let Err(error) = came {
                self.state = State::Dead;
                return Err(error);
            }
        }
    }

    /// Takes a message that answers no statement.
    fn take_unasked(&mut self) -> Result<(), Error> {
        match self.frames.take()? {
            (b'A', body) => {
                self.notifications.get_or_insert_default().push_back(body.into());
                Ok(())
            }
            (b'S' | b'N', _) => Ok(()),
            (b'E', body) => Err(Error::Server(Box::new(ServerError::decode(body)?))),
            (tag, _) => Err(Error::Unexpected(tag)),
        }
    }
}
