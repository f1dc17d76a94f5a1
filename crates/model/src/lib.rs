//! The nouns of Freshet, shared by every other crate and depending on none of them.
//!
//! Two kinds of position must never be confused (see `docs/PROTOCOL.md`, section 2): [`Visible`] is a *lower*
//! bound on what a later query sees and serves as proof, [`End`] is an *upper* bound on everything visible
//! and serves floors, fences and the lease. They are two types for that reason.

mod catalog;
mod change;
mod position;
mod reason;
mod tag;
mod value;

pub use catalog::{Catalog, CatalogVersion, Column, RelationKind, ReplicaIdentity, Table, TableId};
pub use change::{Cell, Change, ChangeSet, Commit, Relation, Row};
pub use position::{End, Epoch, Lsn, Nanos, Visible, Xid};
pub use reason::Reason;
pub use tag::{PointColumn, RowSet, Tag};
pub use value::{Value, ValueType};
