//! What a session knows of its context, and what its state allows.

use std::sync::Arc;

use freshet_types::{CatalogVersion, Reason};

use crate::session::context::Context;

/// What a session knows of its own context.
#[derive(Debug)]
pub(crate) enum Known {
    /// It must be asked for.
    Nothing,
    /// This context, with this catalogue: with a later one the user may have other rights.
    Context(Arc<Context>, CatalogVersion),
    /// It cannot be known in this era.
    Unknowable(Reason),
}

/// What the session's state allows.
#[derive(Debug)]
pub(crate) enum Allowed {
    /// The cache, with this context.
    Cache(u32),
    /// It is decided once the session has its context.
    Ask,
    /// Nothing.
    Pass(Reason),
}
