//! Draws against formulas, by the chi-square test at p = 0.001, with fixed seeds.

use super::*;

const KEYS: usize = 1000;
const DRAWS: usize = 300_000;
/// The fewest draws that must be expected in a class.
const CLASS_MIN: f64 = 8.0;
/// The 0.999 quantile of the normal distribution.
const Z: f64 = 3.0902;

fn counts(distribution: Distribution, keys: usize) -> Vec<usize> {
    let (drawn, mut random) = (Keys::new(distribution, keys).unwrap(), Random::new(20_261_122));
    let mut counts = vec![0; keys];
    for _ in 0..DRAWS {
        counts[drawn.draw(&mut random)] += 1;
    }
    counts
}

/// The statistic divided by its critical value. Above 1, the counts do not have these shares. Neighbouring classes are merged until enough draws are
/// expected in them.
fn misfit(counts: &[usize], shares: &[f64]) -> f64 {
    assert_eq!(counts.len(), shares.len());
    let sum: f64 = shares.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "the shares add up to {sum}");
    let mut classes: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    for (count, share) in counts.iter().zip(shares) {
        if classes.last().unwrap().1 >= CLASS_MIN {
            classes.push((0.0, 0.0));
        }
        let class = classes.last_mut().unwrap();
        class.0 += *count as f64;
        class.1 += share * DRAWS as f64;
    }
    if classes.len() > 1 && classes.last().unwrap().1 < CLASS_MIN {
        let last = classes.pop().unwrap();
        let class = classes.last_mut().unwrap();
        *class = (class.0 + last.0, class.1 + last.1);
    }
    let statistic: f64 = classes.iter().map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    let freedom = (classes.len() - 1) as f64;
    // Wilson and Hilferty 1931: the cube root of chi-square over its degrees of freedom is nearly normal.
    let part = 2.0 / (9.0 * freedom);
    statistic / (freedom * (1.0 - part + Z * part.sqrt()).powi(3))
}

fn zipf(s: f64, keys: usize) -> Vec<f64> {
    let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-s)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn hotspot(rows: f64, accesses: f64) -> Vec<f64> {
    let hot = (KEYS as f64 * rows).floor();
    (0..KEYS)
        .map(|key| if (key as f64) < hot { accesses / hot } else { (1.0 - accesses) / (KEYS as f64 - hot) })
        .collect()
}

/// Distribution of the mean of twelve uniform numbers (Bates): P(mean < x).
fn mean_below(x: f64) -> f64 {
    if x > 0.5 {
        return 1.0 - mean_below(1.0 - x); // the alternating sum loses its digits there
    }
    let (sum, mut binomial, mut total) = (12.0 * x.max(0.0), 1.0, 0.0);
    for k in 0..=12 {
        let left = sum - f64::from(k);
        if left <= 0.0 {
            break;
        }
        total += binomial * left.powi(12) * if k % 2 == 0 { 1.0 } else { -1.0 };
        binomial *= f64::from(12 - k) / f64::from(k + 1);
    }
    total / (1..=12).map(f64::from).product::<f64>()
}

/// sysbench's formula. `again_from` is the least value of the number that it uses a second time.
fn special(again_from: f64) -> Vec<f64> {
    let width = KEYS as f64 - 1.0;
    let middle = width * 0.01;
    let offset = width / 2.0 - middle / 2.0;
    let (from, to) = (offset + again_from * (middle + 1.0), offset + middle + 1.0);
    let share = |key: usize| {
        let key = key as f64;
        let mean = mean_below((key + 1.0) / width) - mean_below(key / width);
        let flat = ((key + 1.0).min(to) - key.max(from)).max(0.0) / (to - from);
        0.25 * mean + 0.75 * flat
    };
    (0..KEYS).map(share).collect()
}

fn scrambled(shares: &[f64]) -> Vec<f64> {
    let mut moved = vec![0.0; shares.len()];
    for (rank, share) in shares.iter().enumerate() {
        moved[permuted(rank, shares.len())] = *share;
    }
    moved
}

/// YCSB's formula: the shares of 10^10 ranks, each assigned to the key of its hash. The many small shares are spread evenly.
fn zipfian() -> Vec<f64> {
    const HEAD: u64 = 1_000_000;
    let mut shares = vec![0.0; KEYS];
    for rank in 0..HEAD {
        shares[(fnv(rank) % KEYS as u64) as usize] += (rank as f64 + 1.0).powf(-0.99);
    }
    let tail = 100.0 * (1e10_f64.powf(0.01) - (HEAD as f64 + 0.5).powf(0.01));
    for share in &mut shares {
        *share += tail / KEYS as f64;
    }
    let sum: f64 = shares.iter().sum();
    assert!((sum - 26.469_028_201_783_02).abs() < 1e-3, "YCSB has another sum: {sum}");
    shares.iter().map(|share| share / sum).collect()
}

fn reversed(mut shares: Vec<f64>) -> Vec<f64> {
    shares.reverse();
    shares
}

#[test]
fn draws_follow_their_formulas() {
    let mut cases = vec![
        ("uniform", vec![1.0 / KEYS as f64; KEYS]),
        ("hotspot:0.1:0.9", hotspot(0.1, 0.9)),
        ("hotspot:0.5:0", hotspot(0.5, 0.0)),
        ("special", special(0.25)),
        ("scrambled:0.99", scrambled(&zipf(0.99, KEYS))),
        ("latest:0.8", reversed(zipf(0.8, KEYS))),
        ("latest", reversed(zipf(0.99, KEYS))),
        ("hotspot", hotspot(0.2, 0.8)),
        ("zipfian", zipfian()),
    ];
    for (text, s) in [("zipf:0", 0.0), ("zipf:0.5", 0.5), ("zipf:0.99", 0.99), ("zipf:1", 1.0), ("zipf:2.5", 2.5)] {
        cases.push((text, zipf(s, KEYS)));
    }
    for (text, shares) in cases {
        let found = misfit(&counts(text.parse().unwrap(), KEYS), &shares);
        assert!(found < 1.0, "{text}: chi-square is {found} times its critical value");
    }
}

#[test]
fn few_keys_follow_their_formulas_too() {
    for keys in [1, 2, 3, 5, 64, 65] {
        for s in [0.7, 1.0, 1.3] {
            let counts = counts(Distribution::Zipf(s), keys);
            if keys > 1 {
                let found = misfit(&counts, &zipf(s, keys));
                assert!(found < 1.0, "zipf:{s} of {keys}: chi-square is {found} times its critical value");
            }
        }
        for text in ["special", "zipfian", "hotspot:0.01:0.5", "scrambled:1", "latest:1"] {
            assert_eq!(counts(text.parse().unwrap(), keys).iter().sum::<usize>(), DRAWS, "{text} of {keys}");
        }
    }
}

#[test]
fn wrong_formulas_are_rejected() {
    for (text, shares, wrong) in [
        ("uniform", zipf(0.05, KEYS), "slightly skewed"),
        ("zipf:0.99", zipf(0.96, KEYS), "another exponent"),
        ("zipf:1", reversed(zipf(1.0, KEYS)), "the other end"),
        ("zipf:0.99", scrambled(&zipf(0.99, KEYS)), "scrambled"),
        ("hotspot:0.1:0.9", hotspot(0.1, 0.87), "another share"),
        ("special", special(0.0), "the whole middle"),
        ("zipfian", scrambled(&zipf(0.99, KEYS)), "zipf over the keys alone"),
    ] {
        let found = misfit(&counts(text.parse().unwrap(), KEYS), &shares);
        assert!(found > 1.5, "{text} passes for {wrong}: {found}");
    }
}

#[test]
fn scrambling_is_one_to_one_and_spreads_neighbours() {
    for count in [1, 2, 3, 7, 64, 1000, 4097] {
        let mut seen = vec![false; count];
        (0..count).for_each(|rank| seen[permuted(rank, count)] = true);
        assert!(seen.iter().all(|seen| *seen), "{count}");
    }
    // The hundred hottest of 100,000 keys are in about a hundred different pages of a hundred rows, not in one.
    let mut pages: Vec<usize> = (0..100).map(|rank| permuted(rank, 100_000) / 100).collect();
    pages.sort_unstable();
    pages.dedup();
    assert!(pages.len() > 85, "{}", pages.len());
}

#[test]
fn distributions_are_read_and_written() {
    for text in ["uniform", "zipfian", "zipf:0.99", "scrambled:1", "latest:2", "hotspot:0.2:0.8", "special"] {
        assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
    }
    for wrong in [
        "",
        "zipf",
        "zipf:",
        "zipf:-1",
        "zipf:x",
        "zipf:11",
        "hotspot:0.1",
        "hotspot:2:0.1",
        "hotspot:0.1:2",
        "uniform:1",
    ] {
        assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
    }
    assert!(Keys::new(Distribution::Uniform, 0).is_err());
}
