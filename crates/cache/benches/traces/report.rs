//! The tables of `docs/benchmarks/traces.md`.

use std::fmt::Write as _;

/// Shares of what was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub(crate) hits: f64,
    pub(crate) time: f64,
}

/// One trace at one size, by policy.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Of the distinct bytes.
    pub(crate) percent: u64,
    pub(crate) lru: Saved,
    pub(crate) arc: Saved,
    pub(crate) s3_fifo: Saved,
    /// By hits for a byte.
    pub(crate) top_hits: Saved,
    /// By time saved for a byte.
    pub(crate) top_time: Saved,
    pub(crate) belady: Saved,
    pub(crate) ours: Saved,
}

impl Case {
    /// Ours, as a share of the best of those that do not know the future, and of the best choice that never changes.
    fn of_best(&self, share: impl Fn(&Saved) -> f64) -> f64 {
        let others = [&self.lru, &self.arc, &self.s3_fifo, &self.top_hits, &self.top_time];
        share(&self.ours) / others.into_iter().map(&share).fold(0.0, f64::max)
    }
}

fn table(out: &mut String, cases: &[Case], share: impl Fn(&Saved) -> f64 + Copy, time_differs: bool) {
    let tops = if time_differs { "top-C by hits | top-C by time" } else { "top-C" };
    let _ = writeln!(out, "| trace | size | LRU | ARC | S3-FIFO | {tops} | Belady | Freshet | of the best |");
    let _ = writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|{}", if time_differs { "---:|" } else { "" });
    for case in cases {
        let _ = write!(out, "| {} | {}% |", case.name, case.percent);
        let Case { lru, arc, s3_fifo, top_hits, top_time, belady, ours, .. } = case;
        let mut shown = vec![lru, arc, s3_fifo, top_hits];
        if time_differs {
            shown.push(top_time);
        }
        shown.extend([belady, ours]);
        for saved in shown {
            let _ = write!(out, " {:.1} |", 100.0 * share(saved));
        }
        let of_best = case.of_best(share);
        let mark = if of_best < 0.95 { "**" } else { "" };
        let _ = writeln!(out, " {mark}{:.0}%{mark} |", 100.0 * of_best);
    }
}

/// The page's tables.
pub(crate) fn markdown(equal: &[Case], unequal: &[Case]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "## Equal sizes and times\n\nHit ratio in %, which is the share of the time, too.\n");
    table(&mut out, equal, |saved| saved.hits, false);
    let _ = writeln!(out, "\n## Unequal sizes and times\n\nShare of the database's time that is saved, in %.\n");
    table(&mut out, unequal, |saved| saved.time, true);
    let _ = writeln!(out, "\nHit ratio of the same runs, in %.\n");
    table(&mut out, unequal, |saved| saved.hits, true);
    out
}
