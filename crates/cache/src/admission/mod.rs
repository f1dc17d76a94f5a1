//! Admission: whether caching pays for a statement, and so which misses are filled and which hits are served.
//!
//! # The decision
//!
//! An execution of a statement costs the database O with the cache off, H if it is a hit, and M if it is a miss whose result is
//! filled. With a hit ratio h it costs h·H + (1 − h)·M on average. That is less than O, and caching pays, if
//!
//! ```text
//! h > (M − O) / (M − H)          the break-even hit ratio of the statement
//! ```
//!
//! The same as a sum over executions: hits·(O − H) > fills·(M − O). A miss that is not filled costs O and is in neither sum.
//! [`costs`] has the formula. All costs are nanoseconds of the database; what Freshet itself does is about the same for a hit
//! and for a pass.
//!
//! | cost | value |
//! |---|---|
//! | O | measured: the database's shortest answer lately, so that no queue is taken for work |
//! | M − O | 40 µs; 120 µs if it evicts another entry; O more if the result needs a key query |
//! | H | 80 µs after own write; 35 µs after a pass in a full cache; else 0 |
//!
//! # What it is applied to
//!
//! - **Keys that nobody asked for yet** ([`Worth`]): the *balance* is the sum hits·(O − H) − fills·(M − O) until now, between two bounds.
//!   It begins at the upper bound, and each miss adds a small share of O, so that a cold cache fills. While it is positive, a key is
//!   filled at its first miss, then at its second. At the lower bound no fill evicts another entry. So a load that never asks twice
//!   costs little, and a key that is missed twice has cost at most about twice of what was necessary (Karlin et al.).
//! - **Results that were invalidated** ([`verdict`]): one fill each, and the hits that it had. If their hit ratio is below break-even, only keys are
//!   filled that were missed before, more often with each verdict of this kind. Evicted results do not count: they
//!   say nothing against their statement.
//! - **The hits themselves** ([`suspension`]): where H ≥ O the break-even hit ratio is 1 and no hit ratio pays. Once the balance is
//!   used up, caching is *suspended* for the statement (Varnish's hit-for-pass). H is known meanwhile by the look-ups: how many come
//!   after own write, and how many would find an entry. A trial follows each suspension.
//!
//! Which entry is evicted is decided by the eviction policy. It is asked before the fill with an average result of
//! the statement. Where results of a statement differ much, the average is a bad guess; so a few fills are made against it.
//!
//! Reading list: Karlin et al., "Competitive Snoopy Caching" (1988), for paying until one has paid what it costs to own; Einziger, Friedman & Manes, "TinyLFU: A Highly Efficient Cache Admission Policy" (2017), for admission by
//! the frequency of what is *not* in the cache.

mod answers;
mod costs;
mod suspension;
#[cfg(test)]
mod tests;
mod verdict;
mod worth;

use freshet_types::Nanos;

use crate::{Cache, Payload};
pub use costs::Hits;
pub use worth::Worth;

/// Which results are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Those of statements for which caching pays.
    #[default]
    Worthwhile,
    /// All.
    Always,
}

/// A look-up that found nothing, or nothing that is served.
#[derive(Clone, Copy, Debug)]
pub struct Miss<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// It came directly after a write of its session.
    pub after_own_write: bool,
    /// It would not have been looked up if [`Worth::skips_look_up`] had said so.
    pub known: bool,
}

/// Whether a miss passes because caching is suspended for its statement. Counts the miss then. `so_far` says how many hits
/// the statement had in all, and what time it is.
pub fn passes_suspended<P: Payload>(
    cache: &Cache<P>,
    worth: &Worth,
    miss: Miss<'_>,
    so_far: impl FnOnce() -> (Hits, Nanos),
) -> bool {
    if !worth.is_suspended() {
        return false;
    }
    cache.missed(miss.key);
    worth.count(cache, miss.after_own_write, so_far);
    worth.is_suspended() && !worth.fills_although_suspended(miss.known)
}

/// Whether the result of a miss is filled, if the miss does not pass by [`passes_suspended`]. Counts the miss.
pub fn admits<P: Payload>(
    cache: &Cache<P>,
    worth: &Worth,
    miss: Miss<'_>,
    so_far: impl FnOnce() -> (Hits, Nanos),
) -> bool {
    let Miss { key, after_own_write, .. } = miss;
    if worth.is_suspended() {
        return worth.would_be_kept(cache, key); // it is one of the few that are filled, and was counted
    }
    let earlier = cache.missed(key);
    if cache.limits().keep == Keep::Always {
        return true; // nothing is reckoned, so nothing is suspended
    }
    worth.count(cache, after_own_write, so_far);
    worth.admits(earlier) && (worth.expects(cache, key) || worth.tries())
}
