//! The movie schema of title-5 and its five SELECTs.

/// Number of titles that the load asks for, all of them equally often.
pub(super) const POPULAR: usize = 969;

/// `title.updated` of every row after loading, in seconds since 1970; the check counts its writes from here.
pub(super) const UPDATED_BASE: u64 = 1_767_225_600;

/// Tables without indexes and keys, which are cheaper to build once the rows are there.
pub(super) const TABLES: &str = "
    CREATE TABLE title (
        title_id       integer NOT NULL,
        tconst         text NOT NULL,
        type           text NOT NULL,
        title          text NOT NULL,
        original_title text NOT NULL,
        is_adult       boolean NOT NULL,
        start_year     integer,
        end_year       integer,
        run_time_mins  integer,
        updated        timestamptz NOT NULL
    );
    CREATE TABLE title_genre (
        title_id integer NOT NULL,
        genre    text NOT NULL
    );
    CREATE TABLE title_rating (
        title_id       integer NOT NULL,
        average_rating numeric(3,1) NOT NULL,
        num_votes      integer NOT NULL
    );
    CREATE TABLE name (
        name_id integer NOT NULL,
        nconst  text NOT NULL,
        name    text NOT NULL,
        born    integer,
        died    integer,
        updated timestamptz NOT NULL
    );
    CREATE TABLE title_principal (
        title_id integer NOT NULL,
        ordering integer NOT NULL,
        name_id  integer NOT NULL,
        category text NOT NULL,
        job      text
    );
    CREATE TABLE title_name_character (
        title_id       integer NOT NULL,
        name_id        integer NOT NULL,
        character_name text NOT NULL
    );";

/// Keys and the one secondary index, in two lists of about equal cost that are built side by side.
///
/// Every table has a primary key, so every table can be published and every change carries at least the key of its row
/// (REPLICA IDENTITY DEFAULT). That is enough for `title_genre`, `title_principal` and `title_name_character`, whose
/// key holds the column they are joined by, and for `name`.
///
/// REPLICA IDENTITY FULL, the whole old row with each change, is worth its WAL on two tables:
/// - `title`: the queries look it up by `title` and `type`, which are not its key. With the old row an update that
///   renames a movie evicts what was cached under the old name, and one of an unrelated title evicts nothing.
/// - `title_rating`, the table with the most updates: with the old row an update that leaves the columns a query
///   mentions as they were is seen to change nothing.
pub(super) const KEYS: [&str; 2] = [
    "ALTER TABLE title_principal ADD PRIMARY KEY (title_id, ordering);
     ALTER TABLE name ADD PRIMARY KEY (name_id);
     VACUUM ANALYZE title_principal;
     VACUUM ANALYZE name",
    "ALTER TABLE title ADD PRIMARY KEY (title_id);
     CREATE INDEX title_title_idx ON title (title);
     ALTER TABLE title REPLICA IDENTITY FULL;
     ALTER TABLE title_rating ADD PRIMARY KEY (title_id);
     ALTER TABLE title_rating REPLICA IDENTITY FULL;
     ALTER TABLE title_genre ADD PRIMARY KEY (title_id, genre);
     ALTER TABLE title_name_character ADD PRIMARY KEY (title_id, name_id, character_name);
     VACUUM ANALYZE title;
     VACUUM ANALYZE title_rating;
     VACUUM ANALYZE title_genre;
     VACUUM ANALYZE title_name_character",
];

/// Position of the query that shows `title.updated` among [`QUERIES`].
pub(super) const DETAILS: usize = 0;
/// Position of the query that shows the genres.
pub(super) const GENRES: usize = 1;
/// Position of the query that shows `num_votes`.
pub(super) const RATING: usize = 2;

/// The transaction: what a page about a movie asks for. `$1` is the title.
pub(super) const QUERIES: [&str; 5] = [
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

/// One of the queries with the title written into it, as applications without prepared statements send it.
pub(super) fn literal(query: &str, title: &str) -> String {
    query.replace("$1", &format!("'{}'", title.replace('\'', "''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_titles_are_doubled() {
        let text = literal(QUERIES[GENRES], "L'Ombre");
        assert!(text.ends_with("t.title = 'L''Ombre' AND t.type = 'movie'"), "{text}");
    }
}
