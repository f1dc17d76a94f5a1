//! Runs as CSV: a line for each target of each cell, over all its rounds, without rounding.

use std::collections::BTreeSet;

use anyhow::Result;
use csv::{Terminator, WriterBuilder};
use hdrhistogram::Histogram;

use super::columns::to_database;
use super::entry::Entry;
use super::markdown::settings;
use super::summary::Summary;
use super::tables::Group;
use crate::result::Cell;

const COLUMNS: [&str; 31] = [
    "run",
    "started",
    "workload",
    "settings",
    "connections",
    "writes_asked_per_s",
    "cache_size_bytes",
    "target",
    "rounds",
    "transactions_per_s",
    "transactions_per_s_min",
    "transactions_per_s_max",
    "ratio_to_first",
    "queries_per_s",
    "latency_avg_ms",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "hit_ratio",
    "database_queries_per_s",
    "hits",
    "fills",
    "passed",
    "evictions",
    "cache_entries",
    "cache_bytes",
    "memory_bytes",
    "writes_achieved_per_s",
    "errors",
    "wrong_answers",
    "compared_answers",
];

/// All runs in one table. The last columns are the processor time per query of each process.
pub(super) fn csv(entries: &[(&Entry, Vec<Group<'_>>)]) -> Result<String> {
    let summaries =
        || entries.iter().flat_map(|(_, groups)| groups).flat_map(|group| &group.cells).flat_map(|(_, all)| all);
    let processes: BTreeSet<&String> = summaries().flat_map(|summary| summary.cpu.keys()).collect();
    let header = COLUMNS.iter().map(|name| (*name).to_owned());
    let mut table = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    table.write_record(header.chain(processes.iter().map(|name| format!("cpu_us_per_query {name}"))))?;
    for (entry, groups) in entries {
        for group in groups {
            for (cell, summaries) in &group.cells {
                for summary in summaries {
                    let mut fields = place(entry, cell, summary);
                    fields.extend(figures(group, summaries, summary));
                    fields.extend(processes.iter().map(|name| figure(summary.cpu.get(*name).copied())));
                    table.write_record(fields.into_iter().map(plain))?;
                }
            }
        }
    }
    Ok(String::from_utf8(table.into_inner()?)?)
}

fn place(entry: &Entry, cell: &Cell, summary: &Summary) -> Vec<String> {
    vec![
        entry.name.clone(),
        entry.run.started.to_string(),
        cell.workload.clone(),
        settings(cell),
        cell.connections.to_string(),
        cell.writes.to_string(),
        cell.cache_size.map(|size| size.to_string()).unwrap_or_default(),
        summary.target.clone(),
    ]
}

fn figures(group: &Group<'_>, summaries: &[Summary], summary: &Summary) -> Vec<String> {
    let (rate, cache, checked) = (&summary.load.rate, summary.cache, summary.checked.as_ref());
    let ratio = summaries.first().map(|first| summary.ratio(first));
    let mut fields = vec![rate.rounds.to_string()];
    fields.extend(
        [Some(rate.median), Some(rate.min), Some(rate.max), ratio, Some(summary.load.queries.median)].map(figure),
    );
    fields.extend(latency(&summary.load.latency).map(figure));
    fields.extend(
        [cache.map(|cache| cache.hit_ratio()), cache.map(|cache| to_database(group.run, summary, &cache))].map(figure),
    );
    let counts =
        cache.map(|cache| [cache.hits, cache.fills, cache.passed, cache.evictions, cache.entries, cache.bytes]);
    fields.extend((0..6).map(|index| figure(counts.map(|counts| counts[index]))));
    fields.extend([summary.own_memory(), summary.writes.as_ref().map(|writes| writes.rate.median)].map(figure));
    fields.push(summary.errors().to_string());
    fields.extend(
        [checked.map(|checked| checked.wrong), checked.map(|checked| checked.answers)]
            .map(|count| count.map(|count| count.to_string()).unwrap_or_default()),
    );
    fields
}

fn latency(histogram: &Histogram<u64>) -> [Option<f64>; 4] {
    if histogram.is_empty() {
        return [None; 4];
    }
    let quantile = |at: f64| histogram.value_at_quantile(at) as f64;
    [histogram.mean(), quantile(0.5), quantile(0.95), quantile(0.99)].map(|nanoseconds| Some(nanoseconds / 1e6))
}

/// An empty field if there is no value.
fn figure(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map(|value| value.to_string()).unwrap_or_default()
}

/// Spreadsheets would take a text that begins like a formula for one, so a character is put before it.
fn plain(text: String) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    if formula { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn each_target_of_each_cell_has_a_line() {
        let mut run = example::run();
        run.cells[1].rounds.clear();
        run.cells[1].failed.clear();
        let entry = Entry { name: "a".to_owned(), title: "A".to_owned(), run };
        let text = csv(&[(&entry, Group::all(&entry.run))]).unwrap();
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[0].ends_with(
                "compared_answers,cpu_us_per_query client,cpu_us_per_query freshet,cpu_us_per_query postgres"
            )
        );
        assert!(
            lines[1].starts_with("a,1795321140,title-5,distribution uniform,4,50,,direct,2,1050,1000,1100,1,"),
            "{text}"
        );
        let columns = lines.iter().map(|line| line.split(',').count()).collect::<BTreeSet<_>>();
        assert_eq!(columns, BTreeSet::from([COLUMNS.len() + 3]), "{text}");
    }

    #[test]
    fn fields_are_no_formulas() {
        assert_eq!(["a,b", "-1.5", "=1+1", "-x"].map(|text| plain(text.to_owned())), ["a,b", "-1.5", "'=1+1", "'-x"]);
        assert_eq!([figure(Some(f64::NAN)), figure(None), figure(Some(0.5))], ["", "", "0.5"]);
    }
}
