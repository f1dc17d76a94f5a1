//! The temporary tables that stored code of MySQL and MariaDB may make, which the servers list to nobody.

use std::collections::{BTreeSet, HashMap};

/// Names in one list; with more they may be any.
const NAMES_MAX: usize = 64;

/// The temporary tables that a piece of code may make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Temporaries {
    /// None.
    #[default]
    None,
    /// Those of these names, as they are spelled there, in whatever database.
    Named(BTreeSet<Box<str>>),
    /// Any.
    Any,
}

impl Temporaries {
    /// Among the names: the code may set what holds for the next transaction only (`SET TRANSACTION`). No table has this name.
    pub const NEXT_TRANSACTION: &str = "\0transaction";

    /// One more name.
    pub fn name(&mut self, name: &str) {
        match self {
            Self::None => *self = Self::Named(BTreeSet::from([name.into()])),
            Self::Named(names) if names.len() < NAMES_MAX => {
                names.insert(name.into());
            }
            Self::Named(_) => *self = Self::Any,
            Self::Any => {}
        }
    }

    /// Those of other code, too.
    pub fn add(&mut self, other: &Self) {
        match other {
            Self::None => {}
            Self::Named(names) => names.iter().for_each(|name| self.name(name)),
            Self::Any => *self = Self::Any,
        }
    }
}

/// What the routines, triggers and views of a server may make, with all that they call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCode {
    /// By a name in lower case whose mention may run it: of a routine, of a table with triggers, of a view. What is not here makes
    /// none.
    pub by_name: HashMap<Box<str>, Temporaries>,
    /// Of all whose names need quotes, or have other letters than those of ASCII.
    pub odd: Temporaries,
    /// All routines and triggers are known.
    pub is_complete: bool,
}
