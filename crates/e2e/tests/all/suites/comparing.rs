//! Statements of other projects' files: how often each is sent, and the answers that must be equal.

use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::support::Metrics;

/// No file is begun after this.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often a read is sent. The first answers may be those of a session that does not know a new table yet.
const TIMES: usize = 4;
/// Reads in a row that are repeated together.
const ROW_MAX: usize = 20;
/// Differences of one file that are shown.
const SHOWN_MAX: usize = 5;

/// Statements that follow each other, and how often they are sent.
pub(super) struct Row<'a> {
    pub(super) statements: &'a [String],
    pub(super) times: usize,
}

/// The statements in their order; reads that follow each other are one row.
pub(super) fn rows(statements: &[String]) -> impl Iterator<Item = Row<'_>> {
    let rows = statements.chunk_by(|one, next| reads(one) && reads(next)).flat_map(|row| row.chunks(ROW_MAX));
    rows.map(|row| Row { statements: row, times: if row.iter().all(|sql| reads(sql)) { TIMES } else { 1 } })
}

/// Whether a statement only reads, as far as its first word tells.
fn reads(sql: &str) -> bool {
    let comment = |line: &str| line.trim().is_empty() || line.starts_with("--") || line.starts_with('#');
    let code = sql.lines().find(|line| !comment(line)).unwrap_or_default();
    let word: String =
        code.trim_start_matches([' ', '\t', '(']).chars().take_while(char::is_ascii_alphabetic).collect();
    ["select", "with", "values", "table"].contains(&word.to_lowercase().as_str())
}

/// Statements as they were sent, and what came for each, up to the one that ended the connection.
pub(super) type Answers<'a, M> = Vec<(&'a str, Vec<M>)>;

/// What was seen of files.
#[derive(Default)]
pub(super) struct Outcome {
    answers: usize,
    /// Answers that are the same on both direct servers.
    compared: usize,
    pub(super) hits: u64,
    /// Reasons for which statements passed.
    passed: Vec<String>,
    differences: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answers, compared, hits, passed, .. } = self;
        write!(f, "{answers} answers, {compared} compared, {hits} hits; {}", passed.join(", "))
    }
}

impl Outcome {
    /// Runs files; fails if an answer differs.
    pub(super) fn of_files<F: fmt::Display>(
        files: impl IntoIterator<Item = F>,
        run: impl Fn(&F) -> Result<Self>,
    ) -> Result<Self> {
        let (begun, mut all) = (Instant::now(), Self::default());
        for file in files {
            if begun.elapsed() > PATIENCE {
                eprintln!("no time for {file} and what comes behind it");
                break;
            }
            let outcome = run(&file)?;
            eprintln!("{file}, {} s since the start: {outcome}", begun.elapsed().as_secs());
            all.answers += outcome.answers;
            all.compared += outcome.compared;
            all.hits += outcome.hits;
            all.differences.extend(outcome.differences);
        }
        eprintln!("all: {all}");
        ensure!(all.differences.is_empty(), "answers differ:\n{}", all.differences.join("\n"));
        Ok(all)
    }

    /// Compares the answers of two direct servers and of one through Freshet.
    pub(super) fn of<M: Debug + PartialEq>(file: &str, [direct, other, through]: [&Answers<'_, M>; 3]) -> Self {
        let mut outcome = Self { answers: direct.len(), ..Self::default() };
        for (at, answer) in direct.iter().enumerate() {
            if other.get(at) != Some(answer) {
                continue;
            }
            outcome.compared += 1;
            let (sql, direct) = answer;
            if through.get(at) != Some(answer) {
                let through = through.get(at).map(|(_, through)| through);
                outcome.differences.push(format!("{file}: {sql}\n direct:  {direct:?}\n through: {through:?}"));
            }
        }
        let more = outcome.differences.len().saturating_sub(SHOWN_MAX);
        outcome.differences.truncate(SHOWN_MAX);
        outcome.differences.extend((more > 0).then(|| format!("{file}: and {more} more")));
        outcome
    }

    /// With what Freshet counted meanwhile.
    pub(super) fn with(mut self, before: &Metrics, after: &Metrics) -> Self {
        self.hits = after.hits() - before.hits();
        self.passed = after.passed_since(before);
        self
    }
}

/// The same statement, with an ordinary table in the place of a temporary one, which is never cached.
pub(super) fn lasting(sql: &str) -> String {
    let lower = sql.to_ascii_lowercase();
    let begins = ["create temp table ", "create temporary table ", "create local temp table "];
    let found = begins.iter().find_map(|begin| lower.find(begin).map(|at| (at, begin.len())));
    match found.filter(|_| !lower.contains("on commit")) {
        Some((at, length)) => format!("{}create table {}", &sql[..at], &sql[at + length..]),
        None => sql.to_owned(),
    }
}
