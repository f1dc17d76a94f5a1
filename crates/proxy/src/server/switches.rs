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
    AtomicBool,
    Ordering::{Acquire, Release, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The switches. Both are off at the start of the program, except with `--bypass`; they are not persistent.
#[derive(Debug, Default)]
pub struct Switches {
    /// Whether nothing may be served from the cache, for either reason.
    bypass: AtomicBool,
    reasons: Mutex<BypassReasons>,
    draining: AtomicBool,
    drain: Notify,
    /// The time for the drain is over: sessions within a transaction end, too.
    closing: AtomicBool,
    close: Notify,
}

#[derive(Debug, Default)]
struct BypassReasons {
    /// Somebody has switched the cache off.
    asked: bool,
    /// Another process caches from now on.
    retired: bool,
}

impl Switches {
    /// Switches the cache off (true) or on again; returns what it was switched to before. [`Self::bypass`] is the effect of it.
    pub fn set_bypass(&self, on: bool) -> bool {
        self.change(|reasons| replace(&mut reasons.asked, on))
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
        self.bypass.store(reasons.asked || reasons.retired, SeqCst);
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
        self.draining.store(true, Release);
        self.drain.notify_waiters();
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Acquire)
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

    /// Wakes the current task when the drain begins and when its time is over, as long as the value lives. The task must check [`Self::is_draining`]
    /// itself, also before its first wait.
    pub(crate) async fn enlist(&self) -> [Pin<Box<Notified<'_>>>; 2] {
        let mut wakers = [Box::pin(self.drain.notified()), Box::pin(self.close.notified())];
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
