//! What all targets share: a bound on the memory that a decoder takes, and cuts of its input.
//!
//! A target does not only look for panics. What is decoded must encode to the bytes it came from, no cut of a message
//! may be taken for a message, and no length that a message announces may be believed before its bytes are there:
//! memory is counted by the allocator, so that a decoder that reserves what it is told fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counted.
struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: every call is handed to `System` as it came; the counters touch no memory of the caller.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as in `alloc`; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Does the work, which must not hold more than so many bytes at any moment.
pub fn bounded<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let done = work();
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    assert!(peak <= bytes_max, "{peak} bytes taken where {bytes_max} would do");
    done
}

/// Does the work; also says how many bytes what it returns holds on to.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    let done = work();
    (done, LIVE.load(Relaxed).saturating_sub(before))
}

/// All strict prefixes of a short input; of a long one those near its ends.
pub fn cuts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const NEAR: usize = 64;
    (0..bytes.len()).filter(|at| *at < NEAR || *at + NEAR >= bytes.len()).filter_map(|at| bytes.get(..at))
}

/// Appends a length that a message carries.
pub fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).expect("an input is short").to_be_bytes());
}

/// Appends a count that a message carries.
pub fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u16::try_from(count).expect("it was decoded from 16 bits").to_be_bytes());
}

/// Appends strings, each with a zero byte behind it.
pub fn put_strings<const N: usize>(out: &mut Vec<u8>, strings: [&[u8]; N]) {
    for string in strings {
        out.extend_from_slice(string);
        out.push(0);
    }
}
