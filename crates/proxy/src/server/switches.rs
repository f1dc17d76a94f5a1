//! What an operator may switch while Freshet runs: the cache off and on again, and the end of all sessions.
//!
//! Both reach sessions that are open, whatever thread they are on. The bypass is a flag that each look-up reads, so that
//! no statement after the acknowledgement comes from the cache. Changes of the database are followed meanwhile: entries stay
//! true, and need not be flushed when the cache is switched on again.
//!
//! A drain must also wake sessions that wait for their client. A session enlists once, at its start: what wakes its task
//! stays valid for as long as the task lives, so that nothing is polled, locked or awaited for it on the way of a
//! request, which only reads the flag.

use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The switches. Both are off at the start of the program, but for `--bypass`: nothing of it is kept on disk.
#[derive(Debug, Default)]
pub struct Switches {
    bypass: AtomicBool,
    draining: AtomicBool,
    drain: Notify,
}

impl Switches {
    /// Switches the cache off (true) or on again; returns what it was before.
    pub fn set_bypass(&self, on: bool) -> bool {
        self.bypass.swap(on, std::sync::atomic::Ordering::AcqRel)
    }

    /// Whether nothing is to be served from the cache.
    pub fn bypass(&self) -> bool {
        self.bypass.load(Acquire)
    }

    /// No new connections; each session ends as soon as it is at rest.
    pub fn begin_drain(&self) {
        self.draining.store(true, Release);
        self.drain.notify_waiters();
    }

    /// Whether that has been said.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Acquire)
    }

    /// Ends when the drain begins.
    pub(crate) async fn drained(&self) {
        let mut begun = std::pin::pin!(self.drain.notified());
        begun.as_mut().enable();
        if !self.is_draining() {
            begun.await;
        }
    }

    /// Has the current task woken once, when the drain begins, for as long as the value lives. The task must look at
    /// [`Self::is_draining`] by itself, also before it first waits.
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
