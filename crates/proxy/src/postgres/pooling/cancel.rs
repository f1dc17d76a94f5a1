//! Cancel requests of sessions that share server connections.
//!
//! Such a session has a key of Freshet's own. A request with it goes to the connection that the session has at that time. The connection stays with the
//! session until the request's own connection has ended: the server has sent its signal by then, and a server process that gets the signal while it is
//! idle ignores it. So no later user of the connection is ever met.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use freshet_net::Upstream;

/// The code of a cancel request, behind its length.
const CANCEL: u32 = 80_877_102;

/// A session's process id and secret, as the client has them.
pub(crate) type Key = Box<[u8]>;

#[derive(Debug, Default)]
struct State {
    /// The server's own key of the connection that the session has.
    server_key: Option<Arc<[u8]>>,
    /// The server of that connection; None: the host in use.
    host: Option<usize>,
    under_way: usize,
    /// There was a request since the session has this connection, or waits for one.
    is_asked: bool,
    /// A request may still arrive at the server.
    is_doubtful: bool,
    waker: Option<Waker>,
}

/// Where cancel requests of one session go.
#[derive(Debug, Default)]
pub(crate) struct CancelTarget(Mutex<State>);

impl CancelTarget {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session has the connection with this key from now on.
    pub(crate) fn set(&self, server_key: Arc<[u8]>, host: Option<usize>) {
        let mut state = self.state();
        (state.server_key, state.host, state.is_asked) = (Some(server_key), host, false);
    }

    /// The session begins to wait for a connection: a request wakes it.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut state = self.state();
        (state.waker, state.is_asked) = (Some(waker.clone()), false);
    }

    /// The session gives its connection back, or closes it: false while a request is under way, and then the waker is woken at its end.
    pub(crate) fn release(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if state.under_way > 0 {
            state.waker = Some(waker.clone());
            return false;
        }
        state.server_key = None;
        true
    }

    /// Whether a request is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.state().under_way > 0
    }

    /// Whether there was a request since [`Self::set`] or [`Self::wait`], which is asked once.
    pub(crate) fn take_asked(&self) -> bool {
        std::mem::take(&mut self.state().is_asked)
    }

    /// Whether a request may still arrive for the connection that the session had: it must not be used again.
    pub(crate) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.state().is_doubtful)
    }

    /// Sends a request to the session's connection, if it has one. Returns when the server has taken it.
    pub(crate) async fn cancel(self: Arc<Self>, upstream: &Upstream) {
        let Some(request) = self.begin() else { return };
        if send(upstream, request.host, &request.key).await {
            request.arrived();
        }
    }

    fn begin(self: &Arc<Self>) -> Option<Request> {
        let mut state = self.state();
        state.is_asked = true;
        let Some(key) = state.server_key.clone() else {
            if let Some(waker) = &state.waker {
                waker.wake_by_ref();
            }
            return None;
        };
        state.under_way += 1;
        Some(Request { target: self.clone(), key, host: state.host, has_arrived: false })
    }
}

/// Sends a request with the server's own key. Returns when the server has taken it; false: it may not have arrived.
pub(crate) async fn send(upstream: &Upstream, host: Option<usize>, key: &[u8]) -> bool {
    let mut packet = (key.len() as u32 + 8).to_be_bytes().to_vec();
    packet.extend_from_slice(&CANCEL.to_be_bytes());
    packet.extend_from_slice(key);
    let sent = freshet_net::postgres::cancel(upstream, host, &packet).await;
    sent.inspect_err(|error| tracing::debug!(%error, "a cancel request was not delivered")).is_ok()
}

/// A request that is under way.
struct Request {
    target: Arc<CancelTarget>,
    key: Arc<[u8]>,
    host: Option<usize>,
    has_arrived: bool,
}

impl Request {
    fn arrived(mut self) {
        self.has_arrived = true;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut state = self.target.state();
        state.under_way -= 1;
        state.is_doubtful |= !self.has_arrived;
        if state.under_way == 0
            && let Some(waker) = state.waker.take()
        {
            waker.wake();
        }
    }
}

/// The sessions of one database that have keys of Freshet's own.
#[derive(Debug, Default)]
pub(crate) struct CancelKeys(Mutex<HashMap<Key, Arc<CancelTarget>>>);

impl CancelKeys {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<CancelTarget>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins.
    pub(crate) fn enlist(self: &Arc<Self>, key: Key, waker: Waker) -> Enlisted {
        let target = Arc::new(CancelTarget::default());
        self.all().insert(key.clone(), target.clone());
        Enlisted { keys: self.clone(), key, target, waker }
    }

    /// Handles a cancel packet with one of these keys; false: it is of no session here.
    pub(crate) async fn cancel(&self, packet: &[u8], upstream: &Upstream) -> bool {
        let target = packet.get(8..).and_then(|key| self.all().get(key).cloned());
        let Some(target) = target else { return false };
        target.cancel(upstream).await;
        true
    }
}

/// A session with a key, until it is dropped.
#[derive(Debug)]
pub(crate) struct Enlisted {
    keys: Arc<CancelKeys>,
    pub(crate) key: Key,
    pub(crate) target: Arc<CancelTarget>,
    /// Wakes the session.
    pub(crate) waker: Waker,
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        self.keys.all().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_kept_while_a_request_is_under_way() {
        let target = Arc::new(CancelTarget::default());
        assert!(target.begin().is_none() && target.release(Waker::noop()));
        target.set(b"12345678".as_slice().into(), None);
        let (first, second) = (target.begin().unwrap(), target.begin().unwrap());
        assert!(!target.release(Waker::noop()));
        first.arrived();
        assert!(!target.release(Waker::noop()));
        drop(second); // it failed: nobody knows whether it arrives
        assert!(target.release(Waker::noop()) && target.take_doubt() && !target.take_doubt());
        assert!(target.begin().is_none());
        assert!(target.take_asked() && !target.take_asked());
        target.wait(Waker::noop());
        assert!(!target.take_asked() && target.begin().is_none() && target.take_asked());
        target.set(b"12345678".as_slice().into(), None);
        assert!(!target.take_asked());
    }

    #[test]
    fn keys_are_known_while_their_sessions_last() {
        let keys = Arc::new(CancelKeys::default());
        let enlisted = keys.enlist([7; 8].into(), Waker::noop().clone());
        assert!(keys.all().contains_key([7; 8].as_slice()));
        drop(enlisted);
        assert!(keys.all().is_empty());
    }
}
