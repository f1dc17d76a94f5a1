//! Logins of sessions that share server connections.

use std::sync::Arc;

use super::{First, Refusal, Upstreams, refused_upstream};
use crate::postgres::Pg;
use crate::postgres::pooling::labels::SetThere;
use crate::postgres::pooling::remembered::Beginning;
use crate::postgres::pooling::{Login, NotObtained, obtain};

/// What a session begins with that shares server connections: what is remembered of the last login at the server, or the connection of another one.
pub(super) async fn begin(shared: &Arc<Pg>, login: Login) -> Result<Upstreams, Refusal> {
    let login = Arc::new(login);
    let remembered = &shared.pooling.remembered;
    let checked = remembered.check(&login).await;
    if let Some(beginning) = checked.as_ref().and_then(|checked| remembered.find(shared, &login, checked)) {
        shared.pooling.logins.note(&login.key, &login);
        return Ok(Upstreams::Shared(login, Box::new(First { beginning, obtained: None })));
    }
    match obtain(shared.clone(), login.clone(), SetThere::default()).await {
        Ok(obtained) => {
            shared.pooling.logins.note(&login.key, &login);
            let beginning = Beginning::of(&obtained);
            if let Some(checked) = checked {
                remembered.note(&login, checked, beginning.clone());
            }
            Ok(Upstreams::Shared(login, Box::new(First { beginning, obtained: Some(obtained) })))
        }
        Err(NotObtained::Connect(error)) => Err(refused_upstream(shared, error, &login.user)),
        Err(error @ NotObtained::WaitTimeout) => Err(Refusal::Say("08P01", error.to_string())),
        Err(error) => Err(Refusal::Say("08006", error.to_string())),
    }
}
