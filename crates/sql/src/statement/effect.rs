//! What a statement may do to the database or the session.

/// What a statement may do to the database or the session; roughly in the order of what it takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It only reads: every function in it is a known built-in without side effects.
    Pure,
    /// It changes no row, definition or setting, though others may learn of it, and its transaction may have a commit record: NOTIFY,
    /// LISTEN, `txid_current()`, sequences, advisory locks.
    Signal,
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT` …
    TransactionControl,
    /// It may write or fire triggers: INSERT, UPDATE, DELETE, MERGE, COPY, a locking SELECT, unknown functions (which
    /// may also change settings or create temporary tables).
    Write,
    /// `SET`, `RESET`, `set_config`.
    Settings,
    /// It may change the catalogue and all that [`Self::Write`] and [`Self::Settings`] may, but ends no prepared
    /// statement by itself: DDL, ANALYZE, DO, CALL …
    Definition,
    /// Everything else and everything not understood: also prepared statements may be gone.
    Forgets,
}

/// What a statement of PostgreSQL may change of the catalogue, by its text and not by functions and triggers that it may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defines {
    /// Nothing that results depend on.
    #[default]
    Nothing,
    /// What event triggers see.
    Told,
    /// What none of them sees: roles, memberships, settings of roles and databases, event triggers, owners, the first half of DETACH
    /// CONCURRENTLY.
    Untold,
}

impl Defines {
    /// `words` are those of one statement; what is no word is empty.
    pub(crate) fn of(words: &[&str], effect: Effect) -> Self {
        let any = |word: &str| words.contains(&word);
        match words {
            ["create" | "alter" | "drop", "role" | "user" | "group" | "database" | "system" | "event", ..]
            | ["reassign", ..] => Self::Untold,
            ["grant" | "revoke", ..] if !any("on") => Self::Untold,
            ["alter", ..] if any("detach") && any("concurrently") => Self::Untold,
            // It rolls back as a whole, or changes what no result depends on.
            ["create" | "drop", "statistics", ..]
            | [
                "analyze" | "vacuum" | "reindex" | "cluster" | "checkpoint" | "comment" | "security" | "discard"
                | "deallocate" | "load",
                ..,
            ] => Self::Nothing,
            ["commit", "prepared", ..] => Self::Told,
            ["explain", ..] if any("create") => Self::Told,
            _ if effect >= Effect::Definition => Self::Told,
            _ => Self::Nothing,
        }
    }
}

/// The effect of two statements in a row.
pub(crate) fn together(a: Effect, b: Effect) -> Effect {
    match (a, b) {
        (a, b) if a.min(b) <= Effect::Signal => a.max(b),
        (a, b) if a == b => a,
        (Effect::Forgets, _) | (_, Effect::Forgets) => Effect::Forgets,
        (Effect::Write | Effect::Settings, Effect::Write | Effect::Settings) => Effect::Settings,
        _ => Effect::Definition,
    }
}
