//! `title-aggregates`: the queries of a page of statistics over the movies of title-5.
//!
//! A transaction is six aggregations, each with its own parameters. Two read a large part of a table, three join two or three tables over a year or a
//! genre, one reads the few rows of a popular title. Recent years are requested most. These results save the most work, and are the hardest to keep
//! valid: nearly every change of a row affects some of them. The background writer is title-5's.

use std::sync::Arc;

use indicatif::ProgressBar;

use super::OnOff;
use super::distribution::id;
use super::movies::{CATEGORIES, Catalogue, GENRE_NAMES};
use super::title5::{WRITES, Writer};
use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

/// `(name, text)`
const QUERIES: [(&str, &str); 6] = [
    (
        "ratings by genre",
        "SELECT g.genre, count(*) AS titles, avg(r.average_rating) AS rating, sum(r.num_votes) AS votes FROM title t \
         JOIN title_genre g ON g.title_id = t.title_id JOIN title_rating r ON r.title_id = t.title_id \
         WHERE t.start_year = $1 AND t.type = $2 GROUP BY g.genre ORDER BY g.genre",
    ),
    (
        "titles by decade",
        "SELECT t.start_year - t.start_year % 10 AS decade, count(*) AS titles, avg(t.run_time_mins) AS minutes \
         FROM title t WHERE t.type = $1 AND t.start_year IS NOT NULL GROUP BY decade ORDER BY decade",
    ),
    (
        "busiest people",
        "SELECT n.name_id, n.name, count(*) AS titles FROM title_principal p JOIN title t ON t.title_id = p.title_id \
         JOIN name n ON n.name_id = p.name_id WHERE p.category = $1 AND t.start_year = $2 GROUP BY n.name_id, n.name \
         ORDER BY titles DESC, n.name_id LIMIT 10",
    ),
    (
        "ratings by type",
        "SELECT t.type, count(*) AS titles, avg(r.average_rating) AS rating FROM title t \
         JOIN title_rating r ON r.title_id = t.title_id WHERE t.start_year BETWEEN $1 AND $2 \
         GROUP BY t.type HAVING count(*) >= $3 ORDER BY t.type",
    ),
    (
        "a genre by year",
        "SELECT t.start_year, count(*) AS titles, max(r.num_votes) AS votes FROM title_genre g \
         JOIN title t ON t.title_id = g.title_id JOIN title_rating r ON r.title_id = t.title_id \
         WHERE g.genre = $1 AND t.start_year >= $2 GROUP BY t.start_year ORDER BY t.start_year",
    ),
    (
        "namesakes",
        "SELECT count(*) AS titles, count(DISTINCT t.type) AS types, min(t.start_year) AS first_year, \
         max(t.start_year) AS last_year, sum(r.num_votes) AS votes FROM title t \
         LEFT JOIN title_rating r ON r.title_id = t.title_id WHERE t.title = $1",
    ),
];

const TYPES: [&str; 4] = ["movie", "tvEpisode", "short", "tvSeries"];
/// The newest year, and the number of requested years.
const YEAR: i64 = 2025;
const YEARS: usize = 100;
/// Years in a range, and the least number of titles of a type in it.
const RANGE: i64 = 10;
const AT_LEAST: i64 = 10;

/// The workload.
#[derive(Debug)]
pub(super) struct TitleAggregates {
    movies: Catalogue,
    transactions: bool,
    statements: Arc<[Statement]>,
}

impl TitleAggregates {
    pub(super) fn new(movies: Catalogue, transactions: bool) -> Self {
        let reads = QUERIES.iter().map(|(name, text)| Statement::read(name, text).ordered());
        let writes = WRITES.iter().map(|(name, text)| Statement::write(name, text));
        Self { movies, transactions, statements: reads.chain(writes).collect() }
    }
}

impl Workload for TitleAggregates {
    fn name(&self) -> &'static str {
        "title-aggregates"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = self.movies.settings();
        settings.push(("transactions".to_owned(), OnOff::text(self.transactions).to_owned()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, random: Random) -> Script {
        Script::TitleAggregates(Reader { titles: self.movies.titles(), transactions: self.transactions, random })
    }

    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::Title5Writer(Writer::new(self.movies.ids(), QUERIES.len(), random)))
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let query = random.below(QUERIES.len());
        (query, values(query, &self.movies.titles(), random))
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(self.movies.load(target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(self.movies.ready(self.name(), database))
    }
}

/// Draws the parameters of the query with this index.
fn values(query: usize, titles: &[Arc<str>], random: &mut Random) -> Vec<Value> {
    let year = |random: &mut Random| YEAR + 1 - id(random.skewed(YEARS));
    match query {
        0 => vec![Value::Int(year(random)), Value::from(random.pick(&TYPES))],
        1 => vec![Value::from(random.pick(&TYPES))],
        2 => vec![Value::from(random.pick(&CATEGORIES)), Value::Int(year(random))],
        3 => {
            let last = year(random);
            vec![Value::Int(last - RANGE + 1), Value::Int(last), Value::Int(AT_LEAST)]
        }
        4 => vec![Value::from(random.pick(&GENRE_NAMES)), Value::Int(year(random))],
        _ => vec![Value::Text(Arc::clone(&titles[random.below(titles.len())]))],
    }
}

/// The script of one connection.
#[derive(Debug)]
pub struct Reader {
    titles: Arc<[Arc<str>]>,
    transactions: bool,
    random: Random,
}

impl Reader {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        if self.transactions {
            session.begin().await?;
        }
        for query in 0..QUERIES.len() {
            let values = values(query, &self.titles, &mut self.random);
            session.run(query, &values).await?;
        }
        if self.transactions {
            session.commit().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Family;

    #[test]
    fn each_query_gets_the_parameters_that_it_has() {
        let (titles, mut random): ([Arc<str>; 1], _) = (["A".into()], Random::new(1));
        for (query, (name, text)) in QUERIES.iter().enumerate() {
            let wanted = Statement::read(name, text).mentions().max().map_or(0, |last| last + 1);
            for _ in 0..100 {
                assert_eq!(values(query, &titles, &mut random).len(), wanted, "{name}");
            }
            assert!(Statement::read(name, text).prepared_text(Family::Postgres).starts_with("SELECT"));
        }
    }

    #[test]
    fn recent_years_are_asked_for_most() {
        let mut random = Random::new(2);
        let recent = |values: Vec<Value>| matches!(values[1], Value::Int(year) if year > 2015);
        let recent = (0..10_000).filter(|_| recent(values(2, &[], &mut random))).count();
        assert!((5500..7000).contains(&recent), "{recent}");
    }
}
