//! The memory that an allocation takes, which is more than was requested.
//!
//! The memory limit is for resident memory, so entries are weighed in blocks of the program's allocator (jemalloc,
//! "Size classes" in its manual). Up to 128 bytes the sizes are multiples of 16; above, there are four sizes for each
//! doubling. An allocation just above a size takes up to a quarter more than its bytes.

/// The bytes of the block behind an allocation of this size; 0 for 0.
pub fn block_bytes(bytes: usize) -> usize {
    const QUANTUM: usize = 16;
    const QUANTA_UP_TO: usize = 128;
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=QUANTA_UP_TO => bytes.next_multiple_of(QUANTUM),
        _ => bytes.checked_next_multiple_of(1 << ((bytes - 1).ilog2() - 2)).unwrap_or(usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_manual() {
        for (bytes, block) in [
            (0, 0),
            (1, 8),
            (8, 8),
            (9, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (256, 256),
            (257, 320),
            (3_073, 3_584),
            (14_337, 16 << 10),
            ((16 << 10) + 1, 20 << 10),
            ((4 << 20) + 1, 5 << 20),
            (usize::MAX, usize::MAX),
        ] {
            assert_eq!(block_bytes(bytes), block, "{bytes}");
        }
    }
}
