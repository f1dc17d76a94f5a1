//! What a statement does to data, to the transaction and to the session, as far as it says.

use freshet_sql::{Bracket, Effect};
use freshet_types::CatalogVersion;

/// The temporary tables that a statement may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Makes {
    NoTables,
    /// Those that it names.
    ByItself,
    /// Any, by code that is not in its text.
    ByStoredCode,
}

/// What a statement does to data and to the transaction, as far as it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) effect: Effect,
    pub(crate) bracket: Option<Bracket>,
    /// It may write.
    pub(crate) writes: bool,
    /// It tells of the database's state, and so may take the snapshot.
    pub(crate) reads: bool,
    /// It surely takes it if it returns a row, by this catalogue.
    pub(crate) takes_snapshot: Option<CatalogVersion>,
    /// Settings are what they were.
    pub(crate) keeps_settings: bool,
    pub(crate) makes: Makes,
}

impl Mark {
    /// Nothing is known of it.
    pub(crate) const UNKNOWN: Self = Self {
        effect: Effect::Forgets,
        bracket: Some(Bracket::Other),
        writes: true,
        reads: true,
        takes_snapshot: None,
        keeps_settings: false,
        makes: Makes::ByStoredCode,
    };

    /// A query or a write of rows, too long to be analysed.
    pub(crate) const LONG: Self = Self { effect: Effect::Write, bracket: None, ..Self::UNKNOWN };

    /// It does nothing and tells nothing of data.
    pub(crate) const NOTHING: Self = Self {
        effect: Effect::Pure,
        bracket: None,
        writes: false,
        reads: false,
        takes_snapshot: None,
        keeps_settings: true,
        makes: Makes::NoTables,
    };

    /// There may be more temporary tables after it.
    pub(crate) fn makes_temporary(self) -> bool {
        self.makes != Makes::NoTables
    }

    /// It may run code that is not in its text.
    pub(crate) fn runs_stored_code(self) -> bool {
        self.makes == Makes::ByStoredCode
    }

    /// It may have committed, whatever state it leaves.
    pub(super) fn may_commit(self) -> bool {
        self.bracket.is_some_and(|bracket| bracket != Bracket::Savepoint) || self.effect >= Effect::Definition
    }
}
