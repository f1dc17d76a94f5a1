//! Numbers as people read them.

/// Three significant digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

pub(super) fn duration(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "–".to_owned() };
    match seconds.abs() {
        0.0 => "0 s".to_owned(),
        size if size < 0.999_5e-3 => format!("{} µs", short(seconds * 1e6)),
        size if size < 0.9995 => format!("{} ms", short(seconds * 1e3)),
        size if size < 120.0 => format!("{} s", short(seconds)),
        size if size < 7200.0 => format!("{} min", short(seconds / 60.0)),
        size if size < 172_800.0 => format!("{} h", short(seconds / 3600.0)),
        _ => format!("{} days", short(seconds / 86400.0)),
    }
}

pub(super) fn bytes(count: Option<f64>) -> String {
    let Some(mut count) = count else { return "–".to_owned() };
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if count < 1024.0 {
            return format!("{} {unit}", short(count));
        }
        count /= 1024.0;
    }
    format!("{} TiB", short(count))
}

pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// A number of events or their rate.
pub(super) fn count(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value >= 1e7 => format!("{} M", short(value / 1e6)),
        Some(value) if value >= 1e5 => format!("{} k", short(value / 1e3)),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_three_digits() {
        let texts = [0.0, 7.92e-6, 0.000_999, 0.0123, 1.5, 119.0, 600.0, 9000.0, 864_000.0];
        let texts = texts.map(|seconds| duration(Some(seconds)));
        assert_eq!(
            texts,
            ["0 s", "7.92 µs", "999 µs", "12.3 ms", "1.50 s", "119 s", "10.0 min", "2.50 h", "10.0 days"]
        );
        let sizes = [0.0, 1023.0, 1536.0, 8.0 * 1_048_576.0, 2e12, 2e15].map(|count| bytes(Some(count)));
        assert_eq!(sizes, ["0 B", "1023 B", "1.50 KiB", "8.00 MiB", "1.82 TiB", "1819 TiB"]);
        let counts = [0.0, 12.0, 12.5, 99_999.0, 123_456.0, 5e7].map(|value| count(Some(value)));
        assert_eq!(counts, ["0", "12", "12.5", "99999", "123 k", "50.0 M"]);
        assert_eq!((percent(Some(0.9876)), percent(None)), ("98.8%".to_owned(), "–".to_owned()));
    }
}
