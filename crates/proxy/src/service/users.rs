//! Looks verifiers up for logins, with the operator's query.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::pg::secret::Verifier;
use freshet_net::pg::{Client, Purpose};
use tokio::time::timeout;

use crate::service::connection::{Once, ServiceError};
use crate::shared::Shared;

/// Time for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers questions one after the other, for ever.
pub async fn look_up_users(shared: Arc<Shared>) {
    let (Some(mut questions), Some(sql)) = (shared.access.take_questions(), &shared.settings.access.auth_query) else {
        return;
    };
    let mut client = None;
    let mut once = Once::default();
    while let Some(question) = questions.recv().await {
        match look_up(&shared, &mut client, sql, &question.user).await {
            Ok(verifier) => {
                once.clear();
                let _ = question.answer.send(verifier);
            }
            Err(error) => {
                client = None;
                once.warn("cannot look a user up (--auth-query)", &error);
            }
        }
    }
}

async fn look_up(
    shared: &Shared,
    client: &mut Option<Client>,
    sql: &str,
    user: &str,
) -> Result<Option<Verifier>, ServiceError> {
    // One that was closed meanwhile is noticed only by asking.
    for again in [true, false] {
        if client.is_none() {
            *client = Some(Client::connect(&shared.settings.upstream, Purpose::Sql).await?);
        }
        let Some(connected) = client else { break };
        let limit = || freshet_net::pg::Error::Timeout(ANSWER_TIMEOUT);
        let answer = timeout(ANSWER_TIMEOUT, connected.query_with(sql, &[user])).await.unwrap_or_else(|_| Err(limit()));
        match answer {
            Ok(rows) => return read(&rows),
            Err(error) if again && connected.is_dead() && !matches!(error, freshet_net::pg::Error::Timeout(_)) => {
                *client = None;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(ServiceError::Shape("--auth-query"))
}

/// Name and verifier, as in pg_shadow; no row and NULL mean that the user has no password.
fn read(rows: &[Vec<Option<String>>]) -> Result<Option<Verifier>, ServiceError> {
    match rows {
        [] => Ok(None),
        [row] => match row.as_slice() {
            [_, None] => Ok(None),
            [_, Some(verifier)] => Ok(Verifier::parse(verifier).ok()),
            _ => Err(ServiceError::Shape("--auth-query: its columns must be a name and a verifier")),
        },
        _ => Err(ServiceError::Shape("--auth-query: it must answer one row at most")),
    }
}
