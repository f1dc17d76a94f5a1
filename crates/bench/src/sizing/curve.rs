//! The curve over sizes, and its knee: beyond the knee, more memory gains less than it costs.

use super::distance::Distances;
use super::document::Point;

/// Points of a curve.
const POINTS: u32 = 60;

/// If no point of the curve is further than this above the straight line between its ends, the curve has no knee: each byte has the same value.
const BEND_MIN: f64 = 0.05;

/// Points from zero to the size beyond which nothing is gained.
pub(super) fn points(distances: &Distances) -> Vec<Point> {
    let end = distances.enough();
    // Sizes grow with the square of the step, since the first bytes gain most.
    let sizes = (0..=POINTS).map(|step| end * (f64::from(step) / f64::from(POINTS)).powi(2));
    sizes.map(|size| Point { bytes: size, miss_ratio: 1.0 - distances.hit_ratio(size) }).collect()
}

/// The point furthest above the straight line from the first to the last point. It is the knee of Satopää et al., "Finding a 'kneedle' in a haystack"
/// (2011), for a curve that only rises. None if the curve is nearly straight.
pub(super) fn knee(points: &[Point]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let (width, height) = (last.bytes - first.bytes, first.miss_ratio - last.miss_ratio);
    let above = |point: &Point| (first.miss_ratio - point.miss_ratio) / height - (point.bytes - first.bytes) / width;
    let furthest = points.iter().max_by(|one, other| above(one).total_cmp(&above(other)))?;
    (width > 0.0 && height > 0.0 && above(furthest) >= BEND_MIN).then_some(furthest.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(miss_ratio: impl Fn(f64) -> f64) -> Vec<Point> {
        (0..=100).map(|step| Point { bytes: f64::from(step), miss_ratio: miss_ratio(f64::from(step)) }).collect()
    }

    #[test]
    fn the_knee_is_where_the_curve_bends() {
        // Steep up to 20, flat beyond.
        let bent = curve(|size| if size <= 20.0 { 1.0 - size * 0.04 } else { 0.2 - (size - 20.0) * 0.001 });
        assert_eq!(knee(&bent), Some(20.0));
        assert_eq!(knee(&curve(|size| 1.0 - size / 100.0)), None);
        assert_eq!((knee(&curve(|_| 0.5)), knee(&[])), (None, None));
    }
}
