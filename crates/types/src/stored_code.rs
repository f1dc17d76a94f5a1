//! The temporary tables that stored code of MySQL and MariaDB may create. The servers list them to nobody.

use std::collections::{BTreeSet, HashMap};

/// The number of names in one list beyond which any name is assumed.
const NAMES_MAX: usize = 64;

/// The temporary tables that a piece of code may create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Temporaries {
    /// None.
    #[default]
    None,
    /// Tables of these names, spelled as in the code, in any database.
    Named(BTreeSet<Box<str>>),
    /// Any.
    Any,
}

impl Temporaries {
    /// A pseudo name: the code may change settings of the next transaction (`SET TRANSACTION`). No table has this
    /// name.
    pub const NEXT_TRANSACTION: &str = "\0transaction";
    /// A pseudo name: the code may leave something else in its session, such as a user variable, a setting or a lock.
    pub const STATE: &str = "\0state";

    /// Adds a name.
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

    /// Whether the code may leave something else than temporary tables in its session.
    pub fn may_leave_state(&self) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.contains(Self::STATE),
            Self::Any => true,
        }
    }

    /// Adds the tables of other code.
    pub fn add(&mut self, other: &Self) {
        match other {
            Self::None => {}
            Self::Named(names) => names.iter().for_each(|name| self.name(name)),
            Self::Any => *self = Self::Any,
        }
    }
}

/// The temporary tables that the routines, triggers and views of a server may create, with all code that they call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCode {
    /// By the lower-case name whose mention may run the code: a routine, a table with triggers, a view. Other names
    /// create none.
    pub by_name: HashMap<Box<str>, Temporaries>,
    /// The tables of all code whose name needs quotes or has letters outside ASCII.
    pub odd: Temporaries,
    /// All routines and triggers are known.
    pub is_complete: bool,
    /// So are loadable functions.
    pub has_all_functions: bool,
    /// But for those of relations that were locked when the rest was read: their code is still to be read.
    pub has_unread: bool,
}

impl StoredCode {
    /// Whether the code that was read creates the same tables.
    pub fn makes_as(&self, other: &Self) -> bool {
        let made = |of: &Self| (of.is_complete, of.has_all_functions);
        made(self) == made(other) && self.odd == other.odd && self.by_name == other.by_name
    }
}
