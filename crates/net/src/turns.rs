//! Sessions are opened so many at a time.
//!
//! A server's socket keeps few connections until the server takes them up: 50 and a fifth of `max_connections` at MySQL and
//! MariaDB (`back_log`), twice `max_connections` at PostgreSQL. What comes beyond is dropped by the kernel without a word,
//! so that one end takes it for open and waits for its time-out, when all clients of an application come at once. Those that
//! wait here lose nothing: the server takes them up one after the other in any case.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

const AT_A_TIME: usize = 40;
/// A server that has not spoken by then may be far away, or busy with what follows: the next one's turn has come.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Whose turn it is, for one upstream.
#[derive(Debug)]
pub(crate) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(AT_A_TIME))
    }
}

impl Turns {
    /// Opens a connection when it is its turn; `open` lasts until the server's first word.
    pub(crate) async fn take<T>(&self, open: impl Future<Output = T>) -> T {
        let turn = self.0.acquire().await;
        let mut open = pin!(open);
        if let Ok(opened) = timeout(TURN_MAX, &mut open).await {
            return opened;
        }
        drop(turn);
        open.await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// A hundred connections at once; `open` is called when one is to be opened.
    async fn a_hundred<O: Future<Output = ()> + 'static>(open: impl Fn() -> O) {
        let turns = Rc::new(Turns::default());
        let all: Vec<_> = (0..100)
            .map(|_| {
                let (turns, open) = (Rc::clone(&turns), open());
                tokio::task::spawn_local(async move { turns.take(open).await })
            })
            .collect();
        for one in all {
            one.await.unwrap();
        }
    }

    #[tokio::test]
    async fn so_many_at_a_time() {
        let (now, most, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let open = || {
            let (now, most, ended) = (now.clone(), most.clone(), ended.clone());
            async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                yield_now().await;
                now.set(now.get() - 1);
                ended.set(ended.get() + 1);
            }
        };
        LocalSet::new().run_until(a_hundred(open)).await;
        assert_eq!((most.get(), ended.get()), (AT_A_TIME, 100));
    }

    /// A slow server does not hold the others up for ever: each of these waits for all of them.
    #[tokio::test]
    async fn a_turn_ends() {
        let all = Rc::new(tokio::sync::Barrier::new(100));
        let open = || {
            let all = Rc::clone(&all);
            async move {
                all.wait().await;
            }
        };
        LocalSet::new().run_until(a_hundred(open)).await;
    }
}
