//! The movie schema of title-5 and its five SELECTs.

use super::super::loading::Table;
use crate::target::Family;

/// Number of titles that the load asks for, all of them equally often.
pub(crate) const POPULAR: usize = 969;

/// `title.updated` of every row after loading, in seconds since 1970.
pub const UPDATED_BASE: u64 = 1_767_225_600;
/// The same, as a literal.
pub(super) const UPDATED: &str = "2026-01-01 00:00:00";

/// Characters that a text of MySQL's tables has room for. With more, a key of theirs would be too long (3072 bytes).
pub(super) const TEXT_MAX: usize = 600;

/// Places of the tables in [`tables`].
pub(super) const PRINCIPAL: usize = 0;
pub(super) const TITLE: usize = 1;
pub(super) const NAME: usize = 2;
pub(super) const CHARACTER: usize = 3;
pub(super) const GENRE: usize = 4;
pub(super) const RATING_TABLE: usize = 5;

/// `(name, columns as PostgreSQL has them, primary key)`
///
/// Every table has a primary key, so every change that a server logs says at least which row it was.
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

/// The tables, by the places above: those that cost most to build first.
pub(super) fn tables(family: Family) -> Vec<Table> {
    let table = |(name, columns, key): (&str, &str, &'static str)| {
        let columns = match family {
            Family::Postgres => columns.to_owned(),
            // What is part of a key has a length there. DATETIME, since TIMESTAMP may get a life of its own (ON UPDATE). Two
            // characters of one actor may differ in an accent alone.
            Family::Mysql => columns
                .replace("character_name text", "character_name text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
                .replace(" text", &format!(" varchar({TEXT_MAX})"))
                .replace("timestamptz", "datetime"),
        };
        Table { name: name.to_owned(), columns, key, after: after(name, family) }
    };
    TABLES.into_iter().map(table).collect()
}

/// The one secondary index; and, in PostgreSQL, what changes say of the old row.
///
/// REPLICA IDENTITY FULL, the whole old row with each change in the log, is worth its WAL on two tables to whatever follows
/// that log (of direct rounds and others alike):
/// - `title`: the queries look it up by `title` and `type`, which are not its key. With the old row, an update that renames a
///   movie is known to concern the old name, and one of an unrelated title to concern nothing else.
/// - `title_rating`, the table with the most updates: with the old row, an update that leaves the columns a query mentions as
///   they were is seen to change nothing.
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

/// Position of the query that shows `title.updated` among [`QUERIES`].
pub const DETAILS: usize = 0;
/// Position of the query that shows the genres.
pub const GENRES: usize = 1;
/// Position of the query that shows `num_votes`.
pub const RATING: usize = 2;

/// What the queries are listed under.
pub(crate) const NAMES: [&str; 5] = ["details", "genres", "rating", "characters", "people"];

/// The transaction: what a page about a movie asks for. `$1` is the title.
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
