//! Switches of a running Freshet: the cache off and on again, and the drain of all sessions.
//!
//! Both affect open sessions on any thread. The bypass is a flag that each look-up reads, so that no statement after the acknowledgement is served
//! from the cache. The change stream is applied meanwhile: entries stay valid, and the cache need not be flushed when it is switched on again.
//!
//! A drain must also wake sessions that wait for their client. A session registers once, at its start, and its registration is valid for the lifetime
//! of its task. So a statement polls, locks or awaits nothing for this; it only reads the flag.

use std::mem::replace;
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Release, SeqCst},
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc};

use crate::server::carried::CarriedSession;

/// The switches. Both are off at the start of the program, except with `--bypass`; they are not persistent.
#[derive(Debug, Default)]
pub struct Switches {
    /// Whether nothing may be served from the cache, for any of the reasons.
    bypass: AtomicBool,
    reasons: Mutex<BypassReasons>,
    /// A [`Stage`].
    stage: AtomicU8,
    drain: Notify,
    /// Takes sessions over.
    successor: OnceLock<mpsc::Sender<CarriedSession>>,
    handover: Notify,
    /// The time for the drain is over: sessions within a transaction end, too.
    closing: AtomicBool,
    close: Notify,
}

/// What happens to sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Serving,
    /// Those that can go on in another process do so.
    HandingOver,
    /// They end as soon as they are idle.
    Draining,
}

#[derive(Debug, Default)]
struct BypassReasons {
    /// Somebody has switched the cache off.
    asked: bool,
    /// Another process caches from now on.
    retired: bool,
    /// The change stream ends.
    ended: bool,
}

impl Switches {
    /// Switches the cache off (true) or on again; returns what it was switched to before. [`Self::bypass`] is the effect of it.
    pub fn set_bypass(&self, on: bool) -> bool {
        self.change(|reasons| replace(&mut reasons.asked, on))
    }

    /// What [`Self::set_bypass`] has switched it to.
    pub fn is_bypass_asked(&self) -> bool {
        self.reasons().asked
    }

    /// Switches the cache off for ever: its change stream ends.
    pub fn end_cache(&self) {
        self.change(|reasons| reasons.ended = true);
    }

    /// Switches the cache off (true), whatever [`Self::set_bypass`] says, since another process caches; or undoes that.
    pub fn set_retired(&self, retired: bool) {
        self.change(|reasons| reasons.retired = retired);
    }

    /// Whether the cache is off since another process caches, or was to.
    pub fn is_retired(&self) -> bool {
        self.reasons().retired
    }

    fn change<T>(&self, change: impl FnOnce(&mut BypassReasons) -> T) -> T {
        let mut reasons = self.reasons();
        let result = change(&mut reasons);
        self.bypass.store(reasons.asked || reasons.retired || reasons.ended, SeqCst);
        result
    }

    fn reasons(&self) -> MutexGuard<'_, BypassReasons> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing may be served from the cache.
    pub fn bypass(&self) -> bool {
        self.bypass.load(Acquire)
    }

    /// Begins the drain: no new connections; each session ends as soon as it is idle.
    pub fn begin_drain(&self) {
        self.stage.store(Stage::Draining as u8, Release);
        self.drain.notify_waiters();
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.stage() == Stage::Draining
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Acquire) {
            0 => Stage::Serving,
            1 => Stage::HandingOver,
            _ => Stage::Draining,
        }
    }

    /// Another process serves, and takes over the sessions that can go on there.
    pub fn begin_handover(&self, successor: mpsc::Sender<CarriedSession>) {
        if self.successor.set(successor).is_ok() {
            self.change_stage(Stage::Serving, Stage::HandingOver);
            self.handover.notify_waiters();
        }
    }

    /// It takes no more sessions.
    pub(crate) fn end_handover(&self) {
        self.change_stage(Stage::HandingOver, Stage::Serving);
    }

    fn change_stage(&self, from: Stage, to: Stage) {
        // Otherwise a drain has begun.
        let _ = self.stage.compare_exchange(from as u8, to as u8, AcqRel, Acquire);
    }

    /// What takes sessions over.
    pub(crate) fn successor(&self) -> Option<&mpsc::Sender<CarriedSession>> {
        self.successor.get()
    }

    /// Whether another process takes sessions over.
    pub(crate) fn has_successor(&self) -> bool {
        self.successor().is_some_and(|successor| !successor.is_closed())
    }

    /// Ends the time for the drain: a session within a transaction ends as soon as no statement of it runs.
    pub fn close(&self) {
        self.closing.store(true, Release);
        self.close.notify_waiters();
    }

    /// Whether the time for the drain is over.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    /// Returns when the drain begins.
    pub(crate) async fn drained(&self) {
        let mut begun = std::pin::pin!(self.drain.notified());
        begun.as_mut().enable();
        if !self.is_draining() {
            begun.await;
        }
    }

    /// Wakes the current task when a handover or the drain begins and when the time for the drain is over, as long as the value lives. The task must
    /// check [`Self::stage`] itself, also before its first wait.
    pub(crate) async fn enlist(&self) -> [Pin<Box<Notified<'_>>>; 3] {
        let mut wakers = [&self.handover, &self.drain, &self.close].map(|begins| Box::pin(begins.notified()));
        std::future::poll_fn(|cx| {
            for waker in &mut wakers {
                let _ = waker.as_mut().poll(cx);
            }
            std::task::Poll::Ready(())
        })
        .await;
        wakers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_for_another_reason_is_not_switched_on() {
        let switches = Switches::default();
        switches.set_bypass(true);
        switches.set_bypass(false);
        assert!(!switches.bypass());
        switches.set_retired(true);
        assert!(!switches.set_bypass(false) && !switches.is_bypass_asked() && switches.bypass());
        switches.end_cache();
        switches.set_retired(false);
        switches.set_bypass(true);
        switches.set_bypass(false);
        assert!(switches.bypass(), "the cache of a stream that ends");
    }
}
