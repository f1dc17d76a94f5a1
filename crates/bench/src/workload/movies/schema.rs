//! The movie schema of title-5 and its five SELECTs.

use super::super::loading::Table;
use crate::target::Family;

/// Number of titles that the load requests, all equally often.
pub(crate) const POPULAR: usize = 969;

/// Value of `title.updated` in every row after loading, in seconds since 1970.
pub const UPDATED_BASE: u64 = 1_767_225_600;
/// The same value as an SQL literal.
pub(super) const UPDATED: &str = "2026-01-01 00:00:00";

/// Most characters in a text column of MySQL's tables. With more, a key of two such columns would be too long (3072 bytes).
pub(super) const TEXT_MAX: usize = 600;

/// Indexes of the tables in [`tables`].
pub(super) const PRINCIPAL: usize = 0;
pub(super) const TITLE: usize = 1;
pub(super) const NAME: usize = 2;
pub(super) const CHARACTER: usize = 3;
pub(super) const GENRE: usize = 4;
pub(super) const RATING_TABLE: usize = 5;

/// `(name, columns in PostgreSQL's form, primary key)`
///
/// Every table has a primary key, so every logged change identifies its row.
const TABLES: [(&str, &str, &str); 6] = [
    (
        "title_principal",
        "title_id integer NOT NULL, ordering integer NOT NULL, name_id integer NOT NULL, category text NOT NULL, job text",
        "title_id, ordering",
    ),
    (
        "title",
        "title_id integer NOT NULL, tconst text NOT NULL, type text NOT NULL, title text NOT NULL, \
         original_title text NOT NULL, is_adult boolean NOT NULL, start_year integer, end_year integer, \
         run_time_mins integer, updated timestamptz NOT NULL",
        "title_id",
    ),
    (
        "name",
        "name_id integer NOT NULL, nconst text NOT NULL, name text NOT NULL, born integer, died integer, \
         updated timestamptz NOT NULL",
        "name_id",
    ),
    (
        "title_name_character",
        "title_id integer NOT NULL, name_id integer NOT NULL, character_name text NOT NULL",
        "title_id, name_id, character_name",
    ),
    ("title_genre", "title_id integer NOT NULL, genre text NOT NULL", "title_id, genre"),
    (
        "title_rating",
        "title_id integer NOT NULL, average_rating numeric(3,1) NOT NULL, num_votes integer NOT NULL",
        "title_id",
    ),
];

/// The tables in the order of the indexes above. Those that take longest to build come first.
pub(super) fn tables(family: Family) -> Vec<Table> {
    let table = |(name, columns, key): (&str, &str, &'static str)| {
        let columns = match family {
            Family::Postgres => columns.to_owned(),
            // A column of a key needs a length in MySQL. The type is DATETIME, since TIMESTAMP may get ON UPDATE by default. The names of two
            // characters of an actor may differ only in an accent.
            Family::Mysql => columns
                .replace("character_name text", "character_name text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
                .replace(" text", &format!(" varchar({TEXT_MAX})"))
                .replace("timestamptz", "datetime"),
        };
        Table { name: name.to_owned(), columns, key, after: after(name, family) }
    };
    TABLES.into_iter().map(table).collect()
}

/// The only secondary index, and PostgreSQL's replica identity.
///
/// REPLICA IDENTITY FULL writes the whole old row of each change to the log. On two tables this is worth the additional WAL to anything that follows
/// the log. All targets have it, so direct rounds pay for it too.
/// - `title`: the queries find rows by `title` and `type`, which are not the key. With the old row, an update that renames a movie affects the old
///   name, and an update of another title affects nothing else.
/// - `title_rating`, the table with the most updates: with the old row, an update that leaves all columns of a query unchanged affects none of its
///   results.
fn after(table: &str, family: Family) -> Vec<String> {
    let mut statements = Vec::new();
    if table == "title" {
        statements.push("CREATE INDEX title_title_idx ON title (title)".to_owned());
    }
    if family == Family::Postgres && matches!(table, "title" | "title_rating") {
        statements.push(format!("ALTER TABLE {table} REPLICA IDENTITY FULL"));
    }
    statements
}

/// Index of the query in [`QUERIES`] that shows `title.updated`.
pub const DETAILS: usize = 0;
/// Index of the query that shows the genres.
pub const GENRES: usize = 1;
/// Index of the query that shows `num_votes`.
pub const RATING: usize = 2;

/// Names of the queries in results.
pub(crate) const NAMES: [&str; 5] = ["details", "genres", "rating", "characters", "people"];

/// The transaction: the queries of a page about a movie. `$1` is the title.
pub const QUERIES: [&str; 5] = [
    "SELECT t.title_id, t.tconst, t.type, t.title, t.original_title, t.is_adult, t.start_year, t.end_year, \
     t.run_time_mins, t.updated FROM title t WHERE t.title = $1 AND t.type = 'movie'",
    "SELECT g.genre FROM title_genre g JOIN title t ON t.title_id = g.title_id \
     WHERE t.title = $1 AND t.type = 'movie'",
    "SELECT t.title, r.average_rating, r.num_votes FROM title t JOIN title_rating r ON r.title_id = t.title_id \
     WHERE t.title = $1 AND t.type = 'movie'",
    "SELECT n.name, c.character_name FROM name n JOIN title_name_character c ON c.name_id = n.name_id \
     JOIN title t ON t.title_id = c.title_id WHERE t.title = $1 AND t.type = 'movie'",
    "SELECT n.name, p.category FROM title_principal p JOIN title t ON t.title_id = p.title_id \
     JOIN name n ON n.name_id = p.name_id WHERE t.title = $1 AND t.type = 'movie'",
];
