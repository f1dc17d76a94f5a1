//! What the text of a normalized query says, found when it is first needed.

use std::sync::{Arc, OnceLock};

use freshet_sql::{Code, Quoting, Words};

use super::tracking::betrayal;
use super::{Finds, Leaves, NormalizedQuery, StateLeft, Tracking};

/// The facts. All but the words are for MySQL and MariaDB.
#[derive(Debug, Default)]
pub(super) struct FactsAtFirstUse {
    /// See [`crate::mysql::session::track`].
    tracking: OnceLock<Option<Tracking>>,
    code: OnceLock<Arc<Code>>,
    leaves: OnceLock<Leaves>,
    finds: OnceLock<Finds>,
    state_left: OnceLock<StateLeft>,
    /// PostgreSQL's.
    words: OnceLock<Words>,
}

impl NormalizedQuery {
    /// The temporary tables that it may create and the code that it may run, besides the temporary table that its text creates.
    pub(crate) fn code(&self) -> &Arc<Code> {
        self.at_first_use.code.get_or_init(|| {
            let code = Code::of(self.text.as_bytes(), Quoting::STANDARD);
            Arc::new(if self.template.creates_temporary().is_some() { code.without_named() } else { code })
        })
    }

    /// How commit tracking must be set while it runs, if it might reveal that commits are tracked.
    pub(crate) fn tracking(&self) -> Option<Tracking> {
        *self.at_first_use.tracking.get_or_init(|| betrayal(&self.text, self.template.effect()))
    }

    /// Its effect on the number that FOUND_ROWS() returns.
    pub(crate) fn leaves(&self, mariadb: bool) -> Leaves {
        *self.at_first_use.leaves.get_or_init(|| Leaves::behind(self, mariadb))
    }

    /// What its text says of the rows that it finds.
    pub(crate) fn finds(&self) -> Finds {
        *self.at_first_use.finds.get_or_init(|| Finds::of(self))
    }

    /// The state that it may leave in its session, as far as its text says.
    pub(crate) fn state_left(&self) -> StateLeft {
        *self.at_first_use.state_left.get_or_init(|| StateLeft::by(self))
    }

    /// The words in it that may mean a temporary object.
    pub(crate) fn words(&self) -> &Words {
        self.at_first_use.words.get_or_init(|| Words::of(&self.text))
    }
}
