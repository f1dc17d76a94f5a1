//! Composite types.

use std::collections::HashMap;

/// A composite type of PostgreSQL whose values run the server's own code alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composite {
    /// The object ids of the types of its fields.
    pub fields: HashMap<Box<str>, u32>,
    /// A field is a date or time, or contains one.
    pub dated: bool,
}
