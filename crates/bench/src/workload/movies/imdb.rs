//! The movies of IMDb's public files: the data of the first measurements of title-5.
//!
//! It reads four files of <https://datasets.imdbws.com>, packed or unpacked: tab-separated UTF-8 with a line of column names, `\N` for NULL, and no
//! quotes. They are several gigabytes, so each is read once, line by line. No row needs another: the keys of titles and people are the numbers in
//! `tt0111161` and `nm0000151`. A step of the load is a part of a file as it is on the disk, so that progress can be shown.
//!
//! | file | fills |
//! |---|---|
//! | `title.basics` | `title`; `title_genre`, a row for each of the genres between commas |
//! | `title.ratings` | `title_rating` |
//! | `title.principals` | `title_principal`; `title_name_character`, a row for each text of the JSON list in `characters` |
//! | `name.basics` | `name` |
//!
//! A line in another form ends the load with an error that names file and line. Values that a column cannot hold are adapted: texts are cut after
//! [`TEXT_MAX`] characters, and a missing name or title becomes an empty text.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use flate2::bufread::MultiGzDecoder;

use super::super::loading::{Cell, Data, Rows, Table};
use super::schema::{self, CHARACTER, GENRE, NAME, PRINCIPAL, RATING_TABLE, TEXT_MAX, TITLE, UPDATED};
use crate::target::Family;

/// Approximate number of bytes that a step reads.
const STEP: u64 = 64 << 10;
/// The longest line that is accepted; IMDb's are shorter.
const LINE_MAX: u64 = 1 << 20;

/// `(name, columns)` of the files, in the order of reading.
const FILES: [(&str, &str); 4] = [
    ("title.basics", "tconst titleType primaryTitle originalTitle isAdult startYear endYear runtimeMinutes genres"),
    ("title.ratings", "tconst averageRating numVotes"),
    ("title.principals", "tconst ordering nconst category job characters"),
    ("name.basics", "nconst primaryName birthYear deathYear primaryProfession knownForTitles"),
];

/// The files of a directory.
#[derive(Debug)]
pub(super) struct Imdb {
    directory: PathBuf,
    reading: Mutex<Option<Reading>>,
}

/// The files that are not read yet.
#[derive(Debug)]
struct Reading {
    files: Vec<Lines>,
    steps: u64,
    /// The title whose characters are being read, and those read so far.
    title: i64,
    characters: HashSet<(i64, String)>,
}

impl Imdb {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, reading: Mutex::new(None) }
    }

    /// Opens the files and checks their first lines. A missing file or another form is an error.
    pub(super) fn open(&self) -> Result<&Self> {
        let mut files = Vec::new();
        for (place, (name, columns)) in FILES.iter().enumerate() {
            files.push(Lines::open(&self.directory, name, (place, columns))?);
        }
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        // Files are taken from the end.
        files.reverse();
        let reading = Reading { files, steps: bytes / STEP + 1, title: 0, characters: HashSet::new() };
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        Ok(self)
    }
}

impl Data for Imdb {
    fn kind(&self) -> &'static str {
        "movies"
    }

    /// Only the directory's own name, since its location does not affect the data.
    fn settings(&self) -> Vec<(String, String)> {
        let name = self.directory.file_name().map_or_else(|| ".".into(), std::ffi::OsStr::to_string_lossy);
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
        let name = name.chars().take(100).map(|letter| if plain(letter) { letter } else { '_' }).collect();
        vec![("imdb".to_owned(), name)]
    }

    fn tables(&self, family: Family) -> Vec<Table> {
        schema::tables(family)
    }

    fn steps(&self) -> u64 {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, |reading| reading.steps)
    }

    fn step(&self, number: u64, rows: &mut Rows) -> Result<()> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = reading.as_mut().context("files that are not open")?;
        // The last step reads the rest.
        let until = if number + 1 == reading.steps { u64::MAX } else { STEP };
        let mut read = 0;
        while read < until {
            let Some(mut file) = reading.files.pop() else { break };
            let before = file.position();
            while read + (file.position() - before) < until {
                match file.next() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return Err(file.at(error)),
                }
                let added = file.fields().and_then(|fields| reading.add(file.place, &fields, rows));
                added.map_err(|error| file.at(error))?;
            }
            read += file.position() - before;
            if !file.ended {
                reading.files.push(file);
            }
        }
        Ok(())
    }
}

impl Reading {
    /// Adds the rows of a line. `place` is the index of its file in [`FILES`].
    fn add(&mut self, place: usize, fields: &[&str], rows: &mut Rows) -> Result<()> {
        match (place, fields) {
            (0, [title, rest @ ..]) => add_title(title, rest, rows),
            (1, [title, rating, votes]) => {
                ensure!(rating.parse().is_ok_and(|rating: f64| (0.0..=10.0).contains(&rating)), "rating {rating:?}");
                let cells = [Cell::Int(id(title, "tt")?), Cell::Text(rating), Cell::Int(int(votes)?)];
                rows.add(RATING_TABLE, &cells);
                Ok(())
            }
            (2, [title, ordering, person, category, job, characters]) => {
                let (title, person) = (id(title, "tt")?, id(person, "nm")?);
                let job = null(job).map(cut);
                let cells = [
                    Cell::Int(title),
                    Cell::Int(int(ordering)?),
                    Cell::Int(person),
                    Cell::Text(cut(category)),
                    job.map_or(Cell::Null, Cell::Text),
                ];
                rows.add(PRINCIPAL, &cells);
                self.add_characters((title, person), characters, rows)
            }
            (_, [person, name, born, died, ..]) => {
                let cells = [
                    Cell::Int(id(person, "nm")?),
                    Cell::Text(person),
                    Cell::Text(cut(null(name).unwrap_or_default())),
                    year(born)?,
                    year(died)?,
                    Cell::Text(UPDATED),
                ];
                rows.add(NAME, &cells);
                Ok(())
            }
            _ => bail!("too few columns"),
        }
    }

    /// A person may be listed twice for a title with the same character. All lines of a title are adjacent.
    fn add_characters(&mut self, (title, person): (i64, i64), characters: &str, rows: &mut Rows) -> Result<()> {
        let Some(list) = null(characters) else { return Ok(()) };
        let list: Vec<String> = serde_json::from_str(list).context("characters are not a JSON list of texts")?;
        if self.title != title {
            self.title = title;
            self.characters.clear();
        }
        for text in list {
            // MySQL and MariaDB ignore blanks at the end of a text.
            let text = cut(&text).trim_end();
            if !text.is_empty() && self.characters.insert((person, text.to_owned())) {
                rows.add(CHARACTER, &[Cell::Int(title), Cell::Int(person), Cell::Text(text)]);
            }
        }
        Ok(())
    }
}

fn add_title(tconst: &str, rest: &[&str], rows: &mut Rows) -> Result<()> {
    let [kind, title, original, adult, start, end, minutes, genres] = rest else { bail!("too few columns") };
    let id = id(tconst, "tt")?;
    let title = null(title).unwrap_or_default();
    let cells = [
        Cell::Int(id),
        Cell::Text(tconst),
        Cell::Text(cut(kind)),
        Cell::Text(cut(title)),
        Cell::Text(cut(null(original).unwrap_or(title))),
        Cell::Int(i64::from(int(adult)? != 0)),
        year(start)?,
        year(end)?,
        year(minutes)?,
        Cell::Text(UPDATED),
    ];
    rows.add(TITLE, &cells);
    let mut seen = HashSet::new();
    for genre in null(genres).into_iter().flat_map(|genres| genres.split(',')) {
        if !genre.is_empty() && seen.insert(genre) {
            rows.add(GENRE, &[Cell::Int(id), Cell::Text(cut(genre))]);
        }
    }
    Ok(())
}

/// None for `\N`.
fn null(text: &str) -> Option<&str> {
    (text != "\\N").then_some(text)
}

/// The number in `tt0111161`.
fn id(text: &str, prefix: &str) -> Result<i64> {
    let digits = text.strip_prefix(prefix).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number: Option<i32> = digits.and_then(|digits| digits.parse().ok());
    number.map(i64::from).with_context(|| format!("{text:?} is not {prefix} with a number"))
}

fn int(text: &str) -> Result<i64> {
    let number: i32 = text.parse().with_context(|| format!("{text:?} is not a number"))?;
    Ok(i64::from(number))
}

/// A year or a number of minutes, which may be missing.
fn year(text: &str) -> Result<Cell<'static>> {
    null(text).map_or(Ok(Cell::Null), |text| int(text).map(Cell::Int))
}

/// The text, cut to what a column of MySQL's tables holds.
fn cut(text: &str) -> &str {
    text.char_indices().nth(TEXT_MAX).map_or(text, |(end, _)| &text[..end])
}

/// A file that is read line by line.
struct Lines {
    path: PathBuf,
    /// Index in [`FILES`].
    place: usize,
    columns: usize,
    bytes: u64,
    position: Arc<AtomicU64>,
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
    ended: bool,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("path", &self.path).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Lines {
    /// Opens `NAME.tsv` or `NAME.tsv.gz` and checks that its first line has these columns.
    fn open(directory: &Path, name: &str, (place, columns): (usize, &str)) -> Result<Self> {
        let paths = [format!("{name}.tsv"), format!("{name}.tsv.gz")].map(|name| directory.join(name));
        let path = paths.into_iter().find(|path| path.is_file()).with_context(|| {
            format!("{} has neither {name}.tsv nor {name}.tsv.gz (datasets.imdbws.com)", directory.display())
        })?;
        let opening = || path.display().to_string();
        let file = File::open(&path).with_context(opening)?;
        let bytes = file.metadata().with_context(opening)?.len();
        let position = Arc::new(AtomicU64::new(0));
        let counted = BufReader::new(Counted { file, position: Arc::clone(&position) });
        let packed = path.extension().is_some_and(|extension| extension == "gz");
        let reader: Box<dyn BufRead + Send> =
            if packed { Box::new(BufReader::new(MultiGzDecoder::new(counted))) } else { Box::new(counted) };
        let expected: Vec<&str> = columns.split(' ').collect();
        let columns = expected.len();
        let mut lines =
            Self { path, place, columns, bytes, position, reader, line: Vec::new(), number: 0, ended: false };
        let header = lines.next().and_then(|_| lines.fields()).is_ok_and(|fields| fields == expected);
        if header { Ok(lines) } else { Err(lines.at(anyhow::anyhow!("the columns are not {}", expected.join(", ")))) }
    }

    /// Reads the next line; false at the end.
    fn next(&mut self) -> Result<bool> {
        self.line.clear();
        self.number += 1;
        let length = self.reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        self.ended = length == 0;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else {
            ensure!((length as u64) < LINE_MAX, "a line of more than a megabyte");
        }
        Ok(!self.ended)
    }

    fn fields(&self) -> Result<Vec<&str>> {
        let line = std::str::from_utf8(&self.line).context("not UTF-8")?;
        let fields: Vec<&str> = line.strip_suffix('\r').unwrap_or(line).split('\t').collect();
        ensure!(fields.len() == self.columns, "{} columns instead of {}", fields.len(), self.columns);
        Ok(fields)
    }

    /// Number of bytes read from the file.
    fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Adds the file and the line to an error.
    fn at(&self, error: anyhow::Error) -> anyhow::Error {
        error.context(format!("{}, line {}", self.path.display(), self.number))
    }
}

/// A reader that counts the bytes read.
struct Counted {
    file: File,
    position: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
pub(in crate::workload) mod tests;
