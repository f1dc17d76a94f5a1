//! A share of many, picked by their numbers.

/// Whether the one with this number is among those of which one in so many is taken. Multiplied, lest a period of the application's own
/// meet this one.
pub fn is_drawn(number: u64, one_in: u64) -> bool {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).is_multiple_of(one_in)
}
