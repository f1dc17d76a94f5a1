//! What keeps sessions on server connections that they share with others: a transaction, or state that lives there. How often, and for how long.
//!
//! A session notes its pin when it comes to rest. Each pin is counted once it has ended. Those that last are added when the figures are read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why a session keeps its connection, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    pub(crate) reason: &'static str,
    pub(crate) since: Instant,
}

/// The pin that a session has now.
#[derive(Debug, Default)]
pub(crate) struct Pin(Mutex<Option<Pinned>>);

impl Pin {
    fn cell(&self) -> MutexGuard<'_, Option<Pinned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Option<Pinned> {
        *self.cell()
    }
}

/// Pins that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    count: u64,
    lasted: Duration,
}

/// The pins of one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PinFigures {
    /// What kept the sessions on their connections.
    pub reason: &'static str,
    /// How often.
    pub count: u64,
    /// For how long, all together.
    pub seconds: f64,
    /// The sessions that have this pin now.
    pub sessions: u64,
}

/// The pins of all sessions of a database.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    ended: Mutex<BTreeMap<&'static str, Ended>>,
}

impl Pins {
    fn ended(&self) -> MutexGuard<'_, BTreeMap<&'static str, Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session has this pin from now on. Only the session itself changes its pin.
    pub(crate) fn note(&self, pin: &Pin, reason: Option<&'static str>) {
        let before = pin.get();
        if before.map(|before| before.reason) == reason {
            return;
        }
        let now = Instant::now();
        let after = reason.map(|reason| Pinned { reason, since: now });
        let Some(before) = before else {
            *pin.cell() = after;
            return;
        };
        // Under the lock, so that the figures have a pin once.
        let mut ended = self.ended();
        let of_reason = ended.entry(before.reason).or_default();
        of_reason.count += 1;
        of_reason.lasted += now.duration_since(before.since);
        *pin.cell() = after;
    }

    /// By reason. `pins`: those of the open sessions.
    pub(crate) fn figures<'a>(&self, pins: impl Iterator<Item = &'a Pin>) -> Vec<PinFigures> {
        let ended = self.ended();
        let mut all: BTreeMap<&'static str, (Ended, u64)> =
            ended.iter().map(|(reason, ended)| (*reason, (*ended, 0))).collect();
        let now = Instant::now();
        for pinned in pins.filter_map(Pin::get) {
            let (sum, sessions) = all.entry(pinned.reason).or_default();
            sum.count += 1;
            sum.lasted += now.saturating_duration_since(pinned.since);
            *sessions += 1;
        }
        let figures = |(reason, (sum, sessions)): (&'static str, (Ended, u64))| PinFigures {
            reason,
            count: sum.count,
            seconds: sum.lasted.as_secs_f64(),
            sessions,
        };
        all.into_iter().map(figures).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_counted_once() {
        let (pins, a, b) = (Pins::default(), Pin::default(), Pin::default());
        let figures = || {
            let all = pins.figures([&a, &b].into_iter());
            all.into_iter().map(|pin| (pin.reason, pin.count, pin.sessions)).collect::<Vec<_>>()
        };
        assert_eq!(figures(), []);
        pins.note(&a, Some("listen"));
        pins.note(&a, Some("listen"));
        pins.note(&b, Some("cursor"));
        assert_eq!(figures(), [("cursor", 1, 1), ("listen", 1, 1)]);
        pins.note(&b, Some("listen"));
        pins.note(&a, None);
        assert_eq!(figures(), [("cursor", 1, 0), ("listen", 2, 1)]);
        pins.note(&a, Some("listen"));
        assert_eq!(figures(), [("cursor", 1, 0), ("listen", 3, 2)]);
        let before: f64 = pins.figures([&a].into_iter()).iter().map(|pin| pin.seconds).sum();
        assert!(pins.figures([&a].into_iter()).iter().map(|pin| pin.seconds).sum::<f64>() >= before);
        assert!(a.get().is_some_and(|pinned| pinned.reason == "listen"));
    }
}
