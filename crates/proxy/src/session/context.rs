//! The context of a session: everything that decides an answer besides the statement, that is database, role, search path and settings.
//!
//! The server does not report all of these, and functions can change them without notice. So Freshet queries them: before the first look-up of a
//! session, and again after each statement that is not known to be pure. Sessions with the same context share a number, which is part of every key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::rules::{RulesInForce, Who};

use freshet_sql::Client;
use freshet_types::Reason;

/// A session's context, shared by all sessions with the same one.
#[derive(Debug)]
pub(crate) struct Context {
    /// Its number, which is never reused.
    pub(crate) id: u32,
    /// The number of all that it has but for the rules: contexts that differ in these alone have the same.
    pub(crate) settings: u32,
    /// The generation of the rules that it was made for: [`RulesInForce::of_contexts`].
    pub(crate) rules: u64,
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
    under_rules: Mutex<UnderRules>,
}

/// The contexts of the sessions for which rules match, of one generation of the rules.
#[derive(Debug, Default)]
struct UnderRules {
    generation: u64,
    /// By the number of the settings and the class of the session.
    known: HashMap<(u32, String), Arc<Context>>,
    by_id: HashMap<u32, Arc<Context>>,
    /// How many there have been.
    count: u32,
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
        let context = Context {
            id,
            settings: id,
            rules: 0,
            schemas: answer.schemas,
            client: answer.client,
            obstacle: answer.obstacle,
        };
        let context = Arc::new(context);
        let key = Arc::new(answer.key);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push((context.clone(), key.clone()));
        known.insert(key, context.clone());
        Ok(context)
    }

    /// The context with the settings of this one, for a session to which these rules apply.
    pub(crate) fn under_rules(
        &self,
        context: &Arc<Context>,
        rules: &RulesInForce,
        who: &Who<'_>,
    ) -> Result<Arc<Context>, Reason> {
        let mut under = self.under_rules.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, class) = rules.class(who);
        if under.generation != generation {
            (under.generation, under.known, under.by_id) = (generation, HashMap::new(), HashMap::new());
        }
        if let Some(known) = under.known.get(&(context.settings, class.clone())) {
            return Ok(known.clone());
        }
        let too_many = under.known.len() >= CONTEXTS_MAX;
        let id = u32::try_from(CONTEXTS_MAX).unwrap_or(u32::MAX).checked_add(under.count).filter(|_| !too_many);
        let id = id.ok_or(Reason::SettingsUnknown)?;
        let (schemas, obstacle) = (context.schemas.clone(), context.obstacle.clone());
        let made =
            Context { id, settings: context.settings, rules: generation, schemas, client: context.client, obstacle };
        let made = Arc::new(made);
        under.count += 1;
        under.by_id.insert(id, made.clone());
        under.known.insert((context.settings, class), made.clone());
        Ok(made)
    }

    /// Whether a session had a context with a user, its own or that of SET ROLE, for whom this is true.
    pub(crate) fn have_user(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // The database is first.
        known.keys().any(|key| key.iter().skip(1).take(2).flatten().any(|user| is_it(user)))
    }

    /// The context with this number, and its description.
    pub(crate) fn get(&self, id: u32) -> Option<(Arc<Context>, Arc<ContextKey>)> {
        let all = |id: u32| self.all.lock().unwrap_or_else(PoisonError::into_inner).get(id as usize).cloned();
        if let Some(known) = all(id) {
            return Some(known);
        }
        let made = self.under_rules.lock().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()?;
        let (_, key) = all(made.settings)?;
        Some((made, key))
    }
}
