"""The tables of the measurements, filled by SQL alone."""

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


def statements(once):
    """SQL that makes the table whose every row is read once, with that many rows, and the one that is watched."""
    return _ONCE % {"once": once}
