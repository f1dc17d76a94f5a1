//! What the sessions of both families share.

pub(crate) mod answer_tags;
pub(crate) mod body;
pub(crate) mod commit_wait;
pub(crate) mod context;
pub(crate) mod fill;
pub(crate) mod last;
pub(crate) mod lookup;
pub(crate) mod moving;
pub(crate) mod time_limit;
pub(crate) mod verify;
pub(crate) mod wait_queue;
