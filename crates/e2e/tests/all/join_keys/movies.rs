//! A few movies, in the tables of the benchmark's title-5 workload, and its five statements.

use std::fmt::Write as _;

/// Titles, each of a movie and of an episode that bears the same title.
const MOVIES: usize = 40;
/// The movie without a rating.
pub(crate) const UNRATED: usize = 7;

/// `(name, columns as PostgreSQL has them, primary key)`
const TABLES: [(&str, &str, &str); 6] = [
    (
        "title",
        "title_id integer NOT NULL, type text NOT NULL, title text NOT NULL, updated integer NOT NULL",
        "title_id",
    ),
    ("title_genre", "title_id integer NOT NULL, genre text NOT NULL", "title_id, genre"),
    (
        "title_rating",
        "title_id integer NOT NULL, average_rating numeric(3,1) NOT NULL, num_votes integer NOT NULL",
        "title_id",
    ),
    ("name", "name_id integer NOT NULL, name text NOT NULL, born integer", "name_id"),
    (
        "title_name_character",
        "title_id integer NOT NULL, name_id integer NOT NULL, character_name text NOT NULL",
        "title_id, name_id, character_name",
    ),
    (
        "title_principal",
        "title_id integer NOT NULL, ordering integer NOT NULL, name_id integer NOT NULL, category text NOT NULL",
        "title_id, ordering",
    ),
];

/// A row of each table, and what takes it away again.
pub(crate) const TOUCHES: [(&str, &str, &str); 6] = [
    ("title", "(99999, 'movie', 'none', 0)", "title_id = 99999"),
    ("title_genre", "(99999, 'none')", "title_id = 99999"),
    ("title_rating", "(99999, 0.0, 0)", "title_id = 99999"),
    ("name", "(99999, 'none', NULL)", "name_id = 99999"),
    ("title_name_character", "(99999, 99999, 'none')", "title_id = 99999"),
    ("title_principal", "(99999, 1, 99999, 'none')", "title_id = 99999"),
];

/// Number of the movie with this number's title, and of the episode.
pub(crate) const EPISODE: usize = 1000;

/// What makes and fills the tables.
pub(crate) fn schema(mysql: bool) -> String {
    let mut sql = String::new();
    for (name, columns, key) in TABLES {
        let columns = if mysql { columns.replace(" text", " varchar(80)") } else { columns.to_owned() };
        let _ = write!(sql, "CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}));");
    }
    sql.push_str("CREATE INDEX title_title_idx ON title (title);");
    if !mysql {
        // A title is looked up by what is not its key.
        sql.push_str("ALTER TABLE title REPLICA IDENTITY FULL;");
    }
    for number in 1..=MOVIES {
        let episode = EPISODE + number;
        let (first, second) = (100 * number + 1, 100 * number + 2);
        let _ = write!(
            sql,
            "INSERT INTO title VALUES ({number}, 'movie', 'movie {number}', 0), ({episode}, 'tvEpisode', 'movie {number}', 0);
             INSERT INTO title_genre VALUES ({number}, 'Drama'), ({number}, 'Comedy'), ({episode}, 'News');
             INSERT INTO name VALUES ({first}, 'Name {first}', 1950), ({second}, 'Name {second}', NULL);
             INSERT INTO title_name_character VALUES ({number}, {first}, 'Hero'), ({number}, {second}, 'Fool');
             INSERT INTO title_principal VALUES ({number}, 1, {first}, 'actor'), ({number}, 2, {second}, 'director');"
        );
        if number != UNRATED {
            let _ = write!(sql, "INSERT INTO title_rating VALUES ({number}, 5.5, {number});");
        }
    }
    sql
}

/// The five statements for a movie's title.
pub(crate) fn reads(title: &str) -> [String; 5] {
    let of = format!("WHERE t.title = '{title}' AND t.type = 'movie'");
    [
        format!("SELECT t.title_id, t.type, t.title, t.updated FROM title t {of}"),
        format!("SELECT g.genre FROM title_genre g JOIN title t ON t.title_id = g.title_id {of}"),
        rating(title),
        format!(
            "SELECT n.name, c.character_name FROM name n JOIN title_name_character c ON c.name_id = n.name_id \
             JOIN title t ON t.title_id = c.title_id {of}"
        ),
        format!(
            "SELECT n.name, p.category FROM title_principal p JOIN title t ON t.title_id = p.title_id \
             JOIN name n ON n.name_id = p.name_id {of}"
        ),
    ]
}

/// The one of them that asks for the rating.
pub(crate) fn rating(title: &str) -> String {
    format!(
        "SELECT t.title, r.average_rating, r.num_votes FROM title t JOIN title_rating r ON r.title_id = t.title_id \
         WHERE t.title = '{title}' AND t.type = 'movie'"
    )
}
