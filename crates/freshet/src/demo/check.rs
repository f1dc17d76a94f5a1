//! Are the cached answers true? Two checks, for while rows change and for when they rest.
//!
//! While the writer runs, readers ask the cache for counted facts and judge each answer by the ledger, and each reader
//! also insists that it never goes back in time. Once the writer has rested for longer than an answer may be old, every
//! answer to every query must be, byte for byte, the database's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Row, SimpleQueryMessage};

use super::ledger::{Fact, Ledger, Movie, Verdict};
use super::load::{Page, Protocol, Session};
use super::random::Random;
use super::schema::{DETAILS, GENRES, QUERIES, RATING, UPDATED_BASE, literal};
use super::writer::Latest;

/// The longest that an answer may lag behind writes made around the cache: the default of `freshet serve`.
pub(super) const AGE_MAX: Duration = Duration::from_secs(1);

/// Between two reads of one reader: frequent enough to catch every write, rare enough not to be the load.
const PAUSE: Duration = Duration::from_millis(4);
const READERS: u64 = 2;
const COMPARERS: usize = 8;
const EXAMPLES_MAX: usize = 5;

/// Answers looked at and what was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checked {
    pub(super) answers: u64,
    pub(super) wrong: u64,
    /// The first few wrong ones, described.
    pub(super) examples: Vec<String>,
    /// How far the oldest right answer lagged behind the database.
    pub(super) oldest: Duration,
}

impl Checked {
    fn wrong(&mut self, description: String) {
        self.wrong += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(description);
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.answers += other.answers;
        self.wrong += other.wrong;
        self.oldest = self.oldest.max(other.oldest);
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }
}

/// Readers that judge answers until they are told to finish.
pub(super) struct Checkers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result<Checked>>>,
}

impl Checkers {
    pub(super) async fn start(cached_url: &str, ledger: &Arc<Ledger>, latest: &Latest) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..READERS {
            let session = Session::open(cached_url, Protocol::Prepared).await?;
            let reader = Reader {
                session,
                ledger: Arc::clone(ledger),
                latest: latest.clone(),
                random: Random::numbered(0x00C0_FFEE, number),
                seen: HashMap::new(),
                checked: Checked::default(),
            };
            tasks.push(tokio::spawn(reader.run(Arc::clone(&stop))));
        }
        Ok(Self { stop, tasks })
    }

    /// The sum of what the readers found; an error if one of them was not answered.
    pub(super) async fn finish(self) -> Result<Checked> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Checked::default();
        for task in self.tasks {
            sum.add(task.await.context("a checking reader")??);
        }
        Ok(sum)
    }
}

struct Reader {
    session: Session,
    ledger: Arc<Ledger>,
    latest: Latest,
    random: Random,
    /// The newest version this session has seen of each fact.
    seen: HashMap<(usize, Fact), usize>,
    checked: Checked,
}

impl Reader {
    async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Checked> {
        while !stop.load(Ordering::Relaxed) {
            // Half of the reads go for the title written last, where a stale answer is likeliest.
            let latest = self.random.below(2) == 0;
            let index = if latest { self.latest.movie() } else { self.random.below(self.ledger.movies.len()) };
            let fact = self.random.pick(&Fact::ALL);
            self.read(index, fact).await?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(self.checked)
    }

    async fn read(&mut self, index: usize, fact: Fact) -> Result<()> {
        let ledger = Arc::clone(&self.ledger);
        let movie = ledger.movies.get(index).context("no such movie")?;
        let text = self.random.below(4) == 0 && fact != Fact::Updated;
        let sent = Instant::now();
        let shown = if text { self.ask_in_text(movie, fact).await? } else { self.ask(movie, fact).await? };
        self.checked.answers += 1;
        let name = format!("{fact:?} of {:?}", movie.title);
        match shown {
            Err(torn) => self.checked.wrong(format!("{name}: {torn:#}")),
            Ok(version) => {
                let before = self.seen.insert((index, fact), version).unwrap_or(0);
                match movie.judge(fact, version, sent, AGE_MAX) {
                    Verdict::Right(_) if version < before => {
                        self.checked.wrong(format!("{name}: version {version} after {before} in the same session"));
                    }
                    Verdict::Right(age) => self.checked.oldest = self.checked.oldest.max(age),
                    Verdict::NeverWritten => self.checked.wrong(format!("{name}: version {version} was never written")),
                    Verdict::TooOld(age) => {
                        self.checked.wrong(format!("{name}: version {version} was overwritten {age:?} before"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The outer error: no answer. The inner one: an answer that no state of the database ever was.
    async fn ask(&self, movie: &Movie, fact: Fact) -> Result<Result<usize>> {
        let statement = self.session.statements.get(query_of(fact)).context("a prepared statement")?;
        let rows = self.session.client.query(statement, &[&movie.title]).await.context("a checking read")?;
        Ok(match fact {
            Fact::Votes => one_version(movie, rows.iter().map(|row| movie.votes_version(row.try_get(2)?))),
            Fact::Updated => one_version(movie, rows.iter().map(updated_version)),
            Fact::Genres => rows
                .iter()
                .map(|row| Ok(row.try_get::<_, String>(0)?))
                .collect::<Result<Vec<_>>>()
                .and_then(|genres| genres_version(movie, &genres)),
        })
    }

    async fn ask_in_text(&self, movie: &Movie, fact: Fact) -> Result<Result<usize>> {
        let text = literal(QUERIES[query_of(fact)], &movie.title);
        let column = if fact == Fact::Votes { 2 } else { 0 };
        let mut values = Vec::new();
        for message in self.session.client.simple_query(&text).await.context("a checking read")? {
            if let SimpleQueryMessage::Row(row) = message {
                values.push(row.try_get(column)?.unwrap_or_default().to_owned());
            }
        }
        Ok(match fact {
            Fact::Genres => genres_version(movie, &values),
            _ => one_version(movie, values.iter().map(|votes| movie.votes_version(votes.parse()?))),
        })
    }
}

const fn query_of(fact: Fact) -> usize {
    match fact {
        Fact::Votes => RATING,
        Fact::Updated => DETAILS,
        Fact::Genres => GENRES,
    }
}

fn updated_version(row: &Row) -> Result<usize> {
    let seconds = row.try_get::<_, SystemTime>(9)?.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    Ok(usize::try_from(seconds.checked_sub(UPDATED_BASE).context("updated before the start")?)?)
}

/// The version that all rows of an answer show, one row for each movie of that title.
fn one_version(movie: &Movie, versions: impl Iterator<Item = Result<usize>>) -> Result<usize> {
    let versions: Vec<usize> = versions.collect::<Result<_>>()?;
    ensure!(versions.len() == movie.ids.len(), "{} rows instead of {}", versions.len(), movie.ids.len());
    let first = versions.first().copied().unwrap_or(0);
    ensure!(versions.iter().all(|version| *version == first), "rows of versions {versions:?} in one answer");
    Ok(first)
}

/// The number of genres added, which must be all up to that number, for each movie of that title.
fn genres_version(movie: &Movie, genres: &[String]) -> Result<usize> {
    let mut added: Vec<usize> =
        genres.iter().filter_map(|genre| genre.strip_prefix("Added ")).map(str::parse).collect::<Result<_, _>>()?;
    added.sort_unstable();
    let expected = added.iter().enumerate().all(|(place, number)| *number == place / movie.ids.len() + 1);
    ensure!(expected && added.len().is_multiple_of(movie.ids.len()), "genres {added:?} are not those of any version");
    Ok(added.len() / movie.ids.len())
}

/// Compares every answer to every query with the database's own, in both protocols. Nothing may be writing.
pub(super) async fn compare(direct_url: &str, cached_url: &str, pages: &Arc<[Page]>) -> Result<Checked> {
    let mut tasks = JoinSet::new();
    for part in 0..COMPARERS {
        tasks.spawn(compare_part(direct_url.to_owned(), cached_url.to_owned(), Arc::clone(pages), part));
    }
    let mut sum = Checked::default();
    while let Some(part) = tasks.join_next().await {
        sum.add(part.context("comparing answers")??);
    }
    Ok(sum)
}

async fn compare_part(direct_url: String, cached_url: String, pages: Arc<[Page]>, part: usize) -> Result<Checked> {
    let direct = Session::open(&direct_url, Protocol::Prepared).await?;
    let cached = Session::open(&cached_url, Protocol::Prepared).await?;
    let mut checked = Checked::default();
    for (number, page) in pages.iter().enumerate().skip(part).step_by(COMPARERS) {
        for query in 0..QUERIES.len() {
            // Every fourth page in text as well.
            for protocol in [Protocol::Prepared, Protocol::Text].into_iter().take(1 + usize::from(number % 4 == 0)) {
                let theirs = rows_of(&direct, page, query, protocol).await?;
                let ours = rows_of(&cached, page, query, protocol).await?;
                checked.answers += 1;
                if theirs != ours {
                    let (count, instead, kind) = (ours.len(), theirs.len(), protocol.name());
                    checked.wrong(format!(
                        "query {} of {:?} ({kind}): {count} rows that differ from the database's {instead}",
                        query + 1,
                        page.title
                    ));
                }
            }
        }
    }
    Ok(checked)
}

/// The rows of an answer as they came over the wire, sorted, since the queries ask for no order.
async fn rows_of(session: &Session, page: &Page, query: usize, protocol: Protocol) -> Result<Vec<Vec<Raw>>> {
    let mut rows = Vec::new();
    match protocol {
        Protocol::Prepared => {
            let statement = session.statements.get(query).context("a prepared statement")?;
            for row in session.client.query(statement, &[&page.title]).await? {
                rows.push((0..row.len()).map(|column| row.try_get(column)).collect::<Result<Vec<Raw>, _>>()?);
            }
        }
        Protocol::Text => {
            let text = page.texts.get(query).context("a text")?;
            for message in session.client.simple_query(text).await? {
                if let SimpleQueryMessage::Row(row) = message {
                    let raw = |column| Ok(Raw(row.try_get(column)?.map(|text| text.as_bytes().to_vec())));
                    rows.push((0..row.len()).map(raw).collect::<Result<_, tokio_postgres::Error>>()?);
                }
            }
        }
    }
    rows.sort_unstable();
    Ok(rows)
}

/// A value of any type, undecoded.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Raw(Option<Vec<u8>>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Some(raw.to_vec())))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
