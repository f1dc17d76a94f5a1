//! The hosts of an upstream, and which of them is in use.
//!
//! With several hosts, the change stream chooses: the first that is the primary. All other connections go to the same host, since the changes that keep
//! the cache true come from it. (Before it begins, as while an earlier process still ends, anybody chooses: nothing is cached.) The choice stays until the host is found not to be the primary: no other one can be chosen before. So while the stream
//! runs, nobody is led to another server than the stream's. A host that does not answer is tried behind the others for a while, and one that the watch
//! has found to be the wrong one is left out.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use super::address::Address;

/// A host that has not answered is tried behind the others for so long.
const REST: Duration = Duration::from_secs(10);
/// No host is chosen.
const NONE: usize = usize::MAX;

/// A host, with what is known of its TLS.
pub(super) struct Host {
    pub(super) address: Address,
    /// It has no cipher in common with Freshet.
    pub(super) tls_incompatible: AtomicBool,
    /// Whether `tls_incompatible` is known.
    pub(super) tls_settled: AtomicBool,
}

/// See the module.
pub(super) struct Hosts {
    list: Vec<Host>,
    /// [`NONE`] until the change stream has found the primary. It changes under the lock of `trouble`.
    chosen: AtomicUsize,
    /// Told of each change.
    changes: watch::Sender<()>,
    /// A change stream has begun to look for the primary: only it chooses from then on. It changes under the lock of `trouble`.
    has_stream: AtomicBool,
    /// When somebody looked for the primary before that; held meanwhile.
    last_search: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    trouble: Mutex<Trouble>,
}

#[derive(Default)]
struct Trouble {
    /// Hosts that must not be chosen.
    left_out: Vec<usize>,
    /// Those that did not answer, and when.
    silent: Vec<(usize, Instant)>,
}

impl Trouble {
    fn is_silent(&self, at: usize) -> bool {
        self.silent.iter().any(|(other, since)| *other == at && since.elapsed() < REST)
    }
}

impl Hosts {
    pub(super) fn new(addresses: Vec<Address>) -> Self {
        let host =
            |address| Host { address, tls_incompatible: AtomicBool::default(), tls_settled: AtomicBool::default() };
        let list: Vec<Host> = addresses.into_iter().map(host).collect();
        // A single host is used whatever it is.
        let chosen = AtomicUsize::new(if list.len() == 1 { 0 } else { NONE });
        Self {
            list,
            chosen,
            changes: watch::Sender::default(),
            has_stream: AtomicBool::default(),
            last_search: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn list(&self) -> &[Host] {
        &self.list
    }

    pub(super) fn chosen(&self) -> Option<usize> {
        Some(self.chosen.load(SeqCst)).filter(|at| *at != NONE)
    }

    /// A change stream begins.
    pub(super) fn begin_stream(&self) {
        let _trouble = self.trouble();
        self.has_stream.store(true, SeqCst);
    }

    /// Whether anybody may choose: there has been no change stream, so nothing is cached, and no host is chosen.
    pub(super) fn are_free(&self) -> bool {
        self.chosen().is_none() && !self.has_stream.load(SeqCst)
    }

    pub(super) fn last_search(&self) -> &tokio::sync::Mutex<Option<tokio::time::Instant>> {
        &self.last_search
    }

    /// It is the primary, if anybody may still choose.
    pub(super) fn choose_before_stream(&self, at: usize) {
        let mut trouble = self.trouble();
        if self.are_free() && !trouble.left_out.contains(&at) {
            self.set(&mut trouble, Some(at));
        }
    }

    /// Whether it has not answered lately.
    pub(super) fn is_silent(&self, at: usize) -> bool {
        self.trouble().is_silent(at)
    }

    /// `trouble` is held.
    fn set(&self, _trouble: &mut Trouble, chosen: Option<usize>) {
        self.chosen.store(chosen.unwrap_or(NONE), SeqCst);
        self.changes.send_replace(());
    }

    /// The chosen one, as soon as there is one; None: not within this time.
    pub(super) async fn wait(&self, limit: Duration) -> Option<usize> {
        let mut changes = self.changes.subscribe();
        let found = async {
            loop {
                if let Some(at) = self.chosen() {
                    return Some(at);
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(limit, found).await.ok().flatten()
    }

    /// Returns when the host is not the chosen one.
    async fn left(&self, at: usize) {
        let mut changes = self.changes.subscribe();
        while self.chosen() == Some(at) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Does this work with the chosen host; None: another one is chosen meanwhile, or none.
    pub(super) async fn while_chosen<T>(&self, at: usize, work: impl Future<Output = T>) -> Option<T> {
        if self.list.len() == 1 {
            return Some(work.await);
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.left(at) => None,
        }
    }

    /// It is the primary; false: it is left out, or another one is chosen.
    pub(super) fn choose(&self, at: usize) -> bool {
        let mut trouble = self.trouble();
        if trouble.left_out.contains(&at) || self.chosen().is_some_and(|other| other != at) {
            return false;
        }
        trouble.silent.retain(|(other, _)| *other != at);
        self.set(&mut trouble, Some(at));
        true
    }

    /// It is not the primary. Returns whether it was chosen.
    pub(super) fn reject(&self, at: usize) -> bool {
        self.reject_locked(&mut self.trouble(), at)
    }

    fn reject_locked(&self, trouble: &mut Trouble, at: usize) -> bool {
        let was_chosen = self.list.len() > 1 && self.chosen() == Some(at);
        if was_chosen {
            self.set(trouble, None);
        }
        was_chosen
    }

    /// It does not answer.
    pub(super) fn note_silent(&self, at: usize) {
        let mut trouble = self.trouble();
        trouble.silent.retain(|(other, _)| *other != at);
        trouble.silent.push((at, Instant::now()));
    }

    /// Returns whether it was chosen, and is no longer.
    pub(super) fn leave_out(&self, at: usize, is_out: bool) -> bool {
        let mut trouble = self.trouble();
        trouble.left_out.retain(|other| *other != at);
        if is_out {
            trouble.left_out.push(at);
        }
        is_out && self.reject_locked(&mut trouble, at)
    }

    /// Those that are not left out, in the order in which to try them.
    pub(super) fn candidates(&self) -> Vec<usize> {
        let (chosen, trouble) = (self.chosen(), self.trouble());
        let mut list: Vec<usize> = (0..self.list.len()).filter(|at| !trouble.left_out.contains(at)).collect();
        list.sort_by_key(|at| (trouble.is_silent(*at), chosen != Some(*at)));
        list
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, host) in self.list.iter().enumerate() {
            f.write_str(if at > 0 { "," } else { "" })?;
            host.address.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: usize) -> Hosts {
        Hosts::new((0..count).map(|at| Address::Tcp { host: format!("db{at}"), port: 3306 }).collect())
    }

    #[test]
    fn anybody_chooses_before_a_stream_begins() {
        let (one, two) = (hosts(1), hosts(2));
        assert!(!one.are_free() && two.are_free());
        two.choose_before_stream(1);
        two.choose_before_stream(0);
        assert_eq!((two.chosen(), two.are_free()), (Some(1), false));
        two.begin_stream();
        assert!(two.reject(1) && !two.are_free());
        two.choose_before_stream(1);
        assert_eq!(two.chosen(), None);
    }

    #[test]
    fn a_single_host_stays_chosen() {
        let one = hosts(1);
        one.reject(0);
        one.note_silent(0);
        assert_eq!((one.chosen(), one.candidates()), (Some(0), vec![0]));
    }

    #[test]
    fn the_chosen_one_is_tried_first_and_silent_ones_last() {
        let three = hosts(3);
        assert_eq!((three.chosen(), three.candidates()), (None, vec![0, 1, 2]));
        assert!(three.choose(2));
        assert_eq!(three.candidates(), [2, 0, 1]);
        three.note_silent(2);
        three.note_silent(0);
        assert_eq!((three.chosen(), three.candidates()), (Some(2), vec![1, 2, 0]));
        assert!(!three.reject(1) && three.chosen() == Some(2), "another one was rejected");
        assert!(three.reject(2) && three.chosen().is_none());
    }

    #[tokio::test]
    async fn the_choice_stays_until_it_is_rejected() {
        let two = hosts(2);
        assert!(two.choose(0) && two.choose(0) && !two.choose(1));
        assert_eq!(two.wait(Duration::ZERO).await, Some(0));
        assert_eq!(two.while_chosen(0, async { 7 }).await, Some(7));
        // Work at a host that does not answer ends with the choice.
        let silent = two.while_chosen(0, std::future::pending::<()>());
        let reject = async { two.reject(0) };
        assert_eq!(tokio::join!(silent, reject), (None, true));
        assert!(two.wait(Duration::ZERO).await.is_none() && two.choose(1));
    }

    #[test]
    fn who_is_left_out_is_not_chosen() {
        let two = hosts(2);
        assert!(two.choose(0));
        two.leave_out(0, true);
        assert!(two.chosen().is_none() && !two.choose(0));
        assert_eq!(two.candidates(), [1]);
        two.leave_out(0, false);
        assert!(two.choose(0));
    }
}
