//! Two checks of the cached answers: while rows change, and while they do not.
//!
//! While the writer runs, readers query the cache for the counters and check each answer with the ledger. Each session of a reader also checks that
//! its answers never go back in time. Once the writer has paused for longer than the allowed age, every answer to every query must be the database's
//! own, byte for byte.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::{JoinHandle, JoinSet};

use super::ledger::{Fact, Ledger, Movie, Verdict};
use super::load::name;
use super::session::{Session, text};
use super::writer::Latest;
use crate::driver::{Protocol, Row};
use crate::random::Random;
use crate::value::Value;
use crate::workload::movies::{DETAILS, GENRES, QUERIES, RATING};

/// The largest lag of an answer behind writes that bypass the cache: the default of `freshet serve`.
pub(super) const AGE_MAX: Duration = Duration::from_secs(1);

/// Pause between two reads of a reader. It is short enough to catch every write, and long enough not to be a load.
const PAUSE: Duration = Duration::from_millis(4);
const READERS: u64 = 2;
const COMPARERS: usize = 8;
const EXAMPLES_MAX: usize = 5;

/// Number of checked answers, and the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checked {
    pub(super) answers: u64,
    pub(super) wrong: u64,
    /// Descriptions of the first wrong answers.
    pub(super) examples: Vec<String>,
    /// The largest lag of a right answer behind the database.
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

/// Readers that check answers until `finish` is called.
pub(super) struct Checkers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result<Checked>>>,
}

impl Checkers {
    pub(super) async fn start(cached_url: &str, ledger: &Arc<Ledger>, latest: &Latest) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..READERS {
            let reader = Reader {
                prepared: Session::open(cached_url, Protocol::Prepared).await?,
                text: Session::open(cached_url, Protocol::Text).await?,
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

    /// The sum of all readers' results. It is an error if a read of one of them failed.
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
    prepared: Session,
    text: Session,
    ledger: Arc<Ledger>,
    latest: Latest,
    random: Random,
    /// The newest version of each fact that each session has seen. The two sessions may differ by the lag of the stream.
    seen: HashMap<(Protocol, usize, Fact), usize>,
    checked: Checked,
}

impl Reader {
    async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Checked> {
        while !stop.load(Ordering::Relaxed) {
            // Half of the reads use the title written last, where an outdated answer is most likely.
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
        let protocol = if self.random.below(4) == 0 { Protocol::Text } else { Protocol::Prepared };
        let session = if protocol == Protocol::Text { &mut self.text } else { &mut self.prepared };
        let sent = Instant::now();
        let rows =
            session.rows(query_of(fact), &[Value::from(movie.title.as_str())]).await.context("a checking read")?;
        let shown = version_shown(movie, fact, &rows);
        self.checked.answers += 1;
        let name = format!("{fact:?} of {:?}", movie.title);
        match shown {
            Err(torn) => self.checked.wrong(format!("{name}: {torn:#}")),
            Ok(version) => {
                let before = self.seen.insert((protocol, index, fact), version).unwrap_or(0);
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
}

const fn query_of(fact: Fact) -> usize {
    match fact {
        Fact::Votes => RATING,
        Fact::Updated => DETAILS,
        Fact::Genres => GENRES,
    }
}

/// The version that an answer shows. It is an error if the database never had this state.
fn version_shown(movie: &Movie, fact: Fact, rows: &[Row]) -> Result<usize> {
    match fact {
        Fact::Votes => one_version(movie, rows.iter().map(|row| movie.votes_version(text(row, 2)?.parse()?))),
        Fact::Updated => one_version(movie, rows.iter().map(|row| updated_version(text(row, 9)?))),
        Fact::Genres => {
            let genres: Vec<&str> = rows.iter().map(|row| text(row, 0)).collect::<Result<_>>()?;
            genres_version(movie, &genres)
        }
    }
}

/// Seconds since the start of January 2026, the loaded time.
fn updated_version(text: &str) -> Result<usize> {
    let part = |range: std::ops::Range<usize>| text.get(range).and_then(|digits| digits.parse::<usize>().ok());
    let read = || Some((part(8..10)?.checked_sub(1)?, part(11..13)?, part(14..16)?, part(17..19)?));
    let (days, hours, minutes, seconds) =
        text.starts_with("2026-01-").then(read).flatten().with_context(|| format!("updated at {text}"))?;
    Ok(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// The version that all rows of an answer show. There is one row for each movie with the title.
fn one_version(movie: &Movie, versions: impl Iterator<Item = Result<usize>>) -> Result<usize> {
    let versions: Vec<usize> = versions.collect::<Result<_>>()?;
    ensure!(versions.len() == movie.ids.len(), "{} rows instead of {}", versions.len(), movie.ids.len());
    let first = versions.first().copied().unwrap_or(0);
    ensure!(versions.iter().all(|version| *version == first), "rows of versions {versions:?} in one answer");
    Ok(first)
}

/// The number of added genres. Each movie with the title must have all genres up to this number.
fn genres_version(movie: &Movie, genres: &[&str]) -> Result<usize> {
    let mut added: Vec<usize> =
        genres.iter().filter_map(|genre| genre.strip_prefix("Added ")).map(str::parse).collect::<Result<_, _>>()?;
    added.sort_unstable();
    let expected = added.iter().enumerate().all(|(place, number)| *number == place / movie.ids.len() + 1);
    ensure!(expected && added.len().is_multiple_of(movie.ids.len()), "genres {added:?} are not those of any version");
    Ok(added.len() / movie.ids.len())
}

/// Compares every answer to every query with the database's own, in both protocols. No writes may run.
pub(super) async fn compare(direct_url: &str, cached_url: &str, titles: &Arc<[String]>) -> Result<Checked> {
    let mut tasks = JoinSet::new();
    for part in 0..COMPARERS {
        tasks.spawn(compare_part(direct_url.to_owned(), cached_url.to_owned(), Arc::clone(titles), part));
    }
    let mut sum = Checked::default();
    while let Some(part) = tasks.join_next().await {
        sum.add(part.context("comparing answers")??);
    }
    Ok(sum)
}

async fn compare_part(direct_url: String, cached_url: String, titles: Arc<[String]>, part: usize) -> Result<Checked> {
    let mut checked = Checked::default();
    for protocol in [Protocol::Prepared, Protocol::Text] {
        let mut direct = Session::open(&direct_url, protocol).await?;
        let mut cached = Session::open(&cached_url, protocol).await?;
        for (number, title) in titles.iter().enumerate().skip(part).step_by(COMPARERS) {
            // In the text protocol, every fourth title is enough.
            if protocol == Protocol::Text && number % 4 != 0 {
                continue;
            }
            for query in 0..QUERIES.len() {
                let theirs = rows_of(&mut direct, title, query).await?;
                let ours = rows_of(&mut cached, title, query).await?;
                checked.answers += 1;
                if theirs != ours {
                    let (query, kind, count, instead) = (query + 1, name(protocol), ours.len(), theirs.len());
                    checked.wrong(format!(
                        "query {query} of {title:?} ({kind}): {count} rows that differ from the database's {instead}"
                    ));
                }
            }
        }
    }
    Ok(checked)
}

/// The rows of an answer as bytes of the protocol. They are sorted, since the queries have no ORDER BY.
async fn rows_of(session: &mut Session, title: &str, query: usize) -> Result<Vec<Row>> {
    let mut rows = session.rows(query, &[Value::from(title)]).await?;
    rows.sort_unstable();
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_for_versions() {
        assert_eq!(updated_version("2026-01-01 00:00:00").unwrap(), 0);
        assert_eq!(updated_version("2026-01-02 01:02:03+00").unwrap(), 86_400 + 3723);
        assert!(updated_version("2025-01-01 00:00:00").is_err());
        assert!(updated_version("2026-01-").is_err());
    }
}
