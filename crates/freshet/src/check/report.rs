//! The findings, as text that an administrator can read and paste.
//!
//! Every line below a finding is SQL or an SQL comment, so that the block can be run unchanged. A task outside SQL is
//! a comment. The lines are indented, except the continued lines of a statement. A separate option prints each long
//! text alone.

use std::fmt;

/// Follows a setting that takes effect at the next start only.
pub(crate) const THEN_RESTART: &str = "-- then restart the server";
/// Precedes statements that may wait for a lock, while others would wait behind them.
pub(crate) const LOCK_TIMEOUT: &str = "SET lock_timeout = '2s'; -- if it gives up, run it again";

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// As it should be.
    Ok,
    /// A hint; nothing is missing.
    Hint,
    /// All guarantees hold, at a cost.
    Warning,
    /// A guarantee does not hold, or something is not cached that could be.
    Problem,
}

impl Mark {
    const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One finding.
#[derive(Clone, Debug)]
struct Finding {
    mark: Mark,
    /// The finding, and what it means for caching.
    text: String,
    /// The statements that mend it.
    mend: Vec<String>,
}

/// All findings, in the order of the checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn ok(&mut self, text: impl Into<String>) {
        self.add(Mark::Ok, text, Vec::new());
    }

    pub(crate) fn hint(&mut self, text: impl Into<String>, mend: Vec<String>) {
        self.add(Mark::Hint, text, mend);
    }

    pub(crate) fn warning(&mut self, text: impl Into<String>, mend: Vec<String>) {
        self.add(Mark::Warning, text, mend);
    }

    pub(crate) fn problem(&mut self, text: impl Into<String>, mend: Vec<String>) {
        self.add(Mark::Problem, text, mend);
    }

    fn add(&mut self, mark: Mark, text: impl Into<String>, mend: Vec<String>) {
        self.findings.push(Finding { mark, text: text.into(), mend });
    }

    /// Whether every guarantee holds.
    pub(crate) fn is_good(&self) -> bool {
        self.count(Mark::Problem) == 0
    }

    /// The statements that mend the problems.
    pub(crate) fn mends(&self) -> impl Iterator<Item = &str> {
        let problems = self.findings.iter().filter(|finding| finding.mark == Mark::Problem);
        problems.flat_map(|finding| finding.mend.iter().map(String::as_str))
    }

    fn count(&self, mark: Mark) -> usize {
        self.findings.iter().filter(|finding| finding.mark == mark).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            // Names may contain any character, but a finding is one line.
            let text = finding.text.replace(char::is_control, "?");
            writeln!(f, "{:<8} {text}", finding.mark.label())?;
            for statement in &finding.mend {
                let indent = if statement.contains('\n') { "" } else { "         " };
                writeln!(f, "{indent}{statement}")?;
            }
        }
        let count = |mark: Mark, word: &str| {
            let n = self.count(mark);
            format!("{n} {word}{}", if n == 1 { "" } else { "s" })
        };
        let verdict = if self.is_good() { "every guarantee holds" } else { "not every guarantee holds" };
        writeln!(f, "\n{verdict}: {}, {}", count(Mark::Problem, "problem"), count(Mark::Warning, "warning"))
    }
}

/// `ALTER SYSTEM SET …`, which takes effect at the next start.
pub(crate) fn set_and_restart(setting: &str, value: impl fmt::Display) -> Vec<String> {
    vec![format!("ALTER SYSTEM SET {setting} = '{value}';"), THEN_RESTART.into()]
}

/// `ALTER SYSTEM SET …`, which takes effect at once.
pub(crate) fn set_and_reload(setting: &str, value: impl fmt::Display) -> Vec<String> {
    vec![format!("ALTER SYSTEM SET {setting} = '{value}';"), "SELECT pg_catalog.pg_reload_conf();".into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_can_be_read_and_pasted() {
        let mut report = Report::default();
        report.ok("PostgreSQL 18.1");
        report.problem("wal_level is replica", set_and_restart("wal_level", "logical"));
        report.warning("somebody writes", vec!["SELECT 1;".into(), "SELECT $$a\nb$$;".into()]);
        let expected = "ok       PostgreSQL 18.1\n\
            problem  wal_level is replica\n         ALTER SYSTEM SET wal_level = 'logical';\n         \
            -- then restart the server\nwarning  somebody writes\n         SELECT 1;\nSELECT $$a\nb$$;\n\n\
            not every guarantee holds: 1 problem, 1 warning\n";
        assert_eq!(report.to_string(), expected);
        assert!(!report.is_good());
    }
}
