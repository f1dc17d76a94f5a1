//! The sources of verifiers: the users file first, then a query on the database.
//!
//! The query runs on its own connections, in the services' runtime. Its answers are not stored: a changed password is used at once.
//!
//! An unknown user must look like a known one: the same method and number of iterations as for others, and the same salt at each attempt, also after
//! a restart. PostgreSQL stores a secret for that in its control file (`mock_authentication_nonce`); Freshet computes it from secrets that the
//! operator has given.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use freshet_net::Upstream;
use freshet_net::postgres::secret::{ITERATIONS_DEFAULT, Md5Hash, ScramVerifier, Verifier, hash, random};
use tokio::sync::{mpsc, oneshot};

use crate::server::access::{AccessError, AccessSettings, UsersError, UsersFile};

/// Limit of waiting look-ups.
const QUESTIONS_MAX: usize = 1000;

/// A user whose verifier is looked up.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) user: String,
    /// Dropped if the database cannot be queried.
    pub(crate) answer: oneshot::Sender<Option<Verifier>>,
}

/// The verifier to check a user's proof with.
pub(super) enum Found {
    /// The user's verifier.
    Known(Verifier),
    /// A mock verifier: the user is unknown or has no password.
    Unknown(Verifier),
}

/// The sources of verifiers.
#[derive(Debug)]
pub(super) struct Sources {
    users: Option<UsersFile<Verifier>>,
    questions: Option<mpsc::Sender<Question>>,
    receiver: Mutex<Option<mpsc::Receiver<Question>>>,
    /// Makes the exchange with an unknown user the same at each attempt.
    seed: [u8; 32],
    /// The kinds of verifiers seen until now. An unknown user gets MD5 if there is no other kind, and always the same, since a changing method would
    /// reveal that the user is unknown.
    md5: AtomicBool,
    scram: AtomicBool,
    /// The iterations of the SCRAM verifier seen last.
    iterations: AtomicU32,
}

impl Sources {
    pub(super) fn new(settings: &AccessSettings, upstream: &Upstream) -> Result<Self, AccessError> {
        let users = settings.users.as_deref().map(UsersFile::of_verifiers).transpose()?;
        let seed = match settled_secret(users.as_ref(), upstream) {
            Some(secret) => hash(secret.as_bytes()),
            None => random().map_err(AccessError::Random)?,
        };
        let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
        let asks = settings.auth_query.is_some();
        let sources = Self {
            users,
            questions: asks.then_some(sender),
            receiver: Mutex::new(asks.then_some(receiver)),
            seed,
            md5: AtomicBool::new(false),
            scram: AtomicBool::new(false),
            iterations: AtomicU32::new(ITERATIONS_DEFAULT),
        };
        sources.note_users();
        Ok(sources)
    }

    /// Whether there is a source of verifiers.
    pub(super) fn exist(&self) -> bool {
        self.users.is_some() || self.questions.is_some()
    }

    /// Whether this user has a verifier, as far as the database need not be asked.
    pub(super) fn may_know(&self, user: &str) -> bool {
        self.questions.is_some() || self.users.as_ref().is_some_and(|users| users.get(user).is_some())
    }

    pub(super) fn reload(&self) -> Result<(), UsersError> {
        self.users.as_ref().map_or(Ok(()), UsersFile::reload)?;
        self.note_users();
        Ok(())
    }

    pub(super) fn take_questions(&self) -> Option<mpsc::Receiver<Question>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The user's verifier; None if the database cannot be queried.
    pub(super) async fn verifier(&self, user: &str) -> Option<Found> {
        // Created for every user, so that the time reveals nothing.
        let mock = self.mock(user);
        let mut found = self.users.as_ref().and_then(|users| users.get(user));
        if let (None, Some(questions)) = (&found, &self.questions) {
            let (answer, answered) = oneshot::channel();
            questions.send(Question { user: user.to_owned(), answer }).await.ok()?;
            found = answered.await.ok()?;
        }
        Some(match found {
            Some(verifier) => {
                self.note(&verifier);
                Found::Known(verifier)
            }
            None => Found::Unknown(mock),
        })
    }

    fn note_users(&self) {
        self.users.iter().flat_map(UsersFile::secrets).for_each(|verifier| self.note(&verifier));
    }

    fn note(&self, verifier: &Verifier) {
        match verifier {
            Verifier::Md5(_) => self.md5.store(true, Relaxed),
            Verifier::Scram(verifier) => {
                self.scram.store(true, Relaxed);
                self.iterations.store(verifier.iterations(), Relaxed);
            }
        }
    }

    /// A verifier that nothing matches, the same at each attempt.
    fn mock(&self, user: &str) -> Verifier {
        if self.md5.load(Relaxed) && !self.scram.load(Relaxed) {
            Verifier::Md5(Md5Hash::of(&hex(&self.seed), user))
        } else {
            Verifier::Scram(ScramVerifier::mock(&self.seed, user, self.iterations.load(Relaxed)))
        }
    }
}

/// A secret that is the same after a restart: the upstream's password, else a verifier.
fn settled_secret(users: Option<&UsersFile<Verifier>>, upstream: &Upstream) -> Option<String> {
    if let Some(password) = upstream.conninfo().hosts.iter().find_map(|host| host.password.as_ref()) {
        return Some(password.expose().to_owned());
    }
    users?.secrets().iter().map(Verifier::to_secret).min()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
