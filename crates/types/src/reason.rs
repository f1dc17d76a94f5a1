//! Why a statement was not answered from the cache: one enumeration for plans, metrics, SHOW and EXPLAIN.

use std::fmt;
use std::sync::Arc;

/// Why a statement went to the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    // --- the statement -------------------------------------------------------------------------------------
    /// It is not a SELECT (or an equivalent that only reads).
    NotSelect,
    /// The parser does not understand it.
    NotParsed,
    /// Several statements in one message.
    SeveralStatements,
    /// Longer than the analysis limit.
    TooLong,
    /// It locks rows (`FOR UPDATE` and its kin).
    LocksRows,
    /// It calls a function that is not on the allow-list.
    Function(Arc<str>),
    /// It uses an operator that is not on the allow-list.
    Operator(Arc<str>),
    /// The name may mean a user-defined function, operator, cast or operator class.
    UserDefined(Arc<str>),
    /// A literal or parameter such as `now` may be folded to a clock reading.
    ClockLiteral,
    /// It uses a construct that is never cached, named here.
    Construct(&'static str),
    // --- the tables ----------------------------------------------------------------------------------------
    /// The relation is unknown, or its name cannot be resolved.
    UnknownTable(Arc<str>),
    /// A system table, view, materialised view, foreign, partitioned, inherited, unlogged or temporary table.
    TableKind(Arc<str>),
    /// Row-level security is enabled on the table.
    RowSecurity(Arc<str>),
    /// A column of the table has a user-defined type.
    UserType(Arc<str>),
    /// The table has no replica identity, so it cannot be published.
    NoReplicaIdentity(Arc<str>),
    /// The table has no replica identity, or one with generated columns that no publication sends.
    GeneratedIdentity(Arc<str>),
    /// The table is being added to the publication.
    NotPublished,
    /// Changes of the table cost more than its cached results saved, so it is out of the publication for a while.
    InCoolOff,
    /// The catalogue changed since the statement was analysed, or is not loaded.
    CatalogStale,
    // --- the session ---------------------------------------------------------------------------------------
    /// A transaction block is open.
    InTransaction,
    /// The transaction has written, or may have: its later reads see changes that no other session sees.
    WroteInTransaction,
    /// The result may be newer than the snapshot of the REPEATABLE READ transaction, or this read takes the snapshot.
    Snapshot,
    /// The session is SERIALIZABLE.
    Serializable,
    /// The session has temporary tables, which may hide tables that the statement names.
    TemporaryTables,
    /// Code that the session ran may have created temporary tables of any name.
    MayHaveTemporary,
    /// The session's settings cannot be known.
    SettingsUnknown,
    /// Under this setting, statements are not analysed or results not repeated.
    Setting(&'static str),
    /// The session uses another database than the change stream.
    OtherDatabase,
    /// The session's connection leads to another server than the change stream.
    OtherServer,
    /// The message sequence is never answered from the cache (cursors, partial fetches, Flush …).
    MessageShape,
    /// The prepared statement is not known to the proxy.
    UnknownStatement,
    /// The session has read newer state than the stream has delivered.
    Watermark,
    /// A write was acknowledged before the stream delivered it.
    Fence,
    // --- the moment ----------------------------------------------------------------------------------------
    /// No change stream: the upstream cannot provide one or it is being set up.
    NoStream,
    /// The session's database has no change stream: as many as the entry `*` may have are open.
    TooManyDatabases,
    /// The session's database has no change stream: the entry `*` does not open it, or could not.
    DatabaseNotOpened,
    /// The lease has run out: the stream lags or is broken.
    LeaseExpired,
    /// The entry exists; the stream has not passed its `read_end` yet.
    NotYetApplied,
    /// The statement's results are invalidated or evicted before hits pay for caching them.
    NotAdmitted,
    /// A rule of the operator excludes the statement from caching.
    Rule,
    /// A rule of the operator refuses the statement.
    Refused,
    /// Another session is filling the same key.
    FillInFlight,
    /// An answer from the cache differed from the database's (`--verify`): the statement is not cached any more.
    Disabled,
    /// An operator has switched the cache off.
    SwitchedOff,
    /// Too many fills are in flight, or the results being read take too much memory.
    TooBusy,
    /// A delivered commit that may matter is not proven visible, and no proof is available here.
    Unproven,
    /// The result exceeds the limit for one entry.
    TooLarge,
}

impl Reason {
    /// The name as a metric label: fixed, without details.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotSelect => "not_select",
            Self::NotParsed => "not_parsed",
            Self::SeveralStatements => "several_statements",
            Self::TooLong => "too_long",
            Self::LocksRows => "locks_rows",
            Self::Function(_) => "function",
            Self::Operator(_) => "operator",
            Self::UserDefined(_) => "user_defined",
            Self::ClockLiteral => "clock_literal",
            Self::Construct(_) => "construct",
            Self::UnknownTable(_) => "unknown_table",
            Self::TableKind(_) => "table_kind",
            Self::RowSecurity(_) => "row_security",
            Self::UserType(_) => "user_type",
            Self::NoReplicaIdentity(_) => "no_replica_identity",
            Self::GeneratedIdentity(_) => "generated_identity",
            Self::NotPublished => "not_published",
            Self::InCoolOff => "in_cool_off",
            Self::CatalogStale => "catalog_stale",
            Self::InTransaction => "in_transaction",
            Self::WroteInTransaction => "wrote_in_transaction",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
            Self::TemporaryTables | Self::MayHaveTemporary => "temporary_tables",
            Self::SettingsUnknown => "settings_unknown",
            Self::Setting(_) => "setting",
            Self::OtherDatabase => "other_database",
            Self::OtherServer => "other_server",
            Self::MessageShape => "message_shape",
            Self::UnknownStatement => "unknown_statement",
            Self::Watermark => "watermark",
            Self::Fence => "fence",
            Self::NoStream => "no_stream",
            Self::TooManyDatabases => "too_many_databases",
            Self::DatabaseNotOpened => "database_not_opened",
            Self::LeaseExpired => "lease_expired",
            Self::NotYetApplied => "not_yet_applied",
            Self::NotAdmitted => "not_admitted",
            Self::Rule => "rule",
            Self::Refused => "refused",
            Self::FillInFlight => "fill_in_flight",
            Self::Disabled => "disabled",
            Self::SwitchedOff => "switched_off",
            Self::TooBusy => "too_busy",
            Self::Unproven => "unproven",
            Self::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelect => f.write_str("not a SELECT"),
            Self::NotParsed => f.write_str("the parser does not understand the statement"),
            Self::SeveralStatements => f.write_str("several statements in one message"),
            Self::TooLong => f.write_str("the statement is too long to analyse"),
            Self::LocksRows => f.write_str("the statement locks rows"),
            Self::Function(name) => write!(f, "function {name} is not known to depend on its arguments alone"),
            Self::Operator(name) => write!(f, "operator {name} is not on the allow-list"),
            Self::UserDefined(name) => write!(f, "{name} may be user-defined"),
            Self::ClockLiteral => f.write_str(
                "a literal such as 'now' or 'today', or a text of the data that is cast to a date or time, may become a clock reading \
                 (write the date as a constant; read texts by to_date() or to_timestamp() with a format)",
            ),
            Self::Construct(what) => write!(f, "{what} is never cached"),
            Self::UnknownTable(name) => write!(f, "relation {name} is not known"),
            Self::TableKind(name) => write!(f, "{name} is not an ordinary table"),
            Self::RowSecurity(name) => write!(f, "row-level security is enabled on {name}"),
            Self::UserType(name) => write!(f, "a column of {name} has a user-defined type"),
            Self::NoReplicaIdentity(name) => {
                write!(
                    f,
                    "{name} has no replica identity; add a primary key, or ALTER TABLE {name} REPLICA IDENTITY FULL"
                )
            }
            Self::GeneratedIdentity(name) => {
                write!(
                    f,
                    "{name} has no replica identity that can be published with its generated columns; add a primary key of other \
                     columns, and ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
                )
            }
            Self::NotPublished => f.write_str("a table is being added to the publication"),
            Self::InCoolOff => f.write_str(IN_COOL_OFF),
            Self::CatalogStale => f.write_str("the catalogue is being read again"),
            Self::InTransaction => f.write_str("a transaction block is open whose isolation or settings are not known"),
            Self::WroteInTransaction => f.write_str("the transaction may have written"),
            Self::Snapshot => f.write_str("the result may not be that of the transaction's snapshot"),
            Self::Serializable => f.write_str("the session is SERIALIZABLE"),
            Self::TemporaryTables => f.write_str("the session has temporary tables that may hide others"),
            Self::MayHaveTemporary => f.write_str(
                "the session has run code that may have made temporary tables of any name (EXECUTE, or stored code with \
                 PREPARE, or that Freshet's account is not shown)",
            ),
            Self::SettingsUnknown => f.write_str("the session's settings are not known"),
            Self::Setting(setting) => write!(f, "statements are not cached under {setting}"),
            Self::OtherDatabase => f.write_str("the session uses another database than the change stream"),
            Self::OtherServer => f.write_str("the session's server is not the one that sends the change stream"),
            Self::MessageShape => f.write_str(MESSAGE_SHAPE),
            Self::UnknownStatement => f.write_str("the prepared statement is not known"),
            Self::Watermark => f.write_str("the session has read newer state than the stream has delivered"),
            Self::Fence => f.write_str("a write was acknowledged before the stream delivered it"),
            Self::NoStream => f.write_str("there is no change stream"),
            Self::TooManyDatabases => f.write_str("max_databases of the entry \"*\" are open, and this is another database"),
            Self::DatabaseNotOpened => f.write_str("the entry \"*\" never opens this database (template1), or could not: see the log"),
            Self::LeaseExpired => f.write_str("the lease has expired: the change stream lags or is broken"),
            Self::NotYetApplied => f.write_str("the stream has not yet passed the position the result was read at"),
            Self::NotAdmitted => {
                f.write_str("its results are invalidated or evicted before they are asked for often enough (see --admission)")
            }
            Self::Rule => f.write_str("a rule of the configuration says that it is never cached (SHOW RULES)"),
            Self::Refused => f.write_str("a rule of the configuration refuses it (SHOW RULES)"),
            Self::FillInFlight => f.write_str("another session is reading the same result"),
            Self::Disabled => f.write_str("an answer from the cache differed from the database's"),
            Self::SwitchedOff => f.write_str("an operator has switched the cache off (FRESHET BYPASS OFF ends it)"),
            Self::TooBusy => f.write_str("too many results are being read"),
            Self::Unproven => f.write_str("a commit that may matter is not yet proven to be visible"),
            Self::TooLarge => f.write_str("the result is larger than one cache entry may be (a share of --memory)"),
        }
    }
}

const IN_COOL_OFF: &str =
    "a table is in cool-off: its changes cost more than hits saved, so it is not published for a while";
const MESSAGE_SHAPE: &str = "the protocol messages ask for more than a whole result (a cursor, rows in parts …)";
