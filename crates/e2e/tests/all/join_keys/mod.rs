//! Results over joined tables: a change invalidates those that depend on its row, and no others.
//!
//! The dependencies of such a result are known by keys that Freshet reads itself, in the background. So whatever these tables contain and however
//! they change, the answers are the database's; and if the keys can be read, changes of other rows do not invalidate a result.

mod changes;
mod limits;
mod members;
pub(crate) mod movies;
mod precision;
mod races;
mod relay;
pub(crate) mod stage;
