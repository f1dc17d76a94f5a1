//! Results that join tables: a change touches those that depend on its row, and no others.
//!
//! What such a result depends on is known by keys that Freshet reads itself, behind the client's back. So whatever those
//! tables hold and however they change, the answers are the database's; and where the keys can be read, what concerns
//! other rows leaves a result where it is.

mod changes;
mod limits;
mod members;
pub(crate) mod movies;
mod precision;
mod races;
mod relay;
pub(crate) mod stage;
