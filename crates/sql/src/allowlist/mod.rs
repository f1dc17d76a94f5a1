//! Which functions, operators and types a cached statement may use.
//!
//! The lists name functions, operators and types whose results depend on their arguments alone, or on settings that are part of the cache key. The visitor
//! goes over the whole syntax tree and finds everything that the lists have to decide. In go names and trees; out comes whether a query may be cached,
//! or the reason why not.

pub(crate) mod functions;
pub(crate) mod implicit_lookups;
pub(crate) mod mysql_functions;
pub(crate) mod names;
pub(crate) mod operators;
pub(crate) mod type_effects;
pub(crate) mod types;
pub(crate) mod visitor;

/// What is known of a built-in function by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionClass {
    /// A result that uses it can be cached.
    Cacheable {
        /// It takes or makes dates or times.
        date_time: bool,
    },
    /// It writes nothing, but a result that uses it cannot be cached.
    Pure,
    /// See [`crate::Effect::Signal`].
    Signal {
        /// It tells of what others do.
        tells: bool,
    },
    /// It changes a setting.
    Settings,
    /// Not known: it may do anything.
    Unknown,
}
