//! Several texts combined to one piece of code, if there are too many to store each.

use freshet_types::Temporaries;

use super::{Code, WORDS_MAX};

impl Code {
    /// This text combined with another. With too many words they may do anything.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut both = Self { several: true, ..self.clone() };
        both.own.add(&other.own);
        both.words.extend(other.words.iter().cloned());
        both.accented.extend(other.accented.iter().cloned());
        both.has_odd_names |= other.has_odd_names;
        both.leaves_state |= other.leaves_state;
        if both.words.len().max(both.accented.len()) > WORDS_MAX {
            both.own = Temporaries::Any;
        }
        both
    }
}
