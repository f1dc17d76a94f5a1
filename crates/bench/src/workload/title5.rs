//! `title-5`: the queries of a movie page, as five prepared SELECTs by the movie's title.
//!
//! Titles are drawn uniformly from the 969 popular ones, so a cache with 969 × 5 results serves every read. There is no BEGIN by default. The
//! background writer makes one change per transaction, in a fixed mix:
//!
//! | of 4 | statement | shown by |
//! |---|---|---|
//! | 2 | `UPDATE title_rating` adds a vote | `rating` |
//! | 1 | `UPDATE title` sets `updated` | `details` |
//! | 1 | `INSERT INTO title_genre`, and next time its `DELETE` | `genres` |
//!
//! Half of the changes are to movies that the load requests, and change its results. The other half is to other titles and changes no result. A cache
//! that invalidates too much also loses results with these.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;

use super::OnOff;
use super::movies::{Catalogue, NAMES, QUERIES};
use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

/// `(name, text)` of the background writer's statements. They follow the queries.
pub(super) const WRITES: [(&str, &str); 4] = [
    ("add a vote", "UPDATE title_rating SET num_votes = num_votes + 1 WHERE title_id = $1"),
    ("update a title", "UPDATE title SET updated = CURRENT_TIMESTAMP WHERE title_id = $1"),
    ("add a genre", "INSERT INTO title_genre (title_id, genre) VALUES ($1, $2)"),
    ("remove a genre", "DELETE FROM title_genre WHERE title_id = $1 AND genre = $2"),
];
const ADD_VOTE: usize = 0;
const UPDATE_TITLE: usize = 1;
const ADD_GENRE: usize = 2;
const REMOVE_GENRE: usize = 3;

/// The workload.
#[derive(Debug)]
pub(super) struct Title5 {
    movies: Catalogue,
    transactions: bool,
    statements: Arc<[Statement]>,
}

impl Title5 {
    pub(super) fn new(movies: Catalogue, transactions: bool) -> Self {
        let reads = NAMES.iter().zip(QUERIES).map(|(name, text)| Statement::read(name, text));
        let writes = WRITES.iter().map(|(name, text)| Statement::write(name, text));
        Self { movies, transactions, statements: reads.chain(writes).collect() }
    }
}

impl Workload for Title5 {
    fn name(&self) -> &'static str {
        "title-5"
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
        Script::Title5(Reader { titles: self.movies.titles(), transactions: self.transactions, random })
    }

    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::Title5Writer(Writer::new(self.movies.ids(), QUERIES.len(), random)))
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let titles = self.movies.titles();
        let title = &titles[random.below(titles.len())];
        (random.below(QUERIES.len()), vec![Value::Text(Arc::clone(title))])
    }

    /// Nothing changes the results about characters and people, and an added genre would stay in the table.
    fn write_affecting(&self, statement: usize, values: &[Value], _random: &mut Random) -> Option<(usize, Vec<Value>)> {
        let update = match *NAMES.get(statement)? {
            "details" => UPDATE_TITLE,
            "rating" => ADD_VOTE,
            _ => return None,
        };
        let Some(Value::Text(title)) = values.first() else { return None };
        Some((update, vec![Value::Int(self.movies.movie_id(title)?)]))
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(self.movies.load(target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(self.movies.ready(self.name(), database))
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
        let values = [Value::Text(Arc::clone(&self.titles[self.random.below(self.titles.len())]))];
        if self.transactions {
            session.begin().await?;
        }
        for query in 0..QUERIES.len() {
            session.run(query, &values).await?;
        }
        if self.transactions {
            session.commit().await?;
        }
        Ok(())
    }
}

/// The script of the background writer.
#[derive(Debug)]
pub struct Writer {
    ids: Arc<[Vec<i64>; 2]>,
    /// Index of the first of [`WRITES`] among the workload's statements.
    first: usize,
    random: Random,
    turn: u64,
    /// The genre that was added and will be removed next.
    added: Option<[Value; 2]>,
}

impl Writer {
    pub(super) fn new(ids: Arc<[Vec<i64>; 2]>, first: usize, random: Random) -> Self {
        Self { ids, first, random, turn: 0, added: None }
    }

    /// A random key of a popular movie or of another title.
    fn title(&mut self) -> Value {
        let [popular, others] = &*self.ids;
        let ids = if others.is_empty() || self.random.below(2) == 0 { popular } else { others };
        Value::Int(ids[self.random.below(ids.len())])
    }

    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let turn = self.turn % 4;
        self.turn += 1;
        match turn {
            0 | 2 => session.run(self.first + ADD_VOTE, &[self.title()]).await?,
            1 => session.run(self.first + UPDATE_TITLE, &[self.title()]).await?,
            _ => self.genre(session).await?,
        };
        Ok(())
    }

    async fn genre(&mut self, session: &mut Session) -> Result<u64, Failure> {
        if let Some(added) = self.added.take() {
            return session.run(self.first + REMOVE_GENRE, &added).await;
        }
        let genre = new_genre();
        let added = [self.title(), Value::from(genre)];
        let count = session.run(self.first + ADD_GENRE, &added).await?;
        self.added = Some(added);
        Ok(count)
    }
}

/// A name that no other writer and no other run adds. An interrupted run leaves its row behind.
fn new_genre() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    format!("Added {now:x}.{:x}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
