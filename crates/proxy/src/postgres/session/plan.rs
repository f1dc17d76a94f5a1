//! The decisions, as pure functions: what the session's state allows, and what a reason asks for.

use freshet_types::Reason;

use crate::postgres::session::block::Block;
use crate::session::context::Context;

/// The state that decides whether a session may use the cache now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// An operator has switched the cache off.
    pub(crate) bypass: bool,
    /// The transaction status of the last `ReadyForQuery`.
    pub(crate) transaction: TransactionState<'a>,
    /// Test switch.
    pub(crate) hits_after_write: bool,
    /// A unit that may write, open a transaction or change the session is not answered yet.
    pub(crate) behind_impure: bool,
    /// Whether the session's server and database are those of the change stream; None: not known yet.
    pub(crate) server: Option<Result<(), &'a Reason>>,
    /// The session's context. None: it must be asked for. Err: it cannot be known.
    pub(crate) context: Option<Result<&'a Context, &'a Reason>>,
}

/// The transaction state of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransactionState<'a> {
    /// In no transaction block.
    Idle,
    /// In this block.
    Block(&'a Block),
    /// In a block that has failed, or whose state is unknown.
    Lost,
}

/// What the session's state allows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// The cache, with this context.
    Cache {
        /// [`Context::id`].
        context: u32,
    },
    /// It is decided once the session has its context.
    Ask,
    /// Nothing.
    Pass(Reason),
}

/// Whether the session may use the cache.
pub(crate) fn allowed(view: View<'_>) -> Allowed {
    if view.bypass {
        // Without a known context, any read may call a function that writes, so it costs as much as a write.
        let unknown =
            view.context.is_none() && matches!(view.transaction, TransactionState::Idle) && !view.behind_impure;
        return if unknown { Allowed::Ask } else { Allowed::Pass(Reason::SwitchedOff) };
    }
    let obstacle = match view.transaction {
        _ if view.behind_impure => Some(Reason::InTransaction),
        TransactionState::Idle => None,
        TransactionState::Block(block) => block.obstacle(view.hits_after_write),
        TransactionState::Lost => Some(Reason::InTransaction),
    };
    if let Some(reason) = obstacle {
        return Allowed::Pass(reason);
    }
    if let Some(Err(reason)) = view.server {
        return Allowed::Pass(reason.clone());
    }
    match (view.context, view.server) {
        (Some(Err(reason)), _) => Allowed::Pass(reason.clone()),
        (Some(Ok(context)), Some(_)) => match &context.obstacle {
            Some(reason) => Allowed::Pass(reason.clone()),
            None => Allowed::Cache { context: context.id },
        },
        // Freshet sends no query into a block, except the one for settings that the block has changed for itself.
        _ if matches!(view.transaction, TransactionState::Block(block) if !block.has_local_settings()) => {
            Allowed::Pass(Reason::InTransaction)
        }
        _ => Allowed::Ask,
    }
}

#[cfg(test)]
mod tests {
    use freshet_sql::Client;

    use super::*;

    #[test]
    fn sessions_are_held_back_for_the_first_reason_that_holds() {
        let plain = Context { id: 7, settings: 7, rules: 0, schemas: vec![], client: Client::PLAIN, obstacle: None };
        let temporary = Context {
            obstacle: Some(Reason::TemporaryTables),
            ..Context { id: 8, settings: 8, rules: 0, schemas: vec![], client: Client::PLAIN, obstacle: None }
        };
        let open = View {
            bypass: false,
            transaction: TransactionState::Idle,
            hits_after_write: false,
            behind_impure: false,
            server: Some(Ok(())),
            context: Some(Ok(&plain)),
        };
        assert_eq!(allowed(open), Allowed::Cache { context: 7 });
        assert_eq!(
            allowed(View { bypass: true, transaction: TransactionState::Lost, ..open }),
            Allowed::Pass(Reason::SwitchedOff)
        );
        assert_eq!(allowed(View { bypass: true, context: None, ..open }), Allowed::Ask);
        assert_eq!(
            allowed(View { bypass: true, context: None, behind_impure: true, ..open }),
            Allowed::Pass(Reason::SwitchedOff)
        );
        assert_eq!(allowed(View { transaction: TransactionState::Lost, ..open }), Allowed::Pass(Reason::InTransaction));
        assert_eq!(allowed(View { behind_impure: true, ..open }), Allowed::Pass(Reason::InTransaction));
        assert_eq!(allowed(View { context: Some(Ok(&temporary)), ..open }), Allowed::Pass(Reason::TemporaryTables));
        assert_eq!(allowed(View { context: None, ..open }), Allowed::Ask);
        assert_eq!(allowed(View { server: None, ..open }), Allowed::Ask);
        let other = Reason::OtherServer;
        assert_eq!(allowed(View { server: Some(Err(&other)), ..open }), Allowed::Pass(Reason::OtherServer));
        let unknown = Reason::SettingsUnknown;
        assert_eq!(allowed(View { context: Some(Err(&unknown)), ..open }), Allowed::Pass(unknown.clone()));
    }
}
