//! Random conditions on one row that are not tests of a column by constants.

use crate::queries::{NUMBERS, Queries};

const COMPARES: &[&str] = &["=", "=", "<>", "<", "<=", ">", ">="];

impl Queries<'_> {
    /// A condition on several columns of one alias, or on an expression of one.
    pub(crate) fn residual_atom(&mut self, alias: &str) -> String {
        let condition = match self.random.below(10) {
            0 | 1 => self.of_columns(alias),
            2 | 3 => self.of_sums(alias),
            4..=6 => self.of_dates(alias),
            7 => self.of_cases(alias),
            _ => self.of_texts(alias),
        };
        match self.random.below(12) {
            0 => format!("NOT ({condition})"),
            1 => format!("({condition}) IS {}", self.of(&["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"], &[], &[])),
            2 => format!("({condition}) IS NULL"),
            3 => {
                let other = self.of_columns(alias);
                format!("({condition}) {} ({other})", self.of(&["=", "<>"], &["<"], &["XOR", "<=>"]))
            }
            _ => condition,
        }
    }

    fn compares(&mut self) -> String {
        self.random.one_of(COMPARES).to_owned()
    }

    fn column(&mut self, alias: &str, names: &[&str]) -> String {
        format!("{alias}.{}", self.random.one_of(names))
    }

    /// Comparisons of columns of the same row.
    fn of_columns(&mut self, alias: &str) -> String {
        let compares = self.compares();
        let names: &[&str] = match self.random.below(7) {
            0..=2 => NUMBERS,
            3 => &["d", "t"],
            4 => &["d", "t", "z"],
            5 => &["f", "g", "a", "n", "k"],
            _ => &["s", "e"],
        };
        let (one, two, three) = (self.column(alias, names), self.column(alias, names), self.column(alias, names));
        match self.random.below(8) {
            0 => format!("{one} BETWEEN {two} AND {three}"),
            1 if names == NUMBERS => format!("{one} IN ({two}, {three}, 1)"),
            2 if names == NUMBERS => format!("{one} NOT BETWEEN {two} AND 1"),
            3 if self.postgres => format!("{one} IS DISTINCT FROM {two}"),
            3 => format!("{one} <=> {two}"),
            _ => format!("{one} {compares} {two}"),
        }
    }

    fn of_sums(&mut self, alias: &str) -> String {
        let (one, two) = (self.column(alias, NUMBERS), self.column(alias, NUMBERS));
        let (compares, operation) = (self.compares(), self.of(&["+", "-", "*"], &[], &[]));
        let x = self.of(&["0", "1", "2", "0.5", "-1", "2.0", "32767", "3000000000"], &["'1'"], &["1e0", "'1'"]);
        let y = self.of(&["0", "1", "2", "-2", "1.5", "3"], &[], &["'2'"]);
        let float = self.column(alias, &["f", "g"]);
        match self.random.below(8) {
            0 => format!("{one} {operation} {two} {compares} {y}"),
            1 => format!("{one} {operation} {x} {compares} {two}"),
            2 => format!("{y} {compares} {x} {operation} {one}"),
            3 => format!("{float} {operation} {x} {compares} {y}"),
            4 => format!("{float} {operation} {one} {compares} {two}"),
            5 => {
                format!("{} % {} {compares} {y}", self.column(alias, &["a", "b", "k"]), self.column(alias, &["a", "b"]))
            }
            6 => format!("- {one} {compares} {two}"),
            _ => format!("({one} {operation} {x}) * {two} {compares} {y}"),
        }
    }

    fn of_dates(&mut self, alias: &str) -> String {
        let compares = self.compares();
        let column = self.column(alias, &["d", "t", "t", "z"]);
        let part = self.of(
            &["YEAR", "MONTH", "DAY", "QUARTER", "HOUR", "MINUTE", "SECOND"],
            &["DOW", "ISODOW", "DOY", "WEEK", "ISOYEAR"],
            &["MICROSECOND"],
        );
        let number = self.of(&["0", "1", "2", "3", "29", "30", "2026", "2025", "12", "10", "4"], &["0.5"], &[]);
        let date = self.of(&["'2026-01-01'", "'2026-01-02'", "'2025-12-31'"], &["'2026-01-01 10:00:00'"], &[]);
        if self.postgres && self.random.below(4) == 0 {
            return self.of_times(alias);
        }
        match self.random.below(8) {
            0 | 1 => format!("EXTRACT({part} FROM {column}) {compares} {number}"),
            2 => {
                format!("EXTRACT({part} FROM {column}) = EXTRACT({part} FROM {}) + 1", self.column(alias, &["d", "t"]))
            }
            3 => format!("EXTRACT({part} FROM {column}) {compares} {}", self.column(alias, NUMBERS)),
            4 if self.postgres => format!("EXTRACT({part} FROM {alias}.z AT TIME ZONE 'UTC') {compares} {number}"),
            5 if self.postgres => {
                let unit = self.random.one_of(&["year", "month", "quarter", "week", "day", "hour", "minute", "second"]);
                let other = self.column(alias, &["d", "t"]);
                format!("date_trunc('{unit}', {column}) {compares} {}", self.random.one_of(&[&other, &date]))
            }
            6 if self.postgres => format!("({column})::date {compares} {date}"),
            7 if self.postgres => format!("date_part('{part}', {column}) {compares} {number}"),
            4 => format!("DATE({column}) {compares} {date}"),
            5 => format!("CAST({column} AS DATE) {compares} {}", self.column(alias, &["d", "t"])),
            _ => {
                let names = ["YEAR", "MONTH", "DAYOFMONTH", "DAYOFWEEK", "WEEKDAY", "DAYOFYEAR", "HOUR", "QUARTER"];
                format!("{}({column}) {compares} {number}", self.random.one_of(&names))
            }
        }
    }

    /// Times of day, and timestamps plus an interval.
    fn of_times(&mut self, alias: &str) -> String {
        let compares = self.compares();
        let (one, two) = (self.column(alias, &["d", "t", "t", "z", "z"]), self.column(alias, &["d", "t", "z"]));
        let time = self.random.one_of(&["'10:00:00'", "'00:00:00'", "'10:00:00.5'", "'02:30:00'", "'22:30:00'"]);
        let interval = self.random.one_of(&[
            "'0:00:00'::interval",
            "'10:00:00'::interval",
            "'1 day'::interval",
            "'1 day, 1:30:00'::interval",
            "interval '1 day'",
            "interval '1 month'",
            "'-1:00:00'::interval",
        ]);
        let moment = self.random.one_of(&["t", "z"]);
        match self.random.below(8) {
            0 => format!("{alias}.{moment}::time {compares} {time}::time"),
            1 => format!("{alias}.{moment}::time {compares} {time}"),
            2 => format!("({alias}.z AT TIME ZONE 'UTC')::time {compares} {alias}.t::time"),
            3 => format!("{one} {compares} {two} + {interval}"),
            4 => format!("{one} {compares} ({interval} + {two})"),
            5 => format!("{one} - {interval} {compares} {two}"),
            6 => format!("{one} + {interval} {compares} '2026-01-02'"),
            _ => format!("({one} + {interval})::date {compares} {two}"),
        }
    }

    fn of_cases(&mut self, alias: &str) -> String {
        let (one, two) = (self.column(alias, &["a", "b", "n"]), self.column(alias, &["a", "b", "n"]));
        let (when, compares) = (self.of_columns(alias), self.compares());
        let then = self.of(&["1", "0", "0.5"], &[], &[]);
        match self.random.below(5) {
            0 => format!("CASE WHEN {when} THEN {one} ELSE {then} END {compares} {two}"),
            1 => format!("CASE WHEN {when} THEN 1 ELSE 0 END + CASE WHEN {one} = {two} THEN 1 END {compares} 1"),
            2 => format!("CASE {one} WHEN {two} THEN 1 WHEN 0 THEN 2 ELSE {one} END {compares} {then}"),
            3 => format!("COALESCE({one}, {two}, {then}) {compares} {two}"),
            _ => format!("CASE WHEN {when} THEN {one} = 1 ELSE {two} = 0 END"),
        }
    }

    fn of_texts(&mut self, alias: &str) -> String {
        let (column, other) = (self.column(alias, &["s", "e"]), self.column(alias, &["s", "e"]));
        let compares = self.random.one_of(&["=", "<>", "=", "<"]).to_owned();
        let text = self.of(&["'x'", "'X'", "'xy'", "'y'", "''", "'ab'", "'hi'", "'yx'"], &[], &[]);
        let length = self.of(&["1", "2", "0"], &[], &[]);
        let number = self.column(alias, &["a", "b", "k"]);
        match self.random.below(11) {
            0 => format!("LEFT({column}, {length}) {compares} {text}"),
            1 => format!("SUBSTRING({column}, 2, {length}) {compares} {text}"),
            2 => format!("SUBSTRING({column} FROM 1 FOR 2) IN ({text}, 'xé')"),
            3 => format!("UPPER({column}) = LOWER({other})"),
            4 if self.postgres => format!("LENGTH({column}) {compares} {length}"),
            5 if self.postgres => format!("{column} || 'y' {compares} {other}"),
            6 if self.postgres => format!("{column} LIKE {other} || '%'"),
            7 if self.postgres => format!("REPLACE({column}, 'x', {text}) {compares} {other}"),
            8 if self.postgres => format!("REVERSE({column}) {compares} {text}"),
            9 if self.postgres => format!(
                "{number}::text {} '{}'",
                self.random.one_of(&["~", "!~", "<>"]),
                self.random.one_of(&["^1$", "2", "^-"])
            ),
            10 if self.postgres => format!("{number}::text || {column} {compares} '1x'"),
            4 => format!("CHAR_LENGTH({column}) {compares} {length}"),
            5 => format!("CONCAT({column}, 'y') {compares} {other}"),
            6 => format!("{column} LIKE CONCAT({other}, '%')"),
            _ => format!("UPPER({column}) {compares} {other}"),
        }
    }
}
