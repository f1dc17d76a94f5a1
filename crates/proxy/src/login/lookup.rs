//! Where verifiers come from: a users file first, then a query on the database.
//!
//! The query runs on a connection of its own, one question after the other, on the services' runtime. Its answers are
//! not kept: a changed password counts at once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use freshet_net::pg::secret::{Md5Hash, ScramVerifier, Verifier, random};
use tokio::sync::{mpsc, oneshot};

use super::users::{UsersError, UsersFile};
use super::{AccessError, AccessSettings};

/// Questions that wait.
const QUESTIONS_MAX: usize = 1000;

/// A user whose verifier is asked for.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) user: String,
    /// Dropped if the database cannot be asked.
    pub(crate) answer: oneshot::Sender<Option<Verifier>>,
}

/// What is to be held against a user's proof.
pub(super) enum Found {
    /// The user's verifier.
    Known(Verifier),
    /// One that looks like a verifier: the user is unknown or has no password.
    Unknown(Verifier),
}

/// The sources of verifiers.
#[derive(Debug)]
pub(super) struct Sources {
    users: Option<(PathBuf, ArcSwap<UsersFile>)>,
    questions: Option<mpsc::Sender<Question>>,
    receiver: Mutex<Option<mpsc::Receiver<Question>>>,
    /// Makes the exchange with an unknown user the same at each attempt.
    seed: [u8; 32],
    /// The last verifier found was MD5: an unknown user is asked the same way.
    md5: AtomicBool,
}

impl Sources {
    pub(super) fn new(settings: &AccessSettings) -> Result<Self, AccessError> {
        let users = match &settings.users {
            Some(path) => Some((path.clone(), ArcSwap::from_pointee(UsersFile::load(path)?))),
            None => None,
        };
        let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
        let asks = settings.auth_query.is_some();
        Ok(Self {
            users,
            questions: asks.then_some(sender),
            receiver: Mutex::new(asks.then_some(receiver)),
            seed: random().map_err(AccessError::Random)?,
            md5: AtomicBool::new(false),
        })
    }

    /// Verifiers can be known.
    pub(super) fn exist(&self) -> bool {
        self.users.is_some() || self.questions.is_some()
    }

    pub(super) fn reload(&self) -> Result<(), UsersError> {
        if let Some((path, users)) = &self.users {
            users.store(Arc::new(UsersFile::load(path)?));
        }
        Ok(())
    }

    pub(super) fn take_questions(&self) -> Option<mpsc::Receiver<Question>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The user's verifier; None if the database cannot be asked.
    pub(super) async fn verifier(&self, user: &str) -> Option<Found> {
        let mut found = self.users.as_ref().and_then(|(_, users)| users.load().get(user));
        if let (None, Some(questions)) = (&found, &self.questions) {
            let (answer, answered) = oneshot::channel();
            questions.send(Question { user: user.to_owned(), answer }).await.ok()?;
            found = answered.await.ok()?;
        }
        Some(match found {
            Some(verifier) => {
                self.md5.store(matches!(verifier, Verifier::Md5(_)), Relaxed);
                Found::Known(verifier)
            }
            None if self.md5.load(Relaxed) => Found::Unknown(Verifier::Md5(Md5Hash::of(&hex(&self.seed), user))),
            None => Found::Unknown(Verifier::Scram(ScramVerifier::mock(&self.seed, user))),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
