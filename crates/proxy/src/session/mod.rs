//! What the sessions of both families share.

pub(crate) mod answer_tags;
