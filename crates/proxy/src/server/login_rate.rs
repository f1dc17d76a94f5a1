//! Limits failed logins per client address, so that passwords cannot be guessed at the speed of the machine.
//!
//! Each address has a bucket of failures that refills evenly over a minute. A bucket is one point in time, the one at which it will be full again
//! (the generic cell rate algorithm). Attempts that run at the same time, before the first of them has failed, cause a longer wait, but never more
//! than a minute: the address may be shared by a whole office or cluster. An IPv6 client controls at least a /64, so the /64 counts as its address.
//!
//! Clients over a Unix socket are not limited. They have no address, so one of them could lock out all others; the permissions of the socket's
//! directory control who may connect.
//!
//! Memory is bounded: when the table is full, the address whose bucket is nearest to full is removed. Guessing from so many addresses is beyond this
//! limit's purpose.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use freshet_types::Nanos;

/// The time in which a bucket refills.
const MINUTE: Nanos = 60_000_000_000;
const SECOND: Nanos = 1_000_000_000;
/// About 4 MB.
const ADDRESSES_MAX: usize = 65_536;

/// The failed logins of all addresses.
#[derive(Debug)]
pub(crate) struct LoginRateLimit {
    /// Failures in a full bucket; 0 for no limit.
    failures_max: AtomicU32,
    buckets: Mutex<Buckets>,
}

/// Buckets that are not full, by address and by the time when they will be.
#[derive(Debug, Default)]
struct Buckets {
    full_at: HashMap<IpAddr, Nanos>,
    by_time: BTreeSet<(Nanos, IpAddr)>,
}

impl LoginRateLimit {
    /// Allows this many failures at once, and as many again in a minute; 0 sets no limit.
    pub(crate) fn new(failures_max: u32) -> Self {
        Self { failures_max: failures_max.into(), buckets: Mutex::default() }
    }

    /// Sets the limit. What addresses have to wait already stays.
    pub(crate) fn set_failures_max(&self, failures_max: u32) {
        self.failures_max.store(failures_max, Relaxed);
    }

    /// Whether this address may try to log in; if not, the seconds until it may.
    pub(crate) fn allowed(&self, address: Option<IpAddr>, now: Nanos) -> Result<(), u64> {
        let Some((network, refill)) = self.limited(address) else { return Ok(()) };
        let full_at = self.with(|buckets| buckets.full_at.get(&network).copied()).unwrap_or(now);
        // If no more than this is missing, one more failure is allowed.
        let room = MINUTE.saturating_sub(refill);
        match full_at.saturating_sub(now).saturating_sub(room) {
            0 => Ok(()),
            wait => Err(wait.div_ceil(SECOND)),
        }
    }

    /// A login from this address failed.
    pub(crate) fn failed(&self, address: Option<IpAddr>, now: Nanos) {
        let Some((network, refill)) = self.limited(address) else { return };
        self.with(|buckets| buckets.take(network, refill, now));
    }

    /// The address for which failures are counted, and the time in which it regains one failure.
    fn limited(&self, address: Option<IpAddr>) -> Option<(IpAddr, Nanos)> {
        let refill = MINUTE.checked_div(self.failures_max.load(Relaxed).into())?;
        Some((network_of(address?), refill))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Buckets) -> T) -> T {
        // The buckets are consistent between two calls, and no call is expected to panic.
        work(&mut self.buckets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Buckets {
    fn take(&mut self, network: IpAddr, refill: Nanos, now: Nanos) {
        while self.by_time.first().is_some_and(|(full_at, _)| *full_at <= now) {
            self.forget_first();
        }
        let before = self.full_at.get(&network).copied();
        if let Some(before) = before {
            self.by_time.remove(&(before, network));
        } else if self.full_at.len() >= ADDRESSES_MAX {
            self.forget_first();
        }
        let full_at = before.unwrap_or(now).saturating_add(refill).min(now.saturating_add(2 * MINUTE));
        self.full_at.insert(network, full_at);
        self.by_time.insert((full_at, network));
    }

    fn forget_first(&mut self) {
        if let Some((_, network)) = self.by_time.pop_first() {
            self.full_at.remove(&network);
        }
    }
}

/// The address, the /64 of an IPv6 address, or the IPv4 address of a client on an IPv6 socket.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    fn validate(login_rate: &LoginRateLimit) -> usize {
        login_rate.with(|buckets| {
            assert_eq!(buckets.full_at.len(), buckets.by_time.len());
            assert!(buckets.full_at.len() <= ADDRESSES_MAX);
            assert!(buckets.by_time.iter().all(|(at, network)| buckets.full_at.get(network) == Some(at)));
            buckets.full_at.len()
        })
    }

    #[test]
    fn the_limit_is_per_address_and_refills() {
        let login_rate = LoginRateLimit::new(20);
        let now = 5 * MINUTE;
        for _ in 0..20 {
            assert_eq!(login_rate.allowed(ip("10.0.0.1"), now), Ok(()));
            login_rate.failed(ip("10.0.0.1"), now);
        }
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), now), Err(3));
        assert_eq!(login_rate.allowed(ip("10.0.0.2"), now), Ok(()));
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), now + 3 * SECOND - 1), Err(1));
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), now + 3 * SECOND), Ok(()));
        login_rate.failed(ip("10.0.0.1"), now + 3 * SECOND);
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), now + 3 * SECOND), Err(3));
        // After a minute without attempts the bucket is full again.
        let now = now + 2 * MINUTE;
        for _ in 0..20 {
            assert_eq!(login_rate.allowed(ip("10.0.0.1"), now), Ok(()));
            login_rate.failed(ip("10.0.0.1"), now);
        }
        assert!(login_rate.allowed(ip("10.0.0.1"), now).is_err());
        assert_eq!(validate(&login_rate), 1);
    }

    #[test]
    fn guesses_made_at_once_are_paid_for() {
        let login_rate = LoginRateLimit::new(20);
        for _ in 0..100 {
            login_rate.failed(ip("10.0.0.1"), 0);
        }
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), 0), Err(63));
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), 63 * SECOND), Ok(()));
    }

    #[test]
    fn what_counts_as_one_address() {
        let login_rate = LoginRateLimit::new(1);
        login_rate.failed(ip("2001:db8:1:2::1"), 0);
        login_rate.failed(ip("10.0.0.1"), 0);
        login_rate.failed(None, 0);
        for (address, allowed) in [
            ("2001:db8:1:2:ffff::9", false),
            ("2001:db8:1:3::1", true),
            ("::ffff:10.0.0.1", false),
            ("::ffff:10.0.0.2", true),
        ] {
            assert_eq!(login_rate.allowed(ip(address), 0).is_ok(), allowed, "{address}");
        }
        // A Unix socket.
        assert_eq!(login_rate.allowed(None, 0), Ok(()));
        assert_eq!(validate(&login_rate), 2);
    }

    #[test]
    fn no_limit() {
        let login_rate = LoginRateLimit::new(0);
        login_rate.failed(ip("10.0.0.1"), 0);
        assert_eq!((login_rate.allowed(ip("10.0.0.1"), 0), validate(&login_rate)), (Ok(()), 0));
        // A limit that is set later holds at once, and no more when it is taken back.
        login_rate.set_failures_max(1);
        login_rate.failed(ip("10.0.0.1"), 0);
        assert!(login_rate.allowed(ip("10.0.0.1"), 0).is_err());
        login_rate.set_failures_max(0);
        assert_eq!(login_rate.allowed(ip("10.0.0.1"), 0), Ok(()));
        // The largest limit does not divide by zero either.
        let login_rate = LoginRateLimit::new(u32::MAX);
        login_rate.failed(ip("10.0.0.1"), Nanos::MAX);
        assert!(login_rate.allowed(ip("10.0.0.1"), 0).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let login_rate = LoginRateLimit::new(20);
        let address = |i: u32| Some(IpAddr::from(i.to_be_bytes()));
        for _ in 0..20 {
            login_rate.failed(address(u32::MAX), 0);
        }
        for i in 0..ADDRESSES_MAX as u32 + 1000 {
            login_rate.failed(address(i), u64::from(i));
        }
        assert_eq!(validate(&login_rate), ADDRESSES_MAX);
        // The address with the most failures is kept longest.
        assert!(login_rate.allowed(address(u32::MAX), 0).is_err());
        login_rate.failed(address(1), 2 * MINUTE);
        assert_eq!(validate(&login_rate), 1);
    }
}
