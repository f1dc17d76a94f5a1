//! The throughput of each target as a multiple of its database's, over all cells. It is a geometric mean, in which a doubled and a halved throughput
//! cancel out.
//!
//! The database of a target is the first target of the run with its dialect. The cells of a workload in a run together have the weight of the
//! workload, which is 1 by default. So a workload does not count more if it was measured with more numbers of connections. The page lets the reader
//! change the weights, and shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::figures::times;
use super::super::summary::Summary;
use super::super::tables::Group;
use super::super::text::Text;
use crate::result::Run;

/// The target to compare with: the first with the same dialect, or the first of all if it has none. None for that target itself.
pub(super) fn base<'a>(run: &Run, summaries: &'a [Summary], summary: &Summary) -> Option<&'a Summary> {
    let dialect = |name: &str| {
        let url = run.targets.iter().find(|target| target.name == name).map_or("", |target| target.url.as_str());
        match url.split("://").next() {
            Some("postgres" | "postgresql") => Some("postgres"),
            Some("mysql" | "mariadb") => Some("mysql"),
            _ => None,
        }
    };
    let own = dialect(&summary.target);
    let first = summaries.iter().find(|other| own.is_none() || dialect(&other.target) == own)?;
    (first.target != summary.target).then_some(first)
}

/// The ratios of a workload's cells, by target and its database.
type Ratios = BTreeMap<(String, String), Vec<f64>>;

/// The ratios: a row for each workload of each run.
#[derive(Debug, Default)]
pub(super) struct Improvement {
    /// Title, workload, ratios.
    rows: Vec<(String, String, Ratios)>,
    /// Targets with their databases, in the order of their first occurrence.
    columns: Vec<(String, String)>,
}

impl Improvement {
    pub(super) fn add(&mut self, title: &str, groups: &[Group<'_>]) {
        for group in groups {
            let Some(cell) = group.cell() else { continue };
            let known = |(name, workload, _): &(String, String, Ratios)| name == title && *workload == cell.workload;
            let index = self.rows.iter().position(known).unwrap_or_else(|| {
                self.rows.push((title.to_owned(), cell.workload.clone(), Ratios::new()));
                self.rows.len() - 1
            });
            for (_, summaries) in &group.cells {
                for summary in summaries {
                    let Some(base) = base(group.run, summaries, summary) else { continue };
                    let (ratio, key) = (summary.ratio(base), (summary.target.clone(), base.target.clone()));
                    if !ratio.is_finite() || ratio <= 0.0 {
                        continue;
                    }
                    if !self.columns.contains(&key) {
                        self.columns.push(key.clone());
                    }
                    self.rows[index].2.entry(key).or_default().push(ratio);
                }
            }
        }
    }

    /// A sentence with the mean of the target that was measured in the most cells.
    pub(super) fn sentence(&self, weights: &BTreeMap<String, f64>) -> String {
        let ratios = |column: &(String, String)| -> Vec<f64> {
            self.rows.iter().filter_map(|(.., ratios)| ratios.get(column)).flatten().copied().collect()
        };
        // If several targets have equally many cells, the first is taken.
        let Some(column) = self.columns.iter().rev().max_by_key(|column| ratios(column).len()) else {
            return String::new();
        };
        let Some(mean) = self.mean(column, weights) else { return String::new() };
        let all = ratios(column);
        let (least, most) =
            (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max));
        let (target, base) = column;
        format!(
            "{target} answered {mean:.2} times as many transactions per second as {base}, as the geometric mean of {} runs, and \
             from {least:.2} to {most:.2} times in their {} cells.",
            self.rows.iter().filter(|(.., ratios)| ratios.contains_key(column)).count(),
            all.len()
        )
    }

    /// The mean over the workloads.
    fn mean(&self, column: &(String, String), weights: &BTreeMap<String, f64>) -> Option<f64> {
        let of = |(_, workload, ratios): &(String, String, Ratios)| {
            let mean = mean(ratios.get(column)?.iter().map(|ratio| (*ratio, 1.0)))?;
            Some((mean, weights.get(workload).copied().unwrap_or(1.0)))
        };
        mean(self.rows.iter().filter_map(of))
    }

    /// A table with a row for each workload and the mean of all. An empty text if there is nothing to compare.
    pub(super) fn html(&self, weights: &BTreeMap<String, f64>) -> String {
        if self.columns.is_empty() {
            return String::new();
        }
        let weight = |workload: &str| weights.get(workload).copied().unwrap_or(1.0);
        let mut text = String::from(
            "<p>The ratio of each target's transactions/s to its database's, as a geometric mean over the cells of each workload and, \
             with these weights, over the workloads. Targets that were not measured are left out.</p>\
             <div class=\"wide\" tabindex=\"0\">",
        );
        let class = if self.rows.len() > 1 { "mean" } else { "mean one" };
        let _ = write!(text, "<table class=\"{class}\"><thead><tr><th>workload</th><th class=\"n\">weight</th>");
        for (target, base) in &self.columns {
            let _ = write!(text, "<th class=\"n\">{}<br>×&nbsp;{}</th>", Text(target), Text(base));
        }
        text.push_str("</tr></thead><tbody>");
        for (title, workload, ratios) in &self.rows {
            let label = if title.contains(workload.as_str()) { title.clone() } else { format!("{title} ({workload})") };
            let _ = write!(
                text,
                "<tr><td>{0}</td><td class=\"n\"><input type=\"number\" min=\"0\" step=\"any\" value=\"{1}\" \
                 aria-label=\"weight of {0}\"></td>",
                Text(&label),
                weight(workload)
            );
            for column in &self.columns {
                let _ = match ratios.get(column).map(|ratios| mean(ratios.iter().map(|ratio| (*ratio, 1.0)))) {
                    Some(Some(mean)) => write!(text, "<td class=\"n\" data-ratio=\"{mean}\">{}</td>", times(mean)),
                    _ => write!(text, "<td class=\"n\">–</td>"),
                };
            }
            text.push_str("</tr>");
        }
        text.push_str("</tbody><tfoot><tr><th>geometric mean</th><td></td>");
        for column in &self.columns {
            let shown = self.mean(column, weights).map_or("–".to_owned(), times);
            let _ = write!(text, "<td class=\"n\">{shown}</td>");
        }
        text.push_str("</tr></tfoot></table></div>");
        text
    }
}

/// The weighted geometric mean. None if the weights add up to zero.
fn mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weights) =
        values.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + weight * value.ln(), all + weight));
    (weights > 0.0).then(|| (sum / weights).exp())
}

#[cfg(test)]
mod tests {
    use super::super::super::example;
    use super::*;

    #[test]
    fn workloads_weigh_what_they_are_said_to() {
        assert_eq!(mean([].into_iter()), None);
        assert_eq!(mean([(2.0, 0.0)].into_iter()), None);
        let of = |values: [(f64, f64); 2]| times(mean(values.into_iter()).unwrap());
        assert_eq!([of([(2.0, 1.0), (0.5, 1.0)]), of([(4.0, 3.0), (1.0, 1.0)])], ["1.00×", "2.83×"]);
    }

    #[test]
    fn targets_are_compared_with_the_first_of_their_dialect() {
        let mut run = example::run();
        let groups = Group::all(&run);
        let mut improvement = Improvement::default();
        improvement.add("a <title>", &groups);
        let text = improvement.html(&BTreeMap::from([("title-5".to_owned(), 2.5)]));
        assert!(text.contains("freshet<br>×&nbsp;direct") && text.contains("value=\"2.5\""), "{text}");
        assert!(text.contains("a &lt;title&gt; (title-5)") && text.contains("<td class=\"n\">4.00×</td>"), "{text}");
        run.targets[1].url = "mysql://h/d".to_owned();
        let mut other = Improvement::default();
        other.add("t", &Group::all(&run));
        assert_eq!(other.html(&BTreeMap::new()), "");
    }
}
