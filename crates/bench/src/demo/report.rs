//! The tables at the end of the demo, and its verdict.

use std::fmt::Write as _;

use crate::driver::Protocol;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::check::Checked;
use super::load::name;
use super::measure::Measured;
use super::stall::Stalled;

/// The direct and the cached measurement with the same shape.
pub(super) struct Pair {
    pub(super) protocol: Protocol,
    pub(super) connections: usize,
    /// Background writes per second.
    pub(super) writes: f64,
    pub(super) direct: Measured,
    pub(super) cached: Measured,
}

impl Pair {
    /// Geometric mean of the improvements in throughput and in 1000/latency.
    fn improvement(&self) -> f64 {
        let throughput = self.cached.tally.per_second() / self.direct.tally.per_second().max(1e-9);
        let latency = self.direct.tally.average_ms() / self.cached.tally.average_ms().max(1e-9);
        (throughput * latency).sqrt()
    }
}

/// The contents of the report.
#[derive(Default)]
pub(super) struct Report {
    /// One line about the machine, the server and the data.
    pub(super) setting: String,
    pub(super) pairs: Vec<Pair>,
    /// Comparisons of all answers without writes.
    pub(super) compared: Vec<Checked>,
    pub(super) stalled: Option<Stalled>,
    /// Whether the cached target is a Freshet whose metrics can be read.
    pub(super) counters: bool,
}

impl Report {
    /// The tables as text.
    pub(super) fn render(&self) -> String {
        let mut text = format!("\n{}\n{}\n", self.setting, self.loads());
        for (kind, protocol, writing) in [
            ("read-only, prepared", Protocol::Prepared, false),
            ("read-only, text", Protocol::Text, false),
            ("with writes", Protocol::Prepared, true),
        ] {
            let ratios: Vec<f64> = self
                .pairs
                .iter()
                .filter(|pair| pair.protocol == protocol && (pair.writes > 0.0) == writing)
                .map(Pair::improvement)
                .collect();
            if !ratios.is_empty() {
                let mean = geometric_mean(&ratios);
                let percent = (mean - 1.0) * 100.0;
                let _ = writeln!(text, "Improvement {kind}: {mean:.2} times ({percent:+.0}%)");
            }
        }
        text.push_str("(geometric mean of throughput and 1000/latency over the connection counts)\n");
        self.render_cache(&mut text);
        self.render_checks(&mut text);
        text
    }

    fn loads(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([
            "target",
            "protocol",
            "threads",
            "writes\n/s",
            "transactions\n/s",
            "average\nms",
            "p95\nms",
            "hit\nratio",
            "upstream\nqueries/s",
            "database\nCPU µs/tx",
            "Freshet\nCPU µs/tx",
            "answers\nchecked",
            "wrong",
        ]);
        for pair in &self.pairs {
            table.add_row(self.row(pair, &pair.direct, "database"));
            table.add_row(self.row(pair, &pair.cached, "Freshet"));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn row(&self, pair: &Pair, measured: &Measured, target: &str) -> Vec<String> {
        let cached = target == "Freshet";
        let only = |shown: bool, value: String| if shown { value } else { "-".to_owned() };
        let tally = &measured.tally;
        let checked = cached && measured.checked.answers > 0;
        vec![
            target.to_owned(),
            name(pair.protocol).to_owned(),
            pair.connections.to_string(),
            format!("{:.0}", pair.writes),
            format!("{:.0}", tally.per_second()),
            format!("{:.2}", tally.average_ms()),
            format!("{:.2}", tally.p95_ms()),
            only(cached && self.counters, format!("{:.1}%", measured.metrics.hit_ratio() * 100.0)),
            format!("{:.0}", measured.upstream / tally.elapsed.as_secs_f64().max(1e-9)),
            format!("{:.0}", measured.per_transaction_us(measured.database_cpu_seconds)),
            only(cached && self.counters, format!("{:.0}", measured.per_transaction_us(measured.freshet_cpu_seconds))),
            only(checked, measured.checked.answers.to_string()),
            only(checked, measured.checked.wrong.to_string()),
        ]
    }

    /// The cache's counters, and the reasons for passes if there were more than a few.
    fn render_cache(&self, text: &mut String) {
        let mut sum = super::child::Metrics::default();
        for pair in &self.pairs {
            sum.add(&pair.cached.metrics);
        }
        if self.counters {
            let (entries, mib) = (sum.entries, sum.bytes / 1024.0 / 1024.0);
            let (hits, fills, evictions) = (sum.hits, sum.fills, sum.evictions);
            let _ = writeln!(
                text,
                "Cache: {entries:.0} entries in {mib:.1} MiB; {hits:.0} hits, {fills:.0} fills, {evictions:.0} evictions"
            );
        }
        if sum.passed > (sum.hits + sum.fills) * 0.01 {
            let _ = writeln!(text, "Passes by reason: {}", sum.main_reasons());
        }
    }

    fn render_checks(&self, text: &mut String) {
        text.push('\n');
        for compared in &self.compared {
            let Checked { answers, wrong, .. } = compared;
            let _ =
                writeln!(text, "Without writes: {answers} answers compared with the database's own, {wrong} differ");
        }
        for pair in self.pairs.iter().filter(|pair| pair.writes > 0.0) {
            let Checked { answers, wrong, oldest, .. } = &pair.cached.checked;
            let oldest = oldest.as_millis();
            let _ = writeln!(
                text,
                "During writes: {answers} answers checked, {wrong} wrong, the oldest {oldest} ms behind"
            );
        }
        if let Some(stalled) = &self.stalled {
            render_stall(text, stalled);
        }
    }

    /// The failures that set the exit status.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let during = self.pairs.iter().map(|pair| &pair.cached.checked);
        let stalled = self.stalled.iter().map(|stalled| &stalled.checked);
        let mut sum = Checked::default();
        for checked in self.compared.iter().chain(during).chain(stalled) {
            sum.add(checked.clone());
        }
        if sum.wrong > 0 {
            failures.push(format!("{} of {} answers were wrong", sum.wrong, sum.answers));
            failures.extend(sum.examples);
        }
        failures.extend(self.stalled.iter().flat_map(Stalled::failures).map(|failure| format!("stall: {failure}")));
        failures
    }
}

/// The scheduling delay from which on the report mentions it.
const LATE_SECONDS: f64 = 0.5;

fn render_stall(text: &mut String, stalled: &Stalled) {
    let Stalled { hits_per_second_before: before, writes, late_hits, bypassed_transactions, .. } = stalled;
    let Checked { answers, wrong, oldest, .. } = &stalled.checked;
    let last = stalled.last_hit_after.as_millis();
    let oldest = oldest.as_millis();
    let recovery = stalled
        .recovery
        .as_ref()
        .map_or_else(|_| "never".to_owned(), |after| format!("after {} ms", after.as_millis()));
    let _ = writeln!(
        text,
        "Change stream stopped for 3 s: {before:.0} hits/s before, the last hit {last} ms after the stop, {late_hits} hits \
         later than allowed;\n  {writes} writes went on, {bypassed_transactions} transactions were answered by the \
         database, hits came back {recovery};\n  {answers} answers checked, {wrong} wrong, the oldest {oldest} ms behind \
         (1000 allowed)"
    );
    if stalled.late_seconds >= LATE_SECONDS {
        let late = stalled.late_seconds;
        let who = "Freshet's main thread or the database's log-end probes";
        let _ = writeln!(text, "  {who} were delayed by {late:.1} s meanwhile: they had no processor");
        let _ = writeln!(text, "  (on Linux, kernel.sched_autogroup_enabled = 0 may help)");
    }
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometric_mean_of_two_and_eight_is_four() {
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn wrong_answers_fail_the_demo() {
        let wrong = Checked { answers: 10, wrong: 1, examples: vec!["this one".into()], ..Checked::default() };
        let report = Report { compared: vec![Checked::default(), wrong], ..Report::default() };
        assert_eq!(report.failures(), vec!["1 of 10 answers were wrong", "this one"]);
        assert!(Report::default().failures().is_empty());
    }
}
