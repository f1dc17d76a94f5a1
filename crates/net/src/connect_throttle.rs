//! The connect throttle: it limits the number of sessions that are opened at a time.
//!
//! The listen queue of a server holds few connections that the server has not accepted yet. MySQL and MariaDB have
//! room for 50 and a fifth of `max_connections` (`back_log`), PostgreSQL for twice `max_connections`. The kernel
//! silently drops further ones. One end then takes the connection for open and waits for its time-out. This happens
//! when all clients of an application connect at once. Waiting here costs nothing, since the server accepts one
//! connection after the other in any case.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

const AT_A_TIME: usize = 40;
/// A server that has not spoken by then may be far away, or busy with the login: the next connection may be opened.
const TURN_MAX: Duration = Duration::from_millis(100);
/// The most connections on which the server has not spoken yet. With more, a merely slow server would open none of
/// them in time.
const PENDING_MAX: usize = 160;

/// The throttle of one upstream.
#[derive(Debug)]
pub(crate) struct ConnectThrottle {
    in_turn: Semaphore,
    pending: Semaphore,
    /// When a connection was last opened or refused.
    last_end: Mutex<Option<Instant>>,
}

impl Default for ConnectThrottle {
    fn default() -> Self {
        let (in_turn, pending) = (Semaphore::new(AT_A_TIME), Semaphore::new(PENDING_MAX));
        Self { in_turn, pending, last_end: Mutex::default() }
    }
}

impl ConnectThrottle {
    /// Waits for its turn and opens a connection within `limit`. `open` lasts until the server's first message. The
    /// wait may last as long as other connections are being opened; it ends when none was opened for `limit`.
    pub(crate) async fn take<T>(&self, limit: Duration, open: impl Future<Output = T>) -> Result<T, Elapsed> {
        let since = Instant::now();
        let (_pending, turn) = self.while_others_are_opened(since, limit, self.wait()).await?;
        let mut open = pin!(timeout(limit, self.while_others_are_opened(since, limit, open)));
        let opened = if let Ok(opened) = timeout(TURN_MAX, &mut open).await {
            opened
        } else {
            drop(turn);
            open.await
        }??;
        *self.last_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(opened)
    }

    async fn wait(&self) -> (impl Sized, impl Sized) {
        (self.pending.acquire().await, self.in_turn.acquire().await)
    }

    /// Ends early if no connection was opened for `limit` after `since`.
    async fn while_others_are_opened<T>(
        &self,
        since: Instant,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut work = pin!(work);
        loop {
            let last = self.last_end().map_or(since, |end| end.max(since));
            match timeout_at(last + limit, &mut work).await {
                Err(_) if self.last_end() > Some(last) => {}
                done => return done,
            }
        }
    }

    fn last_end(&self) -> Option<Instant> {
        *self.last_end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::sync::Barrier;
    use tokio::task::{LocalSet, yield_now};
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[derive(Default)]
    struct Count {
        now: Cell<usize>,
        most: Cell<usize>,
        opened: Cell<usize>,
        late: Cell<usize>,
    }

    /// Opens so many connections at once; `open` is called for each.
    async fn at_once<O: Future<Output = ()> + 'static>(count: usize, open: impl Fn() -> O) -> Rc<Count> {
        let (connect_throttle, seen) = (Rc::new(ConnectThrottle::default()), Rc::new(Count::default()));
        let one = |_| {
            let (connect_throttle, seen, open) = (Rc::clone(&connect_throttle), Rc::clone(&seen), open());
            tokio::task::spawn_local(async move {
                let counted = async {
                    seen.now.update(|now| now + 1);
                    seen.most.update(|most| most.max(seen.now.get()));
                    open.await;
                    seen.now.update(|now| now - 1);
                };
                let end = if connect_throttle.take(LIMIT, counted).await.is_ok() { &seen.opened } else { &seen.late };
                end.update(|count| count + 1);
            })
        };
        let all: Vec<_> = (0..count).map(one).collect();
        for one in all {
            one.await.unwrap();
        }
        seen
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        LocalSet::new().block_on(&runtime, work)
    }

    #[test]
    fn so_many_at_a_time() {
        let seen = run(at_once(100, yield_now));
        assert_eq!((seen.most.get(), seen.opened.get()), (AT_A_TIME, 100));
    }

    /// A slow server does not delay the others for ever: each of these waits for all of them.
    #[test]
    fn a_turn_ends() {
        let all = Rc::new(Barrier::new(PENDING_MAX));
        let open = || {
            let all = Rc::clone(&all);
            async move {
                all.wait().await;
            }
        };
        let seen = run(at_once(PENDING_MAX, open));
        assert_eq!((seen.most.get(), seen.opened.get()), (PENDING_MAX, PENDING_MAX));
    }

    /// The last of them wait for longer than the limit.
    #[test]
    fn a_slow_server_opens_all() {
        let each = LIMIT / 4;
        let count = 6 * PENDING_MAX;
        let seen = run(at_once(count, move || async move { sleep(each).await }));
        assert_eq!((seen.most.get(), seen.opened.get()), (PENDING_MAX, count));
    }

    /// Nobody gets a second wait behind the first.
    #[test]
    fn a_frozen_server_opens_none() {
        let count = 3 * PENDING_MAX;
        let seen = run(async { timeout(LIMIT * 7 / 4, at_once(count, std::future::pending)).await });
        assert_eq!(seen.map(|seen| (seen.opened.get(), seen.late.get())), Ok((0, count)));
    }
}
