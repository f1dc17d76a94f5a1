//! What besides the statement decides its answer: database, role, search path and settings of the session.
//!
//! Not all of these are reported by the server, and functions can change them unseen. So Freshet asks: before the
//! first look-up of a session, and again after each statement that is not known to be pure. Sessions that agree
//! in everything share a number, which is part of every key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use freshet_sql::Client;
use freshet_types::Reason;

/// A session's context, shared by all sessions that agree in it.
#[derive(Debug)]
pub(crate) struct Context {
    /// Its number: never used for another context.
    pub(crate) id: u32,
    /// Where unqualified names are looked up, in this order: PostgreSQL's `current_schemas(true)`; the database.
    pub(crate) schemas: Vec<Arc<str>>,
    pub(crate) client: Client,
    /// Why its sessions bypass, if they do.
    pub(crate) obstacle: Option<Reason>,
}

/// What a session says of its context.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) key: ContextKey,
    pub(crate) schemas: Vec<Arc<str>>,
    pub(crate) client: Client,
    pub(crate) obstacle: Option<Reason>,
}

/// All contexts seen.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    known: Mutex<HashMap<Arc<ContextKey>, Arc<Context>>>,
    /// By number.
    all: Mutex<Vec<(Arc<Context>, Arc<ContextKey>)>>,
}

/// What contexts are told apart by: database, users, schemas, their ids, settings, obstacle.
pub(crate) type ContextKey = Vec<Option<String>>;

/// Distinct contexts; sessions beyond it bypass.
const CONTEXTS_MAX: usize = 65_536;

impl Contexts {
    /// The context so described; an error if there are too many.
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

    /// The context of this number, and what makes it.
    pub(crate) fn get(&self, id: u32) -> Option<(Arc<Context>, Arc<ContextKey>)> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(id as usize).cloned()
    }
}
