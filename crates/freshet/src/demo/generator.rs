//! Fills the movie schema with made-up rows that are skewed like the real data set.
//!
//! What matters for a cache in front of it: a title is a poor key (about 28 rows carry each popular one, only one to
//! three of them of type `movie`, and they lie far apart in the table), rows fan out over joins (ten people per title),
//! and a few people are in very many titles. The rows depend on the seed and the number of movies alone.

use std::fmt::Write as _;
use std::io::Cursor;
use std::pin::Pin;

use anyhow::{Context, Result};
use futures_util::SinkExt as _;
use indicatif::ProgressBar;
use tokio_postgres::{Client, CopyInSink};

use super::connect;
use super::random::Random;
use super::schema::{KEYS, POPULAR, TABLES};

const ADJECTIVES: [&str; 32] = [
    "Silent",
    "Crimson",
    "Hidden",
    "Last",
    "Broken",
    "Golden",
    "Endless",
    "Frozen",
    "Secret",
    "Burning",
    "Distant",
    "Forgotten",
    "Savage",
    "Gentle",
    "Hollow",
    "Electric",
    "Midnight",
    "Lonely",
    "Velvet",
    "Restless",
    "Stolen",
    "Pale",
    "Wicked",
    "Falling",
    "Ancient",
    "Bitter",
    "Little",
    "Great",
    "Scarlet",
    "Wandering",
    "Perfect",
    "Invisible",
];
const NOUNS: [&str; 32] = [
    "River",
    "Garden",
    "Empire",
    "Stranger",
    "Harbour",
    "Mirror",
    "Winter",
    "Journey",
    "Kingdom",
    "Letter",
    "Shadow",
    "Summer",
    "Road",
    "House",
    "Promise",
    "Ocean",
    "Witness",
    "Dancer",
    "Island",
    "Machine",
    "Orchard",
    "Station",
    "Thief",
    "Daughter",
    "Mountain",
    "Circus",
    "Detective",
    "Bride",
    "Lighthouse",
    "Game",
    "Return",
    "Affair",
];
/// With apostrophes and letters outside ASCII, as titles have them.
const PLACES: [&str; 24] = [
    "",
    "of Paris",
    "of São Paulo",
    "at World's End",
    "of Kraków",
    "in Tōkyō",
    "of l'Été",
    "of Málaga",
    "of the North",
    "of Göteborg",
    "in O'Hara's Town",
    "of Marrakesh",
    "by Night",
    "in the Rain",
    "of Ölüdeniz",
    "of Kyïv",
    "of 1929",
    "of Żary",
    "of the Moon",
    "of Reykjavík",
    "in Berlin",
    "without End",
    "of Đà Nẵng",
    "of Trieste",
];
const FIRST_NAMES: [&str; 24] = [
    "Ada", "Bruno", "Clara", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Leo", "Mina",
    "Noor", "Oskar", "Paula", "Quentin", "Rosa", "Søren", "Tomás", "Uma", "Viktor", "Wanda", "Zoë",
];
const LAST_NAMES: [&str; 32] = [
    "Abel",
    "Berg",
    "Costa",
    "Duval",
    "Eriksen",
    "Fischer",
    "García",
    "Haddad",
    "Ito",
    "Jensen",
    "Kovač",
    "Lindqvist",
    "Moreau",
    "Novák",
    "O'Neill",
    "Petrov",
    "Quist",
    "Rossi",
    "Sato",
    "Tanaka",
    "Urban",
    "Vega",
    "Weiss",
    "Xu",
    "Yilmaz",
    "Zhang",
    "Baker",
    "Chandra",
    "Okafor",
    "Silva",
    "Müller",
    "Dubois",
];
const GENRES: [&str; 18] = [
    "Drama",
    "Comedy",
    "Documentary",
    "Romance",
    "Action",
    "Crime",
    "Thriller",
    "Horror",
    "Adventure",
    "Mystery",
    "Family",
    "Fantasy",
    "Sci-Fi",
    "Biography",
    "History",
    "Music",
    "War",
    "Western",
];
const CATEGORIES: [&str; 9] =
    ["actor", "actress", "director", "writer", "producer", "composer", "cinematographer", "editor", "self"];
/// What carries a movie's title without being one, by how often.
const OTHER_TYPES: [(&str, usize); 7] = [
    ("tvEpisode", 78),
    ("short", 9),
    ("tvSeries", 4),
    ("video", 4),
    ("tvMovie", 3),
    ("tvMiniSeries", 1),
    ("videoGame", 1),
];

const FLUSH_BYTES: usize = 256 * 1024;

/// How much of it, and which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Distinct movie titles, of which the first [`POPULAR`] are the ones asked for.
    pub(super) movies: usize,
    pub(super) seed: u64,
}

impl Size {
    /// The titles that the load asks for.
    pub(super) fn popular_titles(self) -> Vec<String> {
        (0..self.movies.min(POPULAR)).map(title_text).collect()
    }
}

/// The text of the n-th title; distinct for distinct n.
fn title_text(number: usize) -> String {
    const DISTINCT: usize = ADJECTIVES.len() * NOUNS.len() * PLACES.len();
    // A prime step visits every combination once and mixes the lists even among the first few titles.
    let mixed = (number % DISTINCT) * 7919 % DISTINCT;
    let (adjective, noun) = (ADJECTIVES[mixed % 32], NOUNS[mixed / 32 % 32]);
    let place = PLACES[mixed / 1024];
    let part = number / DISTINCT;
    let mut text = format!("The {adjective} {noun} {place}").trim_end().to_owned();
    if part > 0 {
        let _ = write!(text, " {}", part + 1);
    }
    text
}

/// One row of `title` before it has its key.
#[derive(Clone, Copy)]
struct TitleRow {
    movie: u32,
    kind: &'static str,
}

/// All rows of `title`, in the order of their keys: those of one title lie far apart.
fn title_rows(size: Size) -> Vec<TitleRow> {
    let mut random = Random::new(size.seed);
    let mut rows = Vec::new();
    for number in 0..size.movies {
        let popular = number < POPULAR;
        let movies = if popular { 1 + random.below(3) } else { 1 };
        let others = if popular { 14 + random.below(25) } else { random.below(5) };
        let movie = u32::try_from(number).unwrap_or(u32::MAX);
        rows.extend(std::iter::repeat_n(TitleRow { movie, kind: "movie" }, movies));
        rows.extend((0..others).map(|_| TitleRow { movie, kind: other_type(&mut random) }));
    }
    for last in (1..rows.len()).rev() {
        rows.swap(last, random.below(last + 1));
    }
    rows
}

fn other_type(random: &mut Random) -> &'static str {
    let mut left = random.below(100);
    for (kind, share) in OTHER_TYPES {
        if left < share {
            return kind;
        }
        left -= share;
    }
    OTHER_TYPES[0].0
}

/// The text of one COPY, sent in pieces.
struct Feed {
    sink: Pin<Box<CopyInSink<Cursor<Vec<u8>>>>>,
    text: String,
    _client: Client,
}

impl Feed {
    async fn open(url: &str, table: &str) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute("SET synchronous_commit = off").await?;
        let sink =
            client.copy_in(&format!("COPY {table} FROM STDIN")).await.with_context(|| format!("COPY {table}"))?;
        Ok(Self { sink: Box::pin(sink), text: String::new(), _client: client })
    }

    async fn flush(&mut self, at_least: usize) -> Result<()> {
        if self.text.len() > at_least {
            self.sink.feed(Cursor::new(std::mem::take(&mut self.text).into_bytes())).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<u64> {
        self.flush(0).await?;
        Ok(self.sink.as_mut().finish().await?)
    }
}

/// Creates the tables, fills them, builds the keys and gathers statistics. Returns the number of rows.
pub(super) async fn load(url: &str, size: Size, bar: &ProgressBar) -> Result<u64> {
    connect(url).await?.batch_execute(TABLES).await.context("creating the tables")?;
    let rows = fill(url, size, bar).await.context("filling the tables")?;
    bar.set_message("building keys");
    let builders = KEYS.map(|statements| tokio::spawn(build_keys(url.to_owned(), statements)));
    for builder in builders {
        builder.await?.context("building keys")?;
    }
    Ok(rows)
}

async fn build_keys(url: String, statements: &'static str) -> Result<()> {
    let client = connect(&url).await?;
    client.batch_execute("SET maintenance_work_mem = '256MB'; SET synchronous_commit = off").await?;
    // One at a time: VACUUM refuses to be part of a batch.
    for statement in statements.split(';') {
        client.batch_execute(statement).await.with_context(|| statement.trim().to_owned())?;
    }
    Ok(())
}

async fn fill(url: &str, size: Size, bar: &ProgressBar) -> Result<u64> {
    let titles = title_rows(size);
    let names = (titles.len() * 6 / 10).max(1000);
    bar.set_length((titles.len() + names) as u64);
    let tables = ["title", "title_genre", "title_rating", "title_principal", "title_name_character", "name"];
    let mut feeds = Vec::with_capacity(tables.len());
    for table in tables {
        feeds.push(Feed::open(url, table).await?);
    }
    let Ok([mut title, mut genre, mut rating, mut principal, mut character, mut name]) = <[Feed; 6]>::try_from(feeds)
    else {
        anyhow::bail!("six tables, six feeds")
    };
    for (index, row) in titles.iter().enumerate() {
        let id = index + 1;
        let mut random = Random::numbered(size.seed, id as u64);
        write_title(&mut title.text, &mut random, id, *row)?;
        write_genres(&mut genre.text, &mut random, id)?;
        write_rating(&mut rating.text, &mut random, id, *row)?;
        write_people(&mut principal.text, &mut character.text, &mut random, (id, names))?;
        for feed in [&mut title, &mut genre, &mut rating, &mut principal, &mut character] {
            feed.flush(FLUSH_BYTES).await?;
        }
        bar.inc(1);
    }
    for id in 1..=names {
        write_name(&mut name.text, &mut Random::numbered(!size.seed, id as u64), id)?;
        name.flush(FLUSH_BYTES).await?;
        bar.inc(1);
    }
    let mut rows = 0;
    for feed in [title, genre, rating, principal, character, name] {
        rows += feed.finish().await?;
    }
    Ok(rows)
}

fn write_title(text: &mut String, random: &mut Random, id: usize, row: TitleRow) -> Result<()> {
    let title = title_text(row.movie as usize);
    let original = if random.below(8) == 0 { format!("{title} (original)") } else { title.clone() };
    let adult = if random.below(100) == 0 { 't' } else { 'f' };
    let year = 1920 + random.below(106);
    let end = if row.kind == "tvSeries" { (year + random.below(6)).to_string() } else { "\\N".to_owned() };
    let minutes = 20 + random.below(140);
    let kind = row.kind;
    writeln!(
        text,
        "{id}\ttt{id:07}\t{kind}\t{title}\t{original}\t{adult}\t{year}\t{end}\t{minutes}\t2026-01-01 00:00:00+00"
    )?;
    Ok(())
}

fn write_genres(text: &mut String, random: &mut Random, id: usize) -> Result<()> {
    let first = random.skewed(GENRES.len());
    for step in 0..=random.below(3) {
        writeln!(text, "{id}\t{}", GENRES[(first + step * 5) % GENRES.len()])?;
    }
    Ok(())
}

/// All movies of one popular title start with the same number of votes: the check counts the writes from there.
fn write_rating(text: &mut String, random: &mut Random, id: usize, row: TitleRow) -> Result<()> {
    let popular = (row.movie as usize) < POPULAR && row.kind == "movie";
    if !popular && random.below(10) < 4 {
        return Ok(());
    }
    let votes = if popular { 10_000 + (row.movie as usize * 7919) % 2_000_000 } else { 5 + random.skewed(50_000) };
    writeln!(text, "{id}\t{}.{}\t{votes}", 1 + random.below(9), random.below(10))?;
    Ok(())
}

fn write_people(
    principals: &mut String,
    characters: &mut String,
    random: &mut Random,
    (id, names): (usize, usize),
) -> Result<()> {
    for ordering in 1..=6 + random.below(9) {
        let name = 1 + random.skewed(names);
        // Four in ten act.
        let category = if random.below(10) < 4 { random.pick(&CATEGORIES[..2]) } else { random.pick(&CATEGORIES[2..]) };
        writeln!(principals, "{id}\t{ordering}\t{name}\t{category}\t\\N")?;
        if matches!(category, "actor" | "actress") {
            // The last name follows the ordering, so that nobody plays the same character twice in one title.
            writeln!(characters, "{id}\t{name}\t{} {}", random.pick(&FIRST_NAMES), LAST_NAMES[ordering % 32])?;
        }
    }
    Ok(())
}

fn write_name(text: &mut String, random: &mut Random, id: usize) -> Result<()> {
    let (first, last) = (random.pick(&FIRST_NAMES), random.pick(&LAST_NAMES));
    let born = 1890 + random.below(115);
    let died = if random.below(4) == 0 { (born + 30 + random.below(60)).to_string() } else { "\\N".to_owned() };
    writeln!(text, "{id}\tnm{id:07}\t{first} {last}\t{born}\t{died}\t2026-01-01 00:00:00+00")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::schema::UPDATED_BASE;
    use super::*;

    #[test]
    fn titles_are_distinct() {
        let distinct: HashSet<String> = (0..60_000).map(title_text).collect();
        assert_eq!(distinct.len(), 60_000);
    }

    #[test]
    fn a_popular_title_has_about_28_rows_and_few_movies() {
        let size = Size { movies: 2000, seed: 1 };
        let rows = title_rows(size);
        let mut per_title: HashMap<u32, (usize, usize)> = HashMap::new();
        for row in &rows {
            let counts = per_title.entry(row.movie).or_default();
            counts.0 += 1;
            counts.1 += usize::from(row.kind == "movie");
        }
        let popular: usize = (0..969).map(|movie| per_title[&movie].0).sum();
        assert!((26..30).contains(&(popular / 969)), "{popular}");
        assert!((0..969).all(|movie| (1..=3).contains(&per_title[&movie].1)));
        assert_eq!(title_rows(size).len(), rows.len());
    }

    #[test]
    fn the_base_date_is_the_one_written() {
        // 2026-01-01 is 20,454 days after 1970-01-01.
        assert_eq!(UPDATED_BASE, 20_454 * 86_400);
    }
}
