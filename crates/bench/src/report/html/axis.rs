//! Axes: positions of values, ticks, and labels.

use super::super::figures::number;

/// Values whose largest is more than this many times the smallest get a logarithmic axis, where the axis permits it.
const LINEAR_RATIO_MAX: f64 = 20.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear,
    Log,
    /// For shares below 1: 0.9, 0.99 and 0.999 are equally far apart.
    Nines,
}

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    scale: Scale,
    low: f64,
    high: f64,
    /// The values of an evenly spaced axis, in order.
    steps: Option<Vec<f64>>,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis from zero to somewhat above the largest value.
    pub(super) fn from_zero(label: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let max = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(if max > 0.0 { max / 4.0 } else { 0.25 });
        let count = (max / step - 1e-9).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut at = 0.0;
        while at <= count {
            ticks.push((at * step, figure(at * step)));
            at += 1.0;
        }
        Self { label: label.into(), scale: Scale::Linear, low: 0.0, high: count * step, steps: None, ticks }
    }

    /// An axis from zero. If the values span a wide range, it is logarithmic, and the label says so.
    pub(super) fn wide(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite() && *value > 0.0).collect();
        let (min, max) =
            values.iter().fold((f64::INFINITY, 0.0), |(min, max): (f64, f64), v| (min.min(*v), max.max(*v)));
        if max <= min * LINEAR_RATIO_MAX {
            return Self::from_zero(label, values);
        }
        let all: Vec<f64> = (-9..16).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power))).collect();
        let low = all.iter().copied().rfind(|tick| *tick <= min).unwrap_or(min);
        let high = all.iter().copied().find(|tick| *tick >= max).unwrap_or(max);
        let crowded = (high / low).log10() > 2.5;
        let decade = |tick: f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
        let ticks = all.into_iter().filter(|tick| (low..=high).contains(tick) && (!crowded || decade(*tick)));
        let ticks = ticks.map(|tick| (tick, figure(tick))).collect();
        Self { label: format!("{label}, logarithmic"), scale: Scale::Log, low, high, steps: None, ticks }
    }

    /// An axis with a tick for each measured value. It is linear if the values are equally far apart, and otherwise logarithmic. If one of the values
    /// is zero, it is evenly spaced.
    pub(super) fn of_values(label: &str, values: &[f64], shown: impl Fn(f64) -> String) -> Self {
        let mut values: Vec<f64> = values.to_vec();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let ticks = values.iter().map(|value| (*value, shown(*value))).collect();
        let (low, high) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0));
        let equal = |three: &[f64]| matches!(three, [a, b, c] if (a + c - 2.0 * b).abs() < 1e-9);
        let (scale, said) = if values.len() > 2 && values.windows(3).all(equal) {
            (Scale::Linear, "")
        } else if low > 0.0 {
            (Scale::Log, ", logarithmic")
        } else {
            (Scale::Linear, ", evenly spaced")
        };
        let steps = (said == ", evenly spaced").then_some(values);
        Self { label: format!("{label}{said}"), scale, low, high, steps, ticks }
    }

    /// An axis of quantiles from 0 to this one.
    pub(super) fn quantiles(label: &str, highest: f64) -> Self {
        let all = [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];
        let ticks = all.into_iter().filter(|(at, _)| *at <= highest).map(|(at, text)| (at, text.to_owned())).collect();
        Self { label: label.to_owned(), scale: Scale::Nines, low: 0.0, high: highest, steps: None, ticks }
    }

    /// The position of a value: 0 is the low end, 1 the high end. None if the value is not a number or not on this axis.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        if let Some(steps) = &self.steps {
            let index = steps.iter().position(|step| step.to_bits() == value.to_bits())?;
            return Some(if steps.len() > 1 { index as f64 / (steps.len() - 1) as f64 } else { 0.5 });
        }
        let along = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.ln(),
            Scale::Nines => -(1.0 - value).ln(),
        };
        let (low, high) = (along(self.low), along(self.high));
        let place = if high > low { (along(value) - low) / (high - low) } else { 0.5 };
        (place.is_finite() && (-1e-6..=1.0 + 1e-6).contains(&place)).then_some(place)
    }

    /// Positions and labels of the ticks.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().filter_map(|(value, text)| Some((self.at(*value)?, text.as_str())))
    }
}

/// The next larger of 1, 2, 2.5, 5 times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= least * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

/// The label of a tick, without needless digits.
fn figure(value: f64) -> String {
    if value >= 1e3 { number(value) } else { format!("{}", (value * 1e9).round() / 1e9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|(_, text)| text).collect()
    }

    #[test]
    fn axes_of_rates_begin_at_zero() {
        let axis = Axis::from_zero("transactions/s", [1_638.0, 20_585.0, f64::NAN]);
        assert_eq!(texts(&axis), ["0", "10,000", "20,000", "30,000"]);
        assert_eq!((axis.at(0.0), axis.at(30_000.0), axis.at(f64::NAN)), (Some(0.0), Some(1.0), None));
        assert_eq!(texts(&Axis::from_zero("", [])), ["0", "0.25"]);
        assert_eq!(texts(&Axis::from_zero("", [0.7])), ["0", "0.2", "0.4", "0.6", "0.8"]);
    }

    #[test]
    fn wide_spans_are_logarithmic_and_say_so() {
        let axis = Axis::wide("ms", [0.26, 98.0, 0.0, f64::INFINITY]);
        assert_eq!((axis.label.as_str(), texts(&axis)), ("ms, logarithmic", vec!["1", "10", "100"]));
        assert_eq!((axis.at(0.0), axis.at(-1.0), axis.at(100.0)), (None, None, Some(1.0)));
        assert_eq!(texts(&Axis::wide("ms", [3.0, 70.0])), ["2", "5", "10", "20", "50", "100"]);
        assert_eq!(Axis::wide("ms", [1.0, 20.0]).label, "ms");
        assert_eq!(Axis::wide("ms", []).label, "ms");
    }

    #[test]
    fn what_was_measured_has_a_tick() {
        let connections = Axis::of_values("connections", &[64.0, 4.0, 16.0], number);
        assert_eq!(texts(&connections), ["4", "16", "64"]);
        assert!(connections.at(16.0).is_some_and(|at| (at - 0.5).abs() < 1e-9));
        let writes = Axis::of_values("writes/s", &[0.0, 100.0, 5_000.0], number);
        assert_eq!(
            (writes.label.as_str(), writes.at(100.0), writes.at(1.0)),
            ("writes/s, evenly spaced", Some(0.5), None)
        );
        assert_eq!(Axis::of_values("writes/s", &[7.0], number).at(7.0), Some(0.5));
        let reads = Axis::of_values("reads, %", &[10.0, 50.0, 90.0, 30.0, 70.0], number);
        assert_eq!((reads.label.as_str(), reads.at(10.0), reads.at(30.0)), ("reads, %", Some(0.0), Some(0.25)));
        let nines = Axis::quantiles("", 0.99);
        assert_eq!((texts(&nines), nines.at(1.0)), (vec!["0", "50", "90", "99"], None));
        assert!(nines.at(0.9).is_some_and(|at| (at - 0.5).abs() < 1e-9));
    }
}
