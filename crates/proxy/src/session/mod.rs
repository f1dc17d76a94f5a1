//! What the sessions of both families share: how an execution is looked up, and how a fill is begun.

pub(crate) mod answer_tags;
pub(crate) mod fill;
pub(crate) mod lookup;
