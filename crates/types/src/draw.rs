//! A share of many, picked by their numbers.

/// Whether this number is drawn, at a rate of one in `one_in`. The number is multiplied first, so that a period in
/// the application's statements does not coincide with the drawing.
pub fn is_drawn(number: u64, one_in: u64) -> bool {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).is_multiple_of(one_in)
}
