//! Logins of sessions that share server connections.

use std::sync::Arc;

use super::{Refusal, Upstreams, refused_upstream};
use crate::postgres::Pg;
use crate::postgres::pooling::{Login, NotObtained, obtain};

/// The first server connection of a session that shares them.
pub(super) async fn obtain_first(shared: &Arc<Pg>, login: Login) -> Result<Upstreams, Refusal> {
    let login = Arc::new(login);
    match obtain(shared.clone(), login.clone()).await {
        Ok(obtained) => {
            shared.pooling.logins.note(&login.key, &login);
            Ok(Upstreams::Shared(login, Box::new(obtained)))
        }
        Err(NotObtained::Connect(error)) => Err(refused_upstream(shared, error, &login.user)),
        Err(error @ NotObtained::WaitTimeout) => Err(Refusal::Say("08P01", error.to_string())),
        Err(error @ (NotObtained::Invalid | NotObtained::OtherSettings)) => {
            Err(Refusal::Say("08006", error.to_string()))
        }
    }
}
