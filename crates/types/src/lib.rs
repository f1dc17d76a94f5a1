//! The shared types of Freshet. All other crates use this crate; it depends on none of them.
//!
//! There are two kinds of position, which must never be confused (see `docs/internals/protocol.md`, section 2).
//! [`Visible`] is a *lower* bound on what a later query sees and serves as a proof. [`End`] is an *upper* bound on
//! everything visible and serves watermarks, fences and the lease. They are therefore two types.

mod catalog;
mod change;
mod composite;
mod draw;
mod formula;
mod overruled;
mod pattern;
mod position;
mod reason;
mod remedy;
mod stored_code;
mod tag;
mod value;

pub use catalog::{
    Cascade, Catalog, CatalogVersion, Column, Dialect, EnumType, RelationKind, ReplicaIdentity, Table, TableId,
    TableNames, TypeEffect,
};
pub use change::{Cell, Change, ChangeSet, Commit, Relation, Row};
pub use composite::Composite;
pub use draw::is_drawn;
pub use formula::{Comparison, Formula, Operation, Part, TextFunction};
pub use pattern::{Pattern, Piece};
pub use position::{CommitId, End, Epoch, GtidSet, Lsn, Nanos, Snapshot, Visible, Xid};
pub use reason::Reason;
pub use stored_code::{StoredCode, Temporaries};
pub use tag::{Columns, ComparedColumn, Image, Images, NamedRows, RowSet, RowTest, Tag, Term, Test};
pub use value::{Value, ValueType, civil};
