//! What a session knows of its context, and what it allows.

use std::sync::Arc;

use freshet_types::{CatalogVersion, Reason};

use crate::session::context::Context;

/// What a session knows of its own context.
#[derive(Debug)]
pub(crate) enum Known {
    /// It must be asked for.
    Nothing,
    /// This, under this catalogue: with a later one the user may have other rights.
    Context(Arc<Context>, CatalogVersion),
    /// It cannot be known in this era.
    Unknowable(Reason),
}

/// What the session allows.
#[derive(Debug)]
pub(crate) enum Allowed {
    /// The cache, under this context.
    Cache(u32),
    /// To be decided once the session's context has been asked for.
    Ask,
    /// Nothing.
    Pass(Reason),
}
