//! Generated movies, skewed like the real data set: the data of title-5 and of `freshet-bench demo`.
//!
//! These properties matter for a cache. A title is an unselective key: each popular one has about 28 rows, of which one to three have the type
//! `movie`, and they are far apart in the table. Joins return many rows (ten people per title). A few people are in very many titles. The rows depend
//! only on the seed and the number of movies.

mod catalogue;
pub(super) mod imdb;
mod schema;
mod words;

use std::sync::OnceLock;

use anyhow::Result;
use indicatif::ProgressBar;

pub(super) use catalogue::Catalogue;
pub use schema::{DETAILS, GENRES, QUERIES, RATING, UPDATED_BASE};
pub(crate) use schema::{NAMES, POPULAR};

use super::loading::{self, Cell, Data, Rows, Table};
use crate::random::Random;
use crate::target::{Family, Target};
use schema::{CHARACTER, GENRE, NAME, PRINCIPAL, RATING_TABLE, TITLE, UPDATED};
pub(super) use words::{CATEGORIES, GENRES as GENRE_NAMES};
use words::{FIRST_NAMES, LAST_NAMES, other_type, title_text};

/// Number of movies, and the seed.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of distinct movie titles. The load requests the first 969.
    pub movies: usize,
    /// Seed of the rows.
    pub seed: u64,
}

impl Size {
    /// The titles that the load requests.
    pub fn popular_titles(self) -> Vec<String> {
        (0..self.movies.min(POPULAR)).map(title_text).collect()
    }
}

/// One row of `title`. Its key is its index plus one.
#[derive(Clone, Copy, Debug)]
struct TitleRow {
    movie: u32,
    kind: &'static str,
}

impl TitleRow {
    fn asked_for(self) -> bool {
        (self.movie as usize) < POPULAR && self.kind == "movie"
    }
}

/// All rows of `title` in the order of their keys. Rows of one title are far apart.
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

/// The rows of that size.
#[derive(Debug)]
pub struct Movies {
    size: Size,
    /// Generated when first needed: a run without writes does not need them.
    titles: OnceLock<Vec<TitleRow>>,
}

/// Creates the tables, fills them, builds the keys and gathers statistics. Returns the number of rows.
pub async fn load(target: &Target, size: Size, bar: &ProgressBar) -> Result<u64> {
    loading::load(&Movies::new(size), target, bar).await
}

impl Movies {
    pub(super) fn new(size: Size) -> Self {
        Self { size, titles: OnceLock::new() }
    }

    fn titles(&self) -> &[TitleRow] {
        self.titles.get_or_init(|| title_rows(self.size))
    }

    fn people(&self) -> usize {
        (self.titles().len() * 6 / 10).max(1000)
    }

    /// Key of a row with the title of that number that the five queries return.
    pub(super) fn movie_id(&self, movie: usize) -> Option<i64> {
        let place = self.titles().iter().position(|row| row.movie as usize == movie && row.kind == "movie")?;
        i64::try_from(place + 1).ok()
    }

    /// Keys of the rows that the five queries return, and of all others.
    pub(super) fn title_ids(&self) -> [Vec<i64>; 2] {
        let (mut popular, mut others) = (Vec::new(), Vec::new());
        for (id, row) in (1..).zip(self.titles()) {
            if row.asked_for() { &mut popular } else { &mut others }.push(id);
        }
        [popular, others]
    }
}

impl Data for Movies {
    fn kind(&self) -> &'static str {
        "movies"
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![("movies".to_owned(), self.size.movies.to_string()), ("data-seed".to_owned(), self.size.seed.to_string())]
    }

    fn tables(&self, family: Family) -> Vec<Table> {
        schema::tables(family)
    }

    fn steps(&self) -> u64 {
        (self.titles().len() + self.people()) as u64
    }

    fn step(&self, number: u64, rows: &mut Rows) -> Result<()> {
        let number = number as usize;
        let Some(row) = self.titles().get(number) else {
            let id = number - self.titles().len() + 1;
            add_person(rows, &mut Random::numbered(!self.size.seed, id as u64), id);
            return Ok(());
        };
        let id = number + 1;
        let mut random = Random::numbered(self.size.seed, id as u64);
        add_title(rows, &mut random, id, *row);
        add_genres(rows, &mut random, id);
        add_rating(rows, &mut random, id, *row);
        add_parts(rows, &mut random, (id, self.people()));
        Ok(())
    }
}

fn add_title(rows: &mut Rows, random: &mut Random, id: usize, row: TitleRow) {
    let title = title_text(row.movie as usize);
    let original = if random.below(8) == 0 { format!("{title} (original)") } else { title.clone() };
    let adult = i64::from(random.below(100) == 0);
    let year = 1920 + random.below(106);
    let end = if row.kind == "tvSeries" { Cell::int(year + random.below(6)) } else { Cell::Null };
    let minutes = 20 + random.below(140);
    let cells = [
        Cell::int(id),
        Cell::Text(&format!("tt{id:07}")),
        Cell::Text(row.kind),
        Cell::Text(&title),
        Cell::Text(&original),
        Cell::Int(adult),
        Cell::int(year),
        end,
        Cell::int(minutes),
        Cell::Text(UPDATED),
    ];
    rows.add(TITLE, &cells);
}

fn add_genres(rows: &mut Rows, random: &mut Random, id: usize) {
    let first = random.skewed(GENRE_NAMES.len());
    for step in 0..=random.below(3) {
        rows.add(GENRE, &[Cell::int(id), Cell::Text(GENRE_NAMES[(first + step * 5) % GENRE_NAMES.len()])]);
    }
}

/// All movies of a popular title start with the same number of votes: the demo's check counts writes from this number.
fn add_rating(rows: &mut Rows, random: &mut Random, id: usize, row: TitleRow) {
    let popular = row.asked_for();
    if !popular && random.below(10) < 4 {
        return;
    }
    let votes = if popular { 10_000 + (row.movie as usize * 7919) % 2_000_000 } else { 5 + random.skewed(50_000) };
    let rating = format!("{}.{}", 1 + random.below(9), random.below(10));
    rows.add(RATING_TABLE, &[Cell::int(id), Cell::Text(&rating), Cell::int(votes)]);
}

fn add_parts(rows: &mut Rows, random: &mut Random, (id, people): (usize, usize)) {
    for ordering in 1..=6 + random.below(9) {
        let person = 1 + random.skewed(people);
        // Four in ten are actors.
        let category = if random.below(10) < 4 { random.pick(&CATEGORIES[..2]) } else { random.pick(&CATEGORIES[2..]) };
        rows.add(PRINCIPAL, &[Cell::int(id), Cell::int(ordering), Cell::int(person), Cell::Text(category), Cell::Null]);
        if matches!(category, "actor" | "actress") {
            // The last name depends on the ordering, so no person plays the same character twice in one title.
            let character = format!("{} {}", random.pick(&FIRST_NAMES), LAST_NAMES[ordering % 32]);
            rows.add(CHARACTER, &[Cell::int(id), Cell::int(person), Cell::Text(&character)]);
        }
    }
}

fn add_person(rows: &mut Rows, random: &mut Random, id: usize) {
    let (first, last) = (random.pick(&FIRST_NAMES), random.pick(&LAST_NAMES));
    let born = 1890 + random.below(115);
    let died = if random.below(4) == 0 { Cell::int(born + 30 + random.below(60)) } else { Cell::Null };
    let (number, name) = (format!("nm{id:07}"), format!("{first} {last}"));
    rows.add(
        NAME,
        &[Cell::int(id), Cell::Text(&number), Cell::Text(&name), Cell::int(born), died, Cell::Text(UPDATED)],
    );
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

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
