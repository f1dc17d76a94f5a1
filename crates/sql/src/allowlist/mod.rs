//! The functions, operators and types that a cached statement may use.
//!
//! The lists contain functions, operators and types whose results depend on their arguments alone, or on settings that are part of the cache key. The
//! visitor goes over the whole syntax tree and collects all that the lists must decide. The input is names and syntax trees; the output is whether a
//! query may be cached, or the reason why not.

pub(crate) mod functions;
pub(crate) mod implicit_lookups;
pub(crate) mod local_settings;
pub(crate) mod mysql_functions;
pub(crate) mod names;
pub(crate) mod operators;
pub(crate) mod silent_settings;
pub(crate) mod type_effects;
pub(crate) mod types;
pub(crate) mod visitor;

/// The class of a built-in function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionClass {
    /// A result that uses it can be cached.
    Cacheable {
        /// It takes or returns dates or times.
        date_time: bool,
    },
    /// It writes nothing, but a result that uses it cannot be cached.
    Pure,
    /// See [`crate::Effect::Signal`].
    Signal {
        /// It reveals what other sessions do.
        reveals_commits: bool,
    },
    /// It changes a setting.
    Settings,
    /// Unknown: it may do anything.
    Unknown,
}
