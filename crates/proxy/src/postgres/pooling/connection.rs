//! A server connection that no session has.

use std::sync::Arc;

use freshet_net::Socket;
use freshet_sql::Isolation;
use freshet_types::{CatalogVersion, Nanos, Reason};

use crate::postgres::pooling::labels::{Label, SetThere};
use crate::postgres::pooling::prepared::PreparedThere;
use crate::postgres::pooling::rest_question::Lives;
use crate::postgres::question::IdleMax;
use crate::postgres::session::own_statements::OwnStatements;
use crate::session::context::Context;
use crate::shared::{ServerIdentity, Shared};

/// What is known of the settings in force there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The context, with the catalogue under which it was asked for.
    pub(crate) context: Option<(Arc<Context>, CatalogVersion)>,
    pub(crate) named: Option<Box<[u8]>>,
    /// See [`crate::postgres::question::CONFIGURATION`].
    pub(crate) configuration: Option<String>,
    pub(crate) configured_at: Nanos,
    pub(crate) default_isolation: Option<Isolation>,
    pub(crate) idle_max: IdleMax,
}

/// How many labels a connection has had of which the facts are remembered.
const LABELS_MAX: usize = 16;

/// What is known of the settings in force there under labels that it has had before, as of the same configuration.
#[derive(Debug, Default)]
pub(crate) struct UnderLabels(Vec<(Label, Facts)>);

impl UnderLabels {
    /// It has another label from here on.
    pub(crate) fn note(&mut self, label: Label, facts: Facts) {
        if facts.context.is_none() {
            return;
        }
        if self.0.len() >= LABELS_MAX {
            self.0.remove(0);
        }
        self.0.push((label, facts));
    }

    /// It has this label from here on.
    pub(crate) fn take(&mut self, label: &Label) -> Option<Facts> {
        let mut found = self.0.extract_if(.., |(other, _)| other == label);
        let found_last = found.by_ref().last();
        found_last.map(|(_, facts)| facts)
    }

    /// The server has read its configuration.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Other names of settings of applications are known there.
    pub(crate) fn forget_named(&mut self) {
        self.0.iter_mut().for_each(|(_, facts)| facts.named = None);
    }
}

/// What does not change from the login to the end.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The server's messages about its parameters at the login, and its notices.
    pub(crate) greeting: Box<[u8]>,
    /// The server's key for cancel requests.
    pub(crate) cancel_key: Arc<[u8]>,
    /// What lived there right after the login.
    pub(crate) lives: Lives,
}

/// A server connection that no session has.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    /// It belongs to no thread.
    pub(crate) socket: Socket,
    pub(crate) own: OwnStatements,
    pub(crate) facts: Facts,
    pub(crate) identity: Option<Arc<ServerIdentity>>,
    pub(crate) compared: Option<(u64, Result<(), Reason>)>,
    pub(crate) prepared: PreparedThere,
    pub(crate) set: SetThere,
    pub(crate) under_labels: UnderLabels,
    /// It may have an unnamed statement.
    pub(crate) has_unnamed: bool,
    pub(crate) ready_at: Nanos,
    pub(crate) origin: Arc<Origin>,
}

impl PooledConnection {
    /// These settings are in force there from here on.
    pub(crate) fn note_set(&mut self, set: SetThere) {
        if self.set.names != set.names {
            self.facts.named = None;
            self.under_labels.forget_named();
        }
        if self.set.label != set.label {
            let Facts { configuration, configured_at, .. } = &self.facts;
            let unknown =
                Facts { configuration: configuration.clone(), configured_at: *configured_at, ..Facts::default() };
            let known =
                self.under_labels.take(&set.label).map(|facts| Facts { configured_at: *configured_at, ..facts });
            let before = std::mem::replace(&mut self.facts, known.unwrap_or(unknown));
            self.under_labels.note(self.set.label.clone(), before);
        }
        self.set = set;
    }

    /// See [`Shared::leads_elsewhere`].
    pub(super) fn leads_elsewhere(&self, shared: &Shared) -> bool {
        shared.leads_elsewhere(self.identity.as_deref(), self.compared.as_ref())
    }

    /// Takes it to this thread; None if the server has closed it, or has said anything while it was idle.
    pub(crate) fn wake(mut self: Box<Self>) -> Option<Box<Self>> {
        self.socket.wake().ok()?;
        self.socket.find_quiet().then_some(self)
    }
}
