//! While no server takes connections: a restart, or a failover until another server is the primary.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Between two attempts of a session.
const RETRY: Duration = Duration::from_millis(200);

const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Until when a session tries to connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    until: Instant,
}

impl Patience {
    pub(crate) fn of(limit: Duration) -> Self {
        Self { until: Instant::now() + limit.min(LONGEST) }
    }

    /// An attempt has failed: returns when the next one is due, with the time that it may take; None: there is none any more.
    pub(crate) async fn next(self) -> Option<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left < RETRY {
            return None;
        }
        sleep(RETRY).await;
        // The last one has half a pause at least.
        Some(left.saturating_sub(RETRY / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn attempts_end() {
        assert_eq!(Patience::of(Duration::ZERO).next().await, None);
        let patience = Patience::of(RETRY * 3);
        let mut last = RETRY * 3;
        while let Some(most) = patience.next().await {
            assert!(most < last && most >= RETRY / 2, "{most:?} behind {last:?}");
            last = most;
        }
        assert!(Instant::now() + RETRY > patience.until);
    }
}
