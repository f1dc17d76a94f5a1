//! What a statement may do to the database or the session.

/// What a statement may do to the database or the session, roughly from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It only reads: each function in it is a built-in one without side effects.
    Pure,
    /// It changes no row, definition or setting, but other sessions may notice it, and its transaction may have a commit record: NOTIFY, LISTEN,
    /// `txid_current()`, sequences, advisory locks.
    Signal,
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT` …
    TransactionControl,
    /// It may write or fire triggers: INSERT, UPDATE, DELETE, MERGE, COPY, a locking SELECT, unknown functions (which
    /// may also change settings or create temporary tables).
    Write,
    /// `SET`, `RESET`, `set_config`.
    Settings,
    /// It may change the catalogue and do all that [`Self::Write`] and [`Self::Settings`] may, but it ends no prepared statement by itself: DDL,
    /// ANALYZE, DO, CALL …
    Definition,
    /// Everything else, and everything not understood: it may also end prepared statements.
    Forgets,
}

/// What a statement of PostgreSQL may change in the catalogue by its own text, without the functions and triggers that it may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defines {
    /// Nothing that results depend on.
    #[default]
    Nothing,
    /// Definitions that event triggers see.
    Told,
    /// Definitions that no event trigger sees: roles, memberships, settings of roles and databases, event triggers, owners, the first half of DETACH
    /// CONCURRENTLY.
    Untold,
    /// The same, and the server requires that nobody is connected to the database: it is dropped, renamed, moved or copied.
    Unused,
}

impl Defines {
    /// `words` are those of one statement; a token that is not a word is empty.
    pub(crate) fn of(words: &[&str], effect: Effect) -> Self {
        let any = |word: &str| words.contains(&word);
        match words {
            ["drop", "database", ..] => Self::Unused,
            ["alter", "database", ..] if any("rename") || any("tablespace") => Self::Unused,
            ["create", "database", ..] if any("template") => Self::Unused,
            ["create" | "alter" | "drop", "role" | "user" | "group" | "database" | "system" | "event", ..]
            | ["reassign", ..] => Self::Untold,
            ["grant" | "revoke", ..] if !any("on") => Self::Untold,
            ["alter", ..] if any("detach") && any("concurrently") => Self::Untold,
            // It rolls back as a whole, or changes nothing that results depend on.
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

/// The effect of two statements, one after the other.
pub(crate) fn together(a: Effect, b: Effect) -> Effect {
    match (a, b) {
        (a, b) if a.min(b) <= Effect::Signal => a.max(b),
        (a, b) if a == b => a,
        (Effect::Forgets, _) | (_, Effect::Forgets) => Effect::Forgets,
        (Effect::Write | Effect::Settings, Effect::Write | Effect::Settings) => Effect::Settings,
        _ => Effect::Definition,
    }
}
