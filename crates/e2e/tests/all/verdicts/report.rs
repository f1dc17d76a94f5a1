//! Verdicts as text: the lines of a snapshot, the differences between two, and the table of figures.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::Source;
use super::judging::{Tags, Verdict};

/// Differences that are shown.
const SHOWN_MAX: usize = 40;
/// Characters of a statement that are shown.
const WIDTH_MAX: usize = 300;

/// The snapshot: a line for each statement, numbered as those in `statements.sql`.
pub(super) fn lines(verdicts: &[Verdict]) -> String {
    verdicts.iter().zip(1..).fold(String::new(), |mut text, (verdict, number)| {
        let _ = writeln!(text, "{number:4} {verdict}");
        text
    })
}

/// What is in one snapshot and not in the other, with the statements.
pub(super) fn differences(before: &str, now: &str, statements: &[String]) -> String {
    let (mut before, mut now) = (before.lines(), now.lines());
    let mut text = String::new();
    let mut count = 0;
    for statement in statements.iter().map(Some).chain([None]) {
        let (was, is) = (before.next().unwrap_or("nothing"), now.next().unwrap_or("nothing"));
        if was != is {
            count += 1;
            if count <= SHOWN_MAX {
                let statement: String = statement.map_or("", String::as_str).chars().take(WIDTH_MAX).collect();
                let _ = writeln!(text, "  {statement}\n    was {was}\n    is  {is}");
            }
        }
    }
    if count > SHOWN_MAX {
        let _ = writeln!(text, "  and {} more", count - SHOWN_MAX);
    }
    text
}

/// Each statement with its verdict.
pub(super) fn listed(source: Source, verdicts: &[Verdict], statements: &[String]) -> String {
    let mut text = format!("---- {}/{}\n", source.family, source.name);
    for ((verdict, statement), number) in verdicts.iter().zip(statements).zip(1..) {
        let _ = writeln!(text, "{number:4} {verdict}\n     {statement}");
    }
    text
}

/// Statements of one source by their verdicts.
#[derive(Debug, Default)]
struct Figures {
    statements: usize,
    aside: usize,
    cached: BTreeMap<Tags, usize>,
}

/// All figures.
#[derive(Debug, Default)]
pub(super) struct Table {
    sources: Vec<(String, Figures)>,
    refused: BTreeMap<String, usize>,
    aside: BTreeMap<&'static str, usize>,
}

impl Table {
    /// Counts those of one source.
    pub(super) fn add(&mut self, source: Source, verdicts: &[Verdict]) {
        for name in [format!("{}/{}", source.family, source.name), format!("{} in all", source.family)] {
            let at = self.sources.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                self.sources.push((name, Figures::default()));
                self.sources.len() - 1
            });
            if let Some((_, figures)) = self.sources.get_mut(at) {
                for verdict in verdicts {
                    figures.count(verdict);
                }
            }
        }
        for verdict in verdicts {
            match verdict {
                Verdict::Refused(reason) => *self.refused.entry(reason.clone()).or_default() += 1,
                Verdict::Aside(what) | Verdict::Doubtful(what, _) => *self.aside.entry(what).or_default() += 1,
                Verdict::Cached(..) => {}
            }
        }
    }
}

impl Figures {
    fn count(&mut self, verdict: &Verdict) {
        self.statements += 1;
        match verdict {
            Verdict::Cached(tags, _) => *self.cached.entry(*tags).or_default() += 1,
            Verdict::Aside(_) | Verdict::Doubtful(..) => self.aside += 1,
            Verdict::Refused(_) => {}
        }
    }

    fn of(&self, tags: Tags) -> usize {
        self.cached.get(&tags).copied().unwrap_or_default()
    }
}

fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:24}{:>6}{:>7}{:>7}{:>9}   of which", "", "state-", "set", "deter-", "cached")?;
        writeln!(
            f,
            "{:24}{:>6}{:>7}{:>7}{:>9}{:>7}{:>7}{:>7}{:>7}{:>7}{:>9}{:>9}",
            "", "ments", "aside", "min.", "", "point", "range", "keys", "enters", "whole", "any row", "better"
        )?;
        let (totals, single): (Vec<_>, Vec<_>) = self.sources.iter().partition(|(name, _)| !name.contains('/'));
        for (name, figures) in single.into_iter().chain(totals) {
            let deterministic = figures.statements - figures.aside;
            let [point, range, keys, enters, whole, any] =
                [Tags::Point, Tags::Range, Tags::Keys, Tags::Entering, Tags::Whole, Tags::AnyRow]
                    .map(|tags| figures.of(tags));
            let cached = percent(point + range + keys + enters + whole + any, deterministic);
            let better = percent(point + range + keys + enters, deterministic - whole);
            writeln!(
                f,
                "{name:24}{:>6}{:>7}{deterministic:>7}{cached:>9}{point:>7}{range:>7}{keys:>7}{enters:>7}{whole:>7}{any:>9}{better:>9}",
                figures.statements, figures.aside
            )?;
        }
        writeln!(
            f,
            "better: with better tags than any row, of the deterministic ones that do not ask for all rows of their tables"
        )?;
        let mut reasons: Vec<(&String, &usize)> = self.refused.iter().collect();
        reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), (*reason).clone()));
        writeln!(f, "\nrefused:")?;
        reasons.iter().try_for_each(|(reason, count)| writeln!(f, "{count:6} {reason}"))?;
        writeln!(f, "\nset aside:")?;
        self.aside.iter().try_for_each(|(what, count)| writeln!(f, "{count:6} {what}"))
    }
}
