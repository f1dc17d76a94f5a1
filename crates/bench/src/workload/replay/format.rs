//! The forms of query logs.

use anyhow::{Result, bail, ensure};

use super::log::{Log, Logged, Micros, SECOND, date};
use super::{general, postgres, slow};

/// The form of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// PostgreSQL, `log_destination = stderr`
    Postgres,
    /// PostgreSQL, `log_destination = csvlog`
    Csv,
    /// MySQL's and MariaDB's general log
    General,
    /// MySQL's and MariaDB's slow log (with `long_query_time = 0` it has all statements)
    Slow,
}

impl LogFormat {
    /// Recognises the form by the beginning of the text.
    fn of(text: &str) -> Result<Self> {
        let head = || text.lines().take(200);
        if head().any(|line| line.starts_with("# User@Host:") || line.starts_with("# Query_time:")) {
            return Ok(Self::Slow);
        }
        if head().any(|line| general::entry(line).is_some()) {
            return Ok(Self::General);
        }
        let dated = |line: &str| date(line).is_some();
        if head().any(|line| dated(line) && line.split(',').count() > 20) {
            return Ok(Self::Csv);
        }
        ensure!(head().any(postgres::is_line), "the form of the log was not recognised; set it with --log-format");
        Ok(Self::Postgres)
    }
}

/// Parses the whole log. `prefix` is PostgreSQL's `log_line_prefix`.
pub(super) fn parse(text: &str, format: Option<LogFormat>, prefix: &str) -> Result<Log> {
    let format = format.map_or_else(|| LogFormat::of(text), Ok)?;
    let mut log = match format {
        LogFormat::Postgres => postgres::stderr(text, prefix)?,
        LogFormat::Csv => postgres::csv(text)?,
        LogFormat::General => general::parse(text),
        LogFormat::Slow => slow::parse(text),
    };
    if log.statements.is_empty() {
        bail!("the log holds no statement that can be sent again; left out: {:?}", log.left_out);
    }
    log.coarse = log.statements.iter().all(|statement| statement.at % SECOND == 0);
    if log.coarse {
        spread(&mut log.statements);
    }
    Ok(log)
}

/// Spreads the statements of each second evenly over it, in their order.
fn spread(statements: &mut [Logged]) {
    let mut first = 0;
    while let Some(second) = statements.get(first).map(|statement| statement.at) {
        let count = statements[first..].iter().take_while(|statement| statement.at == second).count();
        for (place, statement) in statements[first..first + count].iter_mut().enumerate() {
            let share = |number: usize| Micros::try_from(number).unwrap_or(SECOND);
            statement.at += SECOND * share(place) / share(count);
        }
        first += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_a_second_are_spread_over_it() {
        let statement = |at| Logged { at: at * SECOND, session: String::new(), text: "x".into(), values: None };
        let mut all = [5, 5, 5, 5, 6, 9, 9].map(statement);
        spread(&mut all);
        assert_eq!(all.map(|one| one.at / 1_000), [5_000, 5_250, 5_500, 5_750, 6_000, 9_000, 9_500]);
    }
}
