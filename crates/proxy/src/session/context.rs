//! The context of a session: everything that decides an answer besides the statement, that is database, role, search path and settings.
//!
//! The server does not report all of these, and functions can change them without notice. So Freshet queries them: before the first look-up of a
//! session, and again after each statement that is not known to be pure. Sessions with the same context share a number, which is part of every key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use freshet_sql::Client;
use freshet_types::Reason;

/// A session's context, shared by all sessions with the same one.
#[derive(Debug)]
pub(crate) struct Context {
    /// Its number, which is never reused.
    pub(crate) id: u32,
    /// The schemas in which unqualified names are looked up, in order: PostgreSQL's `current_schemas(true)`; the database.
    pub(crate) schemas: Vec<Arc<str>>,
    pub(crate) client: Client,
    /// Why sessions with it bypass, if they do.
    pub(crate) obstacle: Option<Reason>,
}

/// A context as read from a session.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) key: ContextKey,
    pub(crate) schemas: Vec<Arc<str>>,
    pub(crate) client: Client,
    pub(crate) obstacle: Option<Reason>,
}

/// All contexts seen until now.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    known: Mutex<HashMap<Arc<ContextKey>, Arc<Context>>>,
    /// By number.
    all: Mutex<Vec<(Arc<Context>, Arc<ContextKey>)>>,
}

/// What distinguishes contexts: database, users, schemas, their ids, settings, obstacle.
pub(crate) type ContextKey = Vec<Option<String>>;

/// Limit of different contexts; sessions with further ones bypass.
const CONTEXTS_MAX: usize = 65_536;

impl Contexts {
    /// The context with this description; an error if there are too many.
    pub(crate) fn intern(&self, answer: Described) -> Result<Arc<Context>, Reason> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = known.get(&answer.key) {
            return Ok(context.clone());
        }
        let id = u32::try_from(known.len()).ok().filter(|_| known.len() < CONTEXTS_MAX);
        let id = id.ok_or(Reason::SettingsUnknown)?;
        let context =
            Arc::new(Context { id, schemas: answer.schemas, client: answer.client, obstacle: answer.obstacle });
        let key = Arc::new(answer.key);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push((context.clone(), key.clone()));
        known.insert(key, context.clone());
        Ok(context)
    }

    /// The context with this number, and its description.
    pub(crate) fn get(&self, id: u32) -> Option<(Arc<Context>, Arc<ContextKey>)> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(id as usize).cloned()
    }
}
