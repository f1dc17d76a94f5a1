//! The reasons for not caching that a rule with `ttl` overrules.
//!
//! A `ttl` is an explicit choice to serve for a while what changes do not invalidate. It overrules only that: a statement that may write, whose
//! result belongs to one session or transaction, or of which something is not understood, is not cached by a rule either.

use crate::Reason;

impl Reason {
    /// Whether a rule with `ttl` may cache the result all the same.
    #[expect(clippy::match_same_arms, reason = "an arm for each ground")]
    pub fn yields_to_ttl(&self) -> bool {
        match self {
            // Something that only reads, and that no change stream tells of. `sql` has the list of functions.
            Self::Function(_)
            | Self::ClockLiteral
            | Self::TableKind(_)
            | Self::NoReplicaIdentity(_)
            | Self::GeneratedIdentity(_) => true,
            // It may write, lock, or do anything.
            Self::NotSelect
            | Self::NotParsed
            | Self::SeveralStatements
            | Self::TooLong
            | Self::LocksRows
            | Self::Operator(_)
            | Self::UserDefined(_)
            | Self::Construct(_)
            | Self::UnknownTable(_)
            | Self::UserType(_) => false,
            // A policy may read what is in no key, such as a setting with the tenant's number: the result may be of another tenant.
            Self::RowSecurity(_) => false,
            // A moment later the result can be followed.
            Self::NotPublished
            | Self::InCoolOff
            | Self::CatalogStale
            | Self::NotAdmitted
            | Self::FillInFlight
            | Self::TooBusy
            | Self::Unproven => false,
            // The session sees what others do not, or its state is not known.
            Self::InTransaction
            | Self::WroteInTransaction
            | Self::Snapshot
            | Self::Serializable
            | Self::TemporaryTables
            | Self::MayHaveTemporary
            | Self::SettingsUnknown
            | Self::Setting(_)
            | Self::OtherDatabase
            | Self::OtherServer
            | Self::MessageShape
            | Self::UnknownStatement
            | Self::Watermark
            | Self::Fence => false,
            // Nothing is served at all.
            Self::NoStream
            | Self::LeaseExpired
            | Self::NotYetApplied
            | Self::SwitchedOff
            | Self::TooManyDatabases
            | Self::DatabaseNotOpened => false,
            // It was decided otherwise.
            Self::Rule | Self::Refused | Self::Disabled | Self::TooLarge => false,
        }
    }
}
