//! Switches of a running Freshet: the cache off and on again, and the drain of all sessions.
//!
//! Both affect open sessions on any thread. The bypass is a flag that each look-up reads, so that no statement after the acknowledgement is served
//! from the cache. The change stream is applied meanwhile: entries stay valid, and the cache need not be flushed when it is switched on again.
//!
//! A drain must also wake sessions that wait for their client. A session registers once, at its start, and its registration is valid for the lifetime
//! of its task. So a request polls, locks or awaits nothing for it, but only reads the flag.

use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Release},
};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The switches. Both are off at the start of the program, except with `--bypass`; they are not persistent.
#[derive(Debug, Default)]
pub struct Switches {
    bypass: AtomicBool,
    draining: AtomicBool,
    drain: Notify,
    /// The end of the program was asked for by a statement: 1: after a drain; 2: at once.
    stop: AtomicU8,
    stops: Notify,
}

impl Switches {
    /// Switches the cache off (true) or on again; returns the previous state.
    pub fn set_bypass(&self, on: bool) -> bool {
        self.bypass.swap(on, std::sync::atomic::Ordering::AcqRel)
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

    /// Requests the end of the program, at once or after a drain.
    pub(crate) fn request_stop(&self, at_once: bool) {
        self.stop.fetch_max(if at_once { 2 } else { 1 }, std::sync::atomic::Ordering::AcqRel);
        self.stops.notify_waiters();
    }

    /// Returns when the end of the program has been requested by a statement; `at_once`: without a drain.
    pub async fn stop_requested(&self, at_once: bool) {
        loop {
            let mut stops = std::pin::pin!(self.stops.notified());
            stops.as_mut().enable();
            if self.stop.load(Acquire) >= if at_once { 2 } else { 1 } {
                return;
            }
            stops.await;
        }
    }

    /// Whether the program is to end at once.
    pub fn stops_at_once(&self) -> bool {
        self.stop.load(Acquire) == 2
    }

    /// Returns when the drain begins.
    pub(crate) async fn drained(&self) {
        let mut begun = std::pin::pin!(self.drain.notified());
        begun.as_mut().enable();
        if !self.is_draining() {
            begun.await;
        }
    }

    /// Wakes the current task once when the drain begins, as long as the value lives. The task must check [`Self::is_draining`] itself, also before
    /// its first wait.
    pub(crate) async fn enlist(&self) -> Pin<Box<Notified<'_>>> {
        let mut begun = Box::pin(self.drain.notified());
        std::future::poll_fn(|cx| {
            let _ = begun.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        begun
    }
}
