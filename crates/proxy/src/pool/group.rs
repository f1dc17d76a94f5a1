//! Which connections of a pool are alike.

use std::sync::Arc;

/// What connections of one group have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    /// The start-up parameters.
    login: Arc<[u8]>,
    /// PostgreSQL: the names of settings of applications that its sessions have given to the connection, in order.
    names: Arc<[Arc<str>]>,
    /// PostgreSQL: the settings in force there that its sessions have set. Another session's can be set in their place.
    label: Arc<[Arc<str>]>,
}

impl Group {
    /// `login`: the start-up parameters.
    pub(crate) fn of(login: &[u8]) -> Self {
        Self { login: login.into(), names: Arc::default(), label: Arc::default() }
    }

    /// The same with these names and settings.
    pub(crate) fn with(&self, names: &Arc<[Arc<str>]>, label: &Arc<[Arc<str>]>) -> Self {
        Self { login: self.login.clone(), names: names.clone(), label: label.clone() }
    }

    /// Whether a connection of this group can become one of the other: it has no name that the other has not.
    pub(super) fn suits(&self, other: &Self) -> bool {
        self.login == other.login && self.names.iter().all(|name| other.names.contains(name))
    }
}
