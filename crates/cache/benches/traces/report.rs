//! The tables of `docs/benchmarks/traces.md`.

use std::fmt::Write as _;

use crate::workload::Scale;

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
    /// By what was asked for until then, by hits and by time saved for a byte.
    pub(crate) learned_hits: Saved,
    pub(crate) learned_time: Saved,
    pub(crate) belady: Saved,
    pub(crate) ours: Saved,
    /// Answers that ours tried to keep, as a share of all requests.
    pub(crate) fills: f64,
}

impl Case {
    /// Ours, as a share of the best of those that do not know the future, and of the best choice that never changes.
    fn of_best(&self, share: impl Fn(&Saved) -> f64) -> f64 {
        let others = [&self.lru, &self.arc, &self.s3_fifo, &self.top_hits, &self.top_time];
        share(&self.ours) / others.into_iter().map(&share).fold(0.0, f64::max)
    }

    /// The best choice by what was asked for until then.
    fn learned(&self, share: impl Fn(&Saved) -> f64) -> f64 {
        share(&self.learned_hits).max(share(&self.learned_time))
    }

    /// Ours, as a share of the best of those that do not know the future.
    fn of_known(&self, share: impl Fn(&Saved) -> f64) -> f64 {
        let others = [&self.lru, &self.arc, &self.s3_fifo].into_iter().map(&share);
        share(&self.ours) / others.fold(self.learned(&share), f64::max)
    }
}

fn table(out: &mut String, cases: &[Case], share: impl Fn(&Saved) -> f64 + Copy, time_differs: bool) {
    let tops = if time_differs { "top-C by hits | top-C by time" } else { "top-C" };
    let _ = writeln!(
        out,
        "| trace | size | LRU | ARC | S3-FIFO | learned | {tops} | Belady | Freshet | of the best | of the known | its fills |"
    );
    let more = if time_differs { "---:|" } else { "" };
    let _ = writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|{more}");
    for case in cases {
        let _ = write!(out, "| {} | {}% |", case.name, case.percent);
        let Case { lru, arc, s3_fifo, top_hits, top_time, belady, ours, .. } = case;
        let mut shown: Vec<f64> = [lru, arc, s3_fifo].into_iter().map(share).collect();
        shown.extend([case.learned(share), share(top_hits)]);
        if time_differs {
            shown.push(share(top_time));
        }
        shown.extend([belady, ours].map(share));
        for saved in shown {
            let _ = write!(out, " {:.1} |", 100.0 * saved);
        }
        for ratio in [case.of_best(share), case.of_known(share)] {
            let mark = if ratio < 0.95 { "**" } else { "" };
            let _ = write!(out, " {mark}{:.0}%{mark} |", 100.0 * ratio);
        }
        let _ = writeln!(out, " {:.1} |", 100.0 * case.fills);
    }
}

fn first_line_of(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names: Vec<&str> =
        cpus.lines().filter_map(|line| line.strip_prefix("model name")?.split(": ").nth(1)).collect();
    format!("{} × {}", names.len(), names.first().unwrap_or(&"an unknown processor"))
}

fn method(scale: Scale) -> String {
    let (date, machine) = (first_line_of("date", &["+%F"]), machine());
    let Scale { keys, requests } = scale;
    format!(
        "# What is kept: replayed traces

Command: `make bench-traces`, {date}, on {machine}. Nothing here depends on how fast that is: it is counted, not timed.

{requests} requests over {keys} results; the scan has as many results of its own. The first sixth fills the cache and is not counted. The
cache is `freshet_cache::Cache` with its admission, by the calls that the proxy makes (`lookup`, `admits`, `begin_fill`, `commit`),
its limits, and all results of one statement. Nothing changes them. Sizes are shares of the bytes of all results that the trace asks for;
bytes are what an entry weighs in Freshet with its key and tags (some 650 more than its answer), for every policy alike.
The policies beside it (`crates/cache/benches/traces/policies.rs`) keep what they keep at no cost: they refuse nothing to spare
the database a fill. top-C is what one would keep who knew how often each result will be asked for, and never change: the best by hits for
a byte, or by time saved for a byte. Belady knows the future: farthest next use, which is the optimum for equal sizes and times and a
heuristic otherwise. *Learned* is top-C by what was asked for until then, chosen anew after each sixtieth of the trace: it pays for no
change, forgets nothing, and knows what a result takes from its first request on. *Of the best* compares Freshet with the best of LRU, ARC, S3-FIFO and both
top-C, *of the known* with the best of LRU, ARC, S3-FIFO and learned, none of which knows the future; bold: below 95%. *Its fills*: in % of requests.

- *loop*: all results in turn, again and again. *scan in zipf*: after each 2,000 requests 1,000 of a scan of
  another table. *shifting*: the ranks belong to other results after each twelfth of the trace.
- Equal: answers of 4,000 bytes, a millisecond each. Unequal: 200 bytes to 50 kB, 50 µs to 50 ms, both log-uniform and independent.

Two things cannot be reached by anybody who does not know the future. In *uniform* all results are asked for equally often, so that a cache of n% hits n%, whoever keeps it; top-C has
seen which will happen to come more often ({} times each on average). And top-C has its results from the start, without having to
miss them first.

",
        requests / keys
    )
}

/// The whole page.
pub(crate) fn page(scale: Scale, equal: &[Case], unequal: &[Case]) -> String {
    let mut out = method(scale);
    let _ = writeln!(out, "## Equal sizes and times\n\nHit ratio in %, which is the share of the time, too.\n");
    table(&mut out, equal, |saved| saved.hits, false);
    let _ = writeln!(out, "\n## Unequal sizes and times\n\nShare of the database's time that is saved, in %.\n");
    table(&mut out, unequal, |saved| saved.time, true);
    let _ = writeln!(out, "\nHit ratio of the same runs, in %. Freshet does not aim at it: it prefers what is dear.\n");
    table(&mut out, unequal, |saved| saved.hits, true);
    out
}
