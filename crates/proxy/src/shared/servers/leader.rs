//! What Patroni's members say of the leader's key, and which primaries that takes out of the choice.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::futures::Notified;

use crate::shared::servers::{Found, Inside, LeftOut, Role, Servers, Watched};

/// Who holds the leader's key of Patroni.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// The server at this place in the connection string.
    At(usize),
    /// Nobody: it has run out.
    Nobody,
    /// Members contradict each other, as when the key changes hands: those name these, and no others.
    OneOf(Vec<usize>),
}

#[derive(Debug, Default)]
pub(super) struct Key {
    /// None: Patroni is not asked, or does not say.
    leader: Option<Leader>,
    /// When the question was sent that this answers.
    asked: Option<Instant>,
    /// When the last question was sent.
    asking: Option<Instant>,
    /// The last leader that was a primary.
    last: Option<Arc<Found>>,
    /// Nobody else has had the key since.
    is_last: bool,
}

/// What the key says of a primary.
pub(super) enum ByKey {
    Right,
    Wrong(LeftOut),
    /// The other rules decide.
    Nothing,
}

impl Servers {
    /// What Patroni's members say now, in answer to a question that was sent at `asked`. Returns whether that is new.
    pub(crate) fn note_leader(&self, leader: Option<Leader>, asked: Instant) -> bool {
        let inside = &mut *self.inside();
        inside.key.asked = Some(asked);
        let is_new = inside.key.leader != leader;
        inside.key.leader = leader;
        let is_last = |at: &usize| {
            let named = inside.list.get(*at).and_then(|server| server.found.as_ref());
            named.is_some_and(|named| inside.was_leader(named))
        };
        inside.key.is_last = match &inside.key.leader {
            Some(Leader::At(at)) => is_last(at),
            Some(Leader::OneOf(named)) => inside.key.is_last && named.iter().all(is_last),
            Some(Leader::Nobody) | None => inside.key.is_last,
        };
        is_new
    }

    /// Patroni's members are asked now.
    pub fn note_asking(&self, asked: Instant) {
        self.inside().key.asking = Some(asked);
    }

    /// Returns when Patroni's members must be asked at once.
    pub fn wants_leader(&self) -> Notified<'_> {
        self.leader_wanted.notified()
    }
}

impl Inside {
    /// The leader's last answer.
    pub(super) fn leader_found(&self) -> Option<&Arc<Found>> {
        let Some(Leader::At(at)) = self.key.leader else { return None };
        self.list.get(at)?.found.as_ref()
    }

    /// Keeps the leader in mind, if it is a primary of this system.
    pub(super) fn keep_leader(&mut self, system_id: &str) {
        let leader = self.leader_found().filter(|leader| leader.role == Role::Primary && leader.system_id == system_id);
        if let Some(leader) = leader.cloned() {
            (self.key.last, self.key.is_last) = (Some(leader), true);
        }
    }

    /// Whether the server was promoted since Patroni's members were asked: their next answer may name it.
    fn is_ahead(&self, server: &Watched, found: &Found) -> bool {
        let is_newer = |last: &Arc<Found>| found.role == Role::Primary && found.timeline > last.timeline;
        self.key.last.as_ref().is_some_and(is_newer) && server.promoted > self.key.asked
    }

    /// Whether Patroni's members must be asked at once.
    pub(super) fn lacks_word(&self) -> bool {
        let is_new = |server: &Watched| server.promoted > self.key.asking;
        let is_ahead = |server: &Watched| server.found.as_ref().is_some_and(|found| self.is_ahead(server, found));
        self.key.leader.is_some() && self.list.iter().any(|server| is_new(server) && is_ahead(server))
    }

    fn was_leader(&self, found: &Found) -> bool {
        self.key.last.as_ref().is_some_and(|last| last.is_run_of(found))
    }

    /// Whether the server is a primary that the key rules out.
    pub(super) fn wrong_by_key(&self, at: usize) -> Option<LeftOut> {
        let server = self.list.get(at)?;
        let found = server.found.as_ref().filter(|found| found.role == Role::Primary)?;
        match self.by_key(at, server, found) {
            ByKey::Wrong(why) => Some(why),
            ByKey::Right | ByKey::Nothing => None,
        }
    }

    /// Of a primary of the right system.
    pub(super) fn by_key(&self, at: usize, server: &Watched, found: &Found) -> ByKey {
        // The same server under another address has the key, too.
        let is_at = |leader: usize| {
            let named = || self.list.get(leader).and_then(|server| server.found.as_ref());
            leader == at || named().is_some_and(|named| named.is_run_of(found))
        };
        match &self.key.leader {
            None => ByKey::Nothing,
            Some(Leader::At(leader)) if is_at(*leader) => ByKey::Right,
            Some(Leader::OneOf(leaders)) if leaders.iter().any(|leader| is_at(*leader)) => ByKey::Nothing,
            Some(_) if self.is_ahead(server, found) => ByKey::Nothing,
            Some(Leader::At(leader)) => ByKey::Wrong(LeftOut::WithoutKey(*leader)),
            Some(Leader::OneOf(_)) => ByKey::Wrong(LeftOut::NotNamed),
            // With failsafe_mode a leader goes on that no longer reaches the key. One that is down may come back without it.
            Some(Leader::Nobody) if server.trouble.is_none() && self.key.is_last && self.was_leader(found) => {
                ByKey::Nothing
            }
            Some(Leader::Nobody) => ByKey::Wrong(LeftOut::NobodysKey),
        }
    }
}
