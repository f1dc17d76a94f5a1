//! Looks up verifiers for logins, with the operator's query.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::postgres::secret::Verifier;
use freshet_net::postgres::{Client, Error, Purpose};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::postgres::Pg;
use crate::postgres::login::Question;
use crate::postgres::service::connection::ServiceError;
use crate::service::once::Once;

/// Connections for look-ups.
const CONNECTIONS: usize = 4;
/// The class of errors for invalid data, such as a name that the database's encoding cannot represent.
const NOT_A_NAME: &str = "22";
/// Time limit of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers look-ups; never returns. A slow one does not delay all others.
pub async fn look_up_users(shared: Arc<Pg>) {
    let Some(questions) = shared.access.take_questions() else { return };
    let questions = Arc::new(Mutex::new(questions));
    for _ in 0..CONNECTIONS {
        shared.tasks.spawn(answer_questions(shared.clone(), questions.clone()));
    }
}

async fn answer_questions(shared: Arc<Pg>, questions: Arc<Mutex<mpsc::Receiver<Question>>>) {
    let Some(sql) = &shared.own.access.auth_query else { return };
    let mut client = None;
    let mut once = Once::default();
    loop {
        let question = questions.lock().await.recv().await;
        let Some(question) = question else { return };
        if question.answer.is_closed() {
            continue; // its client is gone
        }
        match look_up(&shared, &mut client, sql, &question.user).await {
            Ok(verifier) => {
                once.clear();
                let _ = question.answer.send(verifier);
            }
            Err(ServiceError::Query(Error::Server(error))) if error.code.starts_with(NOT_A_NAME) => {
                let _ = question.answer.send(None);
            }
            Err(error) => once.warn("cannot look a user up (--auth-query)", &error),
        }
        if client.as_ref().is_some_and(Client::is_dead) {
            client = None;
        }
    }
}

async fn look_up(
    shared: &Pg,
    client: &mut Option<Client>,
    sql: &str,
    user: &str,
) -> Result<Option<Verifier>, ServiceError> {
    // A connection that was closed meanwhile fails only at the query, so the query is repeated once.
    for again in [true, false] {
        if client.is_none() {
            *client = Some(Client::connect(&shared.own.upstream, Purpose::Sql).await?);
        }
        let Some(connected) = client else { break };
        let limit = || Error::Timeout(ANSWER_TIMEOUT);
        let answer = timeout(ANSWER_TIMEOUT, connected.query_with(sql, &[user])).await.unwrap_or_else(|_| Err(limit()));
        match answer {
            Ok(rows) => return read(&rows, user),
            Err(error) if again && connected.is_dead() && !matches!(error, Error::Timeout(_)) => {
                *client = None;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(ServiceError::UnexpectedAnswer("--auth-query"))
}

/// Name and verifier, as in pg_shadow. No row or NULL means that the user has no password. A row with another name is ignored, however the query
/// compares names.
fn read(rows: &[Vec<Option<String>>], user: &str) -> Result<Option<Verifier>, ServiceError> {
    match rows {
        [] => Ok(None),
        [row] => match row.as_slice() {
            [Some(name), Some(verifier)] if name == user => Ok(Verifier::parse(verifier).ok()),
            [_, _] => Ok(None),
            _ => Err(ServiceError::UnexpectedAnswer("--auth-query: its columns must be a name and a verifier")),
        },
        _ => Err(ServiceError::UnexpectedAnswer("--auth-query: it must answer one row at most")),
    }
}
