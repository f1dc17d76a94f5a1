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
        "# Eviction and admission: replayed traces

Command: `make bench-traces`, {date}, on {machine}. The results are counts, not times, so they do not depend on the speed of the machine.

A trace has {requests} requests for {keys} results; the scan has as many results of its own. The first sixth fills the cache and is not counted. Nothing
changes the results.

The cache is `freshet_cache::Cache` with its admission and its limits. It is called as the proxy calls it (`lookup`, `admits`, `begin_fill`, `commit`), and all
results belong to one statement. The size of a cache is a share of the bytes of all results in the trace. The size of an entry is its size in Freshet, with its key and
tags (some 650 bytes more than its answer), for every policy.

- **LRU, ARC, S3-FIFO** (`crates/cache/benches/traces/policies.rs`) fill at no cost: they never refuse a fill to spare the database.
- **top-C** knows how often each result will be requested, and its contents never change: the results with the most hits for a byte, or with the most time saved for a byte.
- **Belady** knows the future: it evicts the result with the farthest next use. This is the optimum for equal sizes and times, and a heuristic otherwise.
- **learned** is top-C from the requests until then, chosen anew after each sixtieth of the trace. It changes its contents at no cost, forgets nothing, and knows the
  time of a result from its first request on.
- **of the best** compares Freshet with the best of LRU, ARC, S3-FIFO and both top-C. **of the known** compares it with the best of LRU, ARC, S3-FIFO and learned, none
  of which knows the future. Values below 95% are bold.
- **its fills** are Freshet's fills, in % of the requests.

The traces:

- *zipf* and *uniform* are the distributions of the requests. *loop* requests all results in turn, again and again. *scan in zipf* has, after each 2,000 requests, 1,000 of a scan of
  another table. In *shifting* the ranks move to other results after each twelfth of the trace.
- Equal: answers of 4,000 bytes, of one millisecond each. Unequal: 200 bytes to 50 kB, 50 µs to 50 ms, both log-uniform and independent.

Two values cannot be reached without knowing the future. In *uniform* all results are requested equally often, so a cache of n% hits n% with any policy, but
top-C knows which results happen to be requested more often ({} times each on average). And top-C has its results from the start, without missing them
first.

",
        requests / keys
    )
}

/// The whole page.
pub(crate) fn page(scale: Scale, equal: &[Case], unequal: &[Case]) -> String {
    let mut out = method(scale);
    let _ =
        writeln!(out, "## Equal sizes and times\n\nHit ratio in %. It is also the share of the time that is saved.\n");
    table(&mut out, equal, |saved| saved.hits, false);
    let _ = writeln!(out, "\n## Unequal sizes and times\n\nThe share of the database's time that is saved, in %.\n");
    table(&mut out, unequal, |saved| saved.time, true);
    let _ = writeln!(
        out,
        "\nHit ratio of the same runs, in %. Freshet does not maximise it: it prefers results that cost the database more time.\n"
    );
    table(&mut out, unequal, |saved| saved.hits, true);
    out
}
