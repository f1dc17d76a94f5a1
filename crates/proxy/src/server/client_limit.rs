//! The most clients that may be connected at once. Operators at the console do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

/// The limit.
#[derive(Debug)]
pub(crate) struct ClientLimit {
    /// None: there is no limit.
    most: Option<usize>,
    open: Arc<AtomicUsize>,
}

/// A client's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientPlace(Arc<AtomicUsize>);

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

impl ClientLimit {
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self { most, open: Arc::default() }
    }

    /// A place for one more client, if there is one.
    pub(crate) fn enter(&self) -> Option<ClientPlace> {
        let fits = |open: usize| self.most.is_none_or(|most| open < most).then_some(open + 1);
        self.open.fetch_update(AcqRel, Acquire, fits).ok()?;
        Some(ClientPlace(self.open.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let limit = ClientLimit::new(Some(2));
        let (first, second) = (limit.enter(), limit.enter());
        assert!(first.is_some() && second.is_some() && limit.enter().is_none());
        drop(first);
        assert!(limit.enter().is_some());
        let none = ClientLimit::new(None);
        assert!((0..10).map(|_| none.enter()).collect::<Vec<_>>().iter().all(Option::is_some));
    }
}
