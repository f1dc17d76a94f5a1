//! Why a session keeps its server connection.

use crate::statement::registry::StateLeft;

/// What of a session lives on its server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pin {
    /// A transaction, or characteristics of the next one.
    Transaction,
    /// It stays where it was prepared, or was prepared under other settings than the session has now.
    PreparedStatement,
    /// Its rows are fetched from the connection.
    Cursor,
    /// Pieces of parameters that were sent ahead of the execution.
    LongData,
    TemporaryTable,
    LockedTables,
    /// An error or warnings, for SHOW WARNINGS.
    Warnings,
    /// A number of changed rows, for ROW_COUNT().
    RowCount,
    /// Settings that cannot be made again on another connection.
    Setting,
    UserVariable,
    NamedLock,
    Handler,
    Xa,
    /// PREPARE
    NamedStatement,
    /// What LASTVAL and PREVIOUS VALUE return.
    Sequence,
    /// What `@@last_gtid` returns.
    LastGtid,
    /// The client knows the number of the connection.
    ConnectionNumber,
    /// Stored code may have left anything.
    StoredCode,
    /// The current database is not known.
    Database,
    /// A statement or a command that may have left anything.
    Unknown,
}

impl Pin {
    /// Its name, as it is shown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::PreparedStatement => "prepared_statement",
            Self::Cursor => "cursor",
            Self::LongData => "long_data",
            Self::TemporaryTable => "temporary_table",
            Self::LockedTables => "locked_tables",
            Self::Warnings => "warnings",
            Self::RowCount => "row_count",
            Self::Setting => "setting",
            Self::UserVariable => "user_variable",
            Self::NamedLock => "named_lock",
            Self::Handler => "handler",
            Self::Xa => "xa",
            Self::NamedStatement => "named_statement",
            Self::Sequence => "sequence",
            Self::LastGtid => "last_gtid",
            Self::ConnectionNumber => "connection_number",
            Self::StoredCode => "stored_code",
            Self::Database => "database",
            Self::Unknown => "unknown",
        }
    }

    /// For what a text may leave until the session is reset; None: nothing, or what is known otherwise.
    fn left(state: StateLeft) -> Option<Self> {
        match state {
            StateLeft::Nothing | StateLeft::Setting | StateLeft::Database | StateLeft::NoNamedLocks => None,
            StateLeft::Variable => Some(Self::UserVariable),
            StateLeft::NamedLock => Some(Self::NamedLock),
            StateLeft::Handler => Some(Self::Handler),
            StateLeft::Xa => Some(Self::Xa),
            StateLeft::NamedStatement => Some(Self::NamedStatement),
            StateLeft::Sequence => Some(Self::Sequence),
            StateLeft::ConnectionNumber => Some(Self::ConnectionNumber),
            StateLeft::Anything => Some(Self::Unknown),
        }
    }
}

/// The pins that hold until the session is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lasting(u32);

impl Lasting {
    pub(crate) fn add(&mut self, pin: Pin) {
        self.0 |= 1 << pin as u32;
    }

    pub(crate) fn remove(&mut self, pin: Pin) {
        self.0 &= !(1 << pin as u32);
    }

    /// A statement was executed that may leave this.
    pub(crate) fn left(&mut self, state: StateLeft) {
        if let Some(pin) = Pin::left(state) {
            self.add(pin);
        }
    }

    /// One of them may be settings that are not in the label.
    pub(super) fn may_have_set(self) -> bool {
        use Pin::{Database, NamedStatement, Setting, StoredCode, Unknown};
        [Setting, NamedStatement, StoredCode, Database, Unknown].into_iter().any(|pin| self.has(pin))
    }

    fn has(self, pin: Pin) -> bool {
        self.0 & 1 << pin as u32 != 0
    }

    /// One of them.
    pub(crate) fn first(self) -> Option<Pin> {
        const ALL: [Pin; 12] = [
            Pin::Setting,
            Pin::UserVariable,
            Pin::NamedLock,
            Pin::Handler,
            Pin::Xa,
            Pin::NamedStatement,
            Pin::Sequence,
            Pin::LastGtid,
            Pin::ConnectionNumber,
            Pin::StoredCode,
            Pin::Database,
            Pin::Unknown,
        ];
        ALL.into_iter().find(|pin| self.has(*pin))
    }
}
