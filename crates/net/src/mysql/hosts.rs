//! The hosts of an upstream, and which of them is in use.
//!
//! With several hosts, Freshet's own connections choose: the first that is the primary. Sessions go to the same host, since the changes that keep the
//! cache true come from it. A host that does not answer is tried behind the others for a while, and one that the watch has found to be the wrong one
//! is left out.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use super::address::Address;

/// A host that has not answered is tried behind the others for so long.
const REST: Duration = Duration::from_secs(10);

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
    /// None until one of Freshet's own connections has found the primary.
    chosen: watch::Sender<Option<usize>>,
    trouble: Mutex<Trouble>,
}

#[derive(Default)]
struct Trouble {
    /// Hosts that must not be chosen.
    left_out: Vec<usize>,
    /// Those that did not answer, and when.
    silent: Vec<(usize, Instant)>,
}

impl Hosts {
    pub(super) fn new(addresses: Vec<Address>) -> Self {
        let host =
            |address| Host { address, tls_incompatible: AtomicBool::default(), tls_settled: AtomicBool::default() };
        let list: Vec<Host> = addresses.into_iter().map(host).collect();
        // A single host is used whatever it is.
        let chosen = watch::Sender::new((list.len() == 1).then_some(0));
        Self { list, chosen, trouble: Mutex::default() }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn list(&self) -> &[Host] {
        &self.list
    }

    pub(super) fn chosen(&self) -> Option<usize> {
        *self.chosen.borrow()
    }

    /// The chosen one, as soon as there is one; None: not within this time.
    pub(super) async fn wait(&self, limit: Duration) -> Option<usize> {
        let mut chosen = self.chosen.subscribe();
        let found = timeout(limit, chosen.wait_for(Option::is_some)).await;
        found.ok().and_then(|host| *host.ok()?)
    }

    /// It is the primary; false: it is left out.
    pub(super) fn choose(&self, at: usize) -> bool {
        let mut trouble = self.trouble();
        if trouble.left_out.contains(&at) {
            return false;
        }
        trouble.silent.retain(|(other, _)| *other != at);
        self.chosen.send_if_modified(|chosen| chosen.replace(at) != Some(at));
        true
    }

    /// It is not the primary.
    pub(super) fn reject(&self, at: usize) {
        if self.list.len() > 1 {
            self.chosen.send_if_modified(|chosen| chosen.take_if(|chosen| *chosen == at).is_some());
        }
    }

    /// It does not answer.
    pub(super) fn note_silent(&self, at: usize) {
        let mut trouble = self.trouble();
        trouble.silent.retain(|(other, _)| *other != at);
        trouble.silent.push((at, Instant::now()));
    }

    pub(super) fn leave_out(&self, at: usize, is_out: bool) {
        let mut trouble = self.trouble();
        trouble.left_out.retain(|other| *other != at);
        if is_out {
            trouble.left_out.push(at);
            self.reject(at);
        }
    }

    /// Those that are not left out, in the order in which to try them.
    pub(super) fn candidates(&self) -> Vec<usize> {
        let (chosen, trouble) = (self.chosen(), self.trouble());
        let is_silent = |at| trouble.silent.iter().any(|(other, since)| *other == at && since.elapsed() < REST);
        let mut list: Vec<usize> = (0..self.list.len()).filter(|at| !trouble.left_out.contains(at)).collect();
        list.sort_by_key(|at| (is_silent(*at), chosen != Some(*at)));
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
        three.reject(1);
        assert_eq!(three.chosen(), Some(2), "another one was rejected");
        three.reject(2);
        assert_eq!(three.chosen(), None);
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
