//! Sizes and spans of time as they are typed on a command line.

use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: `512MiB`, `2GiB`, `65536`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub u64);

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return Err(format!("unknown unit in {text:?}: use KiB, MiB or GiB")),
        };
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text:?} is too large"))
    }
}

/// A span of time: `2m`, `1s`, `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("{text:?} is not a time: use 250ms, 1s or 2m");
        let unit = |suffix, millis| text.strip_suffix(suffix).map(|number| (number, millis));
        let (number, millis) =
            unit("ms", 1).or_else(|| unit("s", 1000)).or_else(|| unit("m", 60_000)).ok_or_else(unknown)?;
        let number: u64 = number.trim().parse().map_err(|_| unknown())?;
        Ok(Self(Duration::from_millis(number.saturating_mul(millis))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_read() {
        assert_eq!("512MiB".parse(), Ok(MemorySize(512 << 20)));
        assert_eq!("2g".parse(), Ok(MemorySize(2 << 30)));
        assert_eq!("100".parse(), Ok(MemorySize(100)));
        assert!("much".parse::<MemorySize>().is_err());
        assert!("5 parsecs".parse::<MemorySize>().is_err());
        assert_eq!("250ms".parse(), Ok(Span(Duration::from_millis(250))));
        assert_eq!("2s".parse(), Ok(Span(Duration::from_secs(2))));
        assert_eq!("2m".parse(), Ok(Span(Duration::from_secs(120))));
        assert!("2".parse::<Span>().is_err());
    }
}
