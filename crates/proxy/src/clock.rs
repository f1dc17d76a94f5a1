//! The monotonic clock.

use freshet_types::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The process's monotonic clock, read without a system call. [`std::time::Instant`] is the same clock, but the difference of two
/// instants costs 50 instructions, and each hit reads the clock twice.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The system's monotonic time at which this clock was created.
    start: Nanos,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: monotonic() }
    }
}

impl Clock {
    /// The time now; at least 1, since 0 means "never".
    pub fn now(&self) -> Nanos {
        monotonic().saturating_sub(self.start).max(1)
    }
}

/// The system's monotonic time.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither part is negative. 64 bits last for 584 years.
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}
