//! Sizes, spans of time and shares as they are typed on a command line.

use std::str::FromStr;
use std::time::Duration;

use parse_size::{ByteSuffix, Config};

/// A number of bytes: `512MiB`, `2GiB`, `65536`. A `GB` is a `GiB`, as in PostgreSQL's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize(pub u64);

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = Config::new().with_binary().with_byte_suffix(ByteSuffix::Allow).parse_size(text);
        read.map(Self).map_err(|error| format!("{error}: a size is 65536, 512MiB or 2GiB"))
    }
}

/// A span of time: `2m`, `1s`, `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "a time is 250ms, 1s or 2m";
        // `M` would mean months; users mean minutes.
        if text.contains('M') {
            return Err(format!("{text:?}: {form}"));
        }
        humantime::parse_duration(text).map(Self).map_err(|error| format!("{error}: {form}"))
    }
}

/// A part of a whole: `0.1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!("0.25".parse(), Ok(Share(0.25)));
        assert!(["-1", "2", "NaN", "10%"].iter().all(|text| text.parse::<Share>().is_err()));
    }

    #[test]
    fn sizes_and_spans_are_read() {
        assert_eq!("512MiB".parse(), Ok(MemorySize(512 << 20)));
        assert_eq!("2g".parse(), Ok(MemorySize(2 << 30)));
        assert_eq!("3 GB".parse(), Ok(MemorySize(3 << 30)));
        assert_eq!("100".parse(), Ok(MemorySize(100)));
        assert!(["much", "-1", "", "18000000000GiB"].iter().all(|text| text.parse::<MemorySize>().is_err()));
        assert_eq!("250ms".parse(), Ok(Span(Duration::from_millis(250))));
        assert_eq!("2s".parse(), Ok(Span(Duration::from_secs(2))));
        assert_eq!("2m".parse(), Ok(Span(Duration::from_secs(120))));
        assert!(["2", "", "-1s", "2M", "5 parsecs"].iter().all(|text| text.parse::<Span>().is_err()));
    }
}
