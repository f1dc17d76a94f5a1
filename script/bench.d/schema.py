"""The data: the movie schema of title-5, filled by SQL alone, and the table whose every row is read once.

The shape is that of the demo (crates/freshet/src/demo/schema.rs). Titles are numbers written as text because pgbench's
variables are numbers: drawn as a number, a title can be sent as a parameter or written into the statement.
"""

POPULAR = 969
ROWS_PER_TITLE = 28
TITLE_BASE = 1_000_000_000_000_000

TITLE_5 = [
    "SELECT t.title_id, t.tconst, t.type, t.title, t.original_title, t.is_adult, t.start_year, t.end_year, "
    "t.run_time_mins, t.updated FROM title t WHERE t.title = {title} AND t.type = 'movie'",
    "SELECT g.genre FROM title_genre g JOIN title t ON t.title_id = g.title_id "
    "WHERE t.title = {title} AND t.type = 'movie'",
    "SELECT t.title, r.average_rating, r.num_votes FROM title t JOIN title_rating r ON r.title_id = t.title_id "
    "WHERE t.title = {title} AND t.type = 'movie'",
    "SELECT n.name, c.character_name FROM name n JOIN title_name_character c ON c.name_id = n.name_id "
    "JOIN title t ON t.title_id = c.title_id WHERE t.title = {title} AND t.type = 'movie'",
    "SELECT n.name, p.category FROM title_principal p JOIN title t ON t.title_id = p.title_id "
    "JOIN name n ON n.name_id = p.name_id WHERE t.title = {title} AND t.type = 'movie'",
]

# A permutation scatters the rows of one title over the table: the multiplier is a prime that divides no row count.
# hash() below is a fixed multiplicative hash into 0..1; its square makes a few people appear in very many titles.
_MOVIES = """
CREATE FUNCTION pg_temp.hash(bigint) RETURNS double precision IMMUTABLE LANGUAGE sql
    AS 'SELECT (($1 * 2654435761 + 1013904223) % 2147483648) / 2147483648.0::double precision';

CREATE TABLE title (
    title_id integer NOT NULL, tconst text NOT NULL, type text NOT NULL, title text NOT NULL,
    original_title text NOT NULL, is_adult boolean NOT NULL, start_year integer, end_year integer,
    run_time_mins integer, updated timestamptz NOT NULL);
CREATE TABLE title_genre (title_id integer NOT NULL, genre text NOT NULL);
CREATE TABLE title_rating (title_id integer NOT NULL, average_rating numeric(3,1) NOT NULL, num_votes integer NOT NULL);
CREATE TABLE name (
    name_id integer NOT NULL, nconst text NOT NULL, name text NOT NULL, born integer, died integer,
    updated timestamptz NOT NULL);
CREATE TABLE title_principal (
    title_id integer NOT NULL, ordering integer NOT NULL, name_id integer NOT NULL, category text NOT NULL, job text);
CREATE TABLE title_name_character (title_id integer NOT NULL, name_id integer NOT NULL, character_name text NOT NULL);

INSERT INTO title
SELECT id, 'tt' || lpad(id::text, 8, '0'),
       CASE WHEN copy < 1 + word % 3 THEN 'movie'
            ELSE (ARRAY['tvEpisode', 'short', 'video', 'tvSeries', 'tvMovie'])[1 + copy % 5] END,
       (%(base)d + word)::text, (%(base)d + word)::text, id % 50 = 0, 1950 + id % 75, NULL, 60 + id % 120,
       '2026-01-01 00:00:00+00'
FROM (SELECT (n * 7919 %% %(titles)d + 1)::integer AS id, n / %(copies)d + 1 AS word, n %% %(copies)d AS copy
      FROM generate_series(0::bigint, %(titles)d - 1) AS n) AS generated
ORDER BY id;

INSERT INTO title_genre
SELECT title_id,
       (ARRAY['Drama', 'Comedy', 'Action', 'Crime', 'Horror', 'Romance', 'Sci-Fi'])[1 + (title_id + 3 * g) % 7]
FROM title, generate_series(0, 1) AS g ORDER BY title_id;

INSERT INTO title_rating
SELECT title_id, (1 + 9 * pg_temp.hash(title_id))::numeric(3,1),
       10 + (pg_temp.hash(title_id + 1) ^ 4 * 2000000)::integer
FROM title WHERE type = 'movie' OR title_id % 2 = 0;

INSERT INTO name
SELECT n, 'nm' || lpad(n::text, 8, '0'), 'Person Number ' || n, 1900 + n % 100, NULL, '2026-01-01 00:00:00+00'
FROM generate_series(1, %(names)d) AS n;

INSERT INTO title_principal
SELECT title_id, o, 1 + (pg_temp.hash(title_id * 10::bigint + o) ^ 2 * (%(names)d - 1))::integer,
       (ARRAY['actor', 'actress', 'director', 'writer', 'producer'])[1 + o % 5], NULL
FROM title, generate_series(1, 10) AS o ORDER BY title_id, o;

INSERT INTO title_name_character
SELECT title_id, name_id, 'Character ' || ordering FROM title_principal WHERE ordering <= 4;

ALTER TABLE title ADD PRIMARY KEY (title_id);
CREATE INDEX title_title_idx ON title (title);
ALTER TABLE title REPLICA IDENTITY FULL;
ALTER TABLE title_rating ADD PRIMARY KEY (title_id);
ALTER TABLE title_rating REPLICA IDENTITY FULL;
ALTER TABLE title_genre ADD PRIMARY KEY (title_id, genre);
ALTER TABLE name ADD PRIMARY KEY (name_id);
ALTER TABLE title_principal ADD PRIMARY KEY (title_id, ordering);
ALTER TABLE title_name_character ADD PRIMARY KEY (title_id, name_id, character_name);
"""

_ONCE = """
CREATE TABLE once (id integer NOT NULL, v text NOT NULL);
INSERT INTO once SELECT n, lpad(n::text, 120, '#') FROM generate_series(1, %(once)d) AS n;
ALTER TABLE once ADD PRIMARY KEY (id);
CREATE TABLE watched (id integer PRIMARY KEY, v bigint NOT NULL);
INSERT INTO watched SELECT n, 0 FROM generate_series(1, 100) AS n;
VACUUM ANALYZE;
CHECKPOINT;
"""


# What is only passed on, or logged in for: sysbench's table and one that is written to. The role has a password; the
# account of the servers themselves has none.
DROP_IN = """
CREATE TABLE sbtest1 (id integer PRIMARY KEY, k integer NOT NULL, c char(120) NOT NULL, pad char(60) NOT NULL);
INSERT INTO sbtest1 SELECT n, n, lpad(n::text, 119, '#'), lpad(n::text, 59, '-') FROM generate_series(1, %(rows)d) AS n;
CREATE TABLE account (id integer PRIMARY KEY, v bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO account SELECT n, 0 FROM generate_series(1, %(rows)d) AS n;
CREATE ROLE %(role)s LOGIN PASSWORD '%(password)s';
VACUUM ANALYZE;
CHECKPOINT;
"""


def statements(titles, once):
    """SQL that makes and fills all tables, for `titles` rows of title and `once` rows of once."""
    # `%` is SQL's remainder where it stands alone between spaces; names in brackets are ours.
    sizes = {"titles": titles, "names": titles // 2, "once": once, "base": TITLE_BASE, "copies": ROWS_PER_TITLE}
    text = _MOVIES + _ONCE
    for name, value in sizes.items():
        text = text.replace(f"%({name})d", str(value))
    return text.replace("%%", "%")
