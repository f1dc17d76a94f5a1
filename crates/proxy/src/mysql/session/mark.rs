//! The possible effects of a statement on data, on the transaction and on the session, by its text.

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

/// The possible effects of a statement on data and on the transaction, by its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) effect: Effect,
    pub(crate) bracket: Option<Bracket>,
    /// It may write.
    pub(crate) writes: bool,
    /// It shows data, and so may take the snapshot.
    pub(crate) reads: bool,
    /// It certainly takes the snapshot if it returns a row, by this catalogue.
    pub(crate) takes_snapshot: Option<CatalogVersion>,
    /// It keeps the settings.
    pub(crate) keeps_settings: bool,
    pub(crate) makes: Makes,
}

impl Mark {
    /// An unknown statement.
    pub(crate) const UNKNOWN: Self = Self {
        effect: Effect::Forgets,
        bracket: Some(Bracket::Other),
        writes: true,
        reads: true,
        takes_snapshot: None,
        keeps_settings: false,
        makes: Makes::ByStoredCode,
    };

    /// A query or a write of rows that is too long to be analysed.
    pub(crate) const LONG: Self = Self { effect: Effect::Write, bracket: None, ..Self::UNKNOWN };

    /// It has no effect and shows no data.
    pub(crate) const NOTHING: Self = Self {
        effect: Effect::Pure,
        bracket: None,
        writes: false,
        reads: false,
        takes_snapshot: None,
        keeps_settings: true,
        makes: Makes::NoTables,
    };

    /// Whether it may make temporary tables.
    pub(crate) fn makes_temporary(self) -> bool {
        self.makes != Makes::NoTables
    }

    /// Whether it may run code that is not in its text.
    pub(crate) fn runs_stored_code(self) -> bool {
        self.makes == Makes::ByStoredCode
    }

    /// Whether it may have committed, whatever state it leaves.
    pub(super) fn may_commit(self) -> bool {
        self.bracket.is_some_and(|bracket| bracket != Bracket::Savepoint) || self.effect >= Effect::Definition
    }
}
