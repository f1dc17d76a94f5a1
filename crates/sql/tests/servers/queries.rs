//! Random queries: conditions without parentheses where the grammar allows it, so that the precedence of operators is the server's; joins of all
//! kinds; sub-queries; and clauses around them.

use crate::Random;

/// Tables with the columns [`COLUMNS`]; names of tables in queries are in braces.
pub(crate) const TABLES: [&str; 4] = ["ta", "tb", "tc", "td"];
/// In the order of the tables' rows.
pub(crate) const COLUMNS: [&str; 12] = ["id", "a", "b", "n", "k", "s", "e", "d", "t", "z", "f", "g"];
pub(crate) const NUMBERS: &[&str] = &["a", "b", "n", "k"];
const FLOATS: &[&str] = &["f", "g"];
const DATES: &[&str] = &["d", "t", "z"];

/// The parts of a query with ORDER BY and LIMIT, without SELECT.
pub(crate) struct Cut {
    pub(crate) statement: String,
    /// A query for its rows as one text; without LIMIT if that does not determine them.
    pub(crate) all: String,
    /// A query for its rows, without SELECT and FROM.
    shown: String,
    /// It has a LIMIT of this many rows without ORDER BY.
    pub(crate) open: Option<usize>,
    /// The names of the columns of its rows.
    pub(crate) names: Vec<String>,
}

impl Cut {
    /// A query for the number of rows and their values in these columns, in order; then behind `|` their values if the query does not determine the
    /// rows.
    pub(crate) fn rows(&self, columns: &[usize], postgres: bool) -> String {
        let text = if postgres { "::text" } else { "" };
        let cells: Vec<String> =
            columns.iter().map(|at| format!("COALESCE(q.{}{text}, 'NULL')", self.names[*at])).collect();
        let row = format!("CONCAT_WS(',', {})", cells.join(", "));
        let rows = if postgres {
            format!("count(*) || ';' || COALESCE(string_agg({row}, ';'), '')")
        } else {
            format!("CONCAT(COUNT(*), ';', IFNULL(GROUP_CONCAT({row} SEPARATOR ';'), ''))")
        };
        // PostgreSQL's order is used for both.
        let rows = if self.open.is_some() { format!("CONCAT({rows}, '|', {})", self.shown) } else { rows };
        format!("{rows} FROM (SELECT {}) q", self.statement)
    }
}

/// The FROM clause and order of rows under LIMIT.
struct Sorted {
    list: String,
    group: String,
    order: String,
    /// Further sort keys, if the first has ties.
    others: Option<String>,
    /// Those of its columns that are compared.
    shown: Vec<String>,
    names: Vec<String>,
}

/// Makes queries for one dialect.
pub(crate) struct Queries<'r> {
    pub(crate) random: &'r mut Random,
    pub(crate) postgres: bool,
    /// The kinds of SELECT and FROM of the last query.
    pub(crate) shape: [&'static str; 2],
    /// Views with the columns [`COLUMNS`].
    pub(crate) views: Vec<&'static str>,
}

impl Queries<'_> {
    pub(crate) fn of(&mut self, everywhere: &[&str], postgres: &[&str], mysql: &[&str]) -> String {
        let own = if self.postgres { postgres } else { mysql };
        let items: Vec<&str> = everywhere.iter().chain(own).copied().collect();
        self.random.one_of(&items).to_owned()
    }

    /// A condition over the aliases.
    pub(crate) fn condition(&mut self, aliases: &[&str], depth: usize) -> String {
        if depth == 0 || self.random.below(5) == 0 {
            return self.atom(aliases);
        }
        let left = self.condition(aliases, depth - 1);
        let right = self.condition(aliases, depth - 1);
        let connector = self.of(&["AND", "AND", "AND", "OR", "OR"], &[], &["&&", "XOR"]);
        match self.random.below(8) {
            0 | 1 => format!("({left} {connector} {right})"),
            2 => format!("NOT {left} {connector} {right}"),
            3 => format!("NOT ({left} {connector} {right})"),
            _ => format!("{left} {connector} {right}"),
        }
    }

    fn number(&mut self) -> String {
        let mysql = &["'1abc'", "'-1'", "'05'", "18446744073709551615", "1e0"];
        let both = &["0", "1", "2", "-1", "1.0", "'1'", "'0'", "3", "9007199254740992"];
        // MySQL 8.0 rounds a fraction to look up an integer in a derived table, so its answer depends on the plan.
        self.of(both, &["'2'", "9007199254740993", "1.5", "-0.5", "0.5"], mysql)
    }

    fn text(&mut self) -> String {
        self.of(
            &["'x'", "'X'", "'y '", "'1'", "'xy'", "'x y'", "''", "'é'", "'abcdefghij'", "'ss'", "'xi'"],
            &[],
            &["\"x\""],
        )
    }

    fn pattern(&mut self) -> String {
        let both = [
            "'x%'",
            "'X%'",
            "'x %'",
            "'x  %'",
            "'x'",
            "'%x'",
            "'x_%'",
            "'abcdefgh%'",
            "'abcdefghi_'",
            "' %'",
            "'é%'",
            "'%x%'",
            "'%X%'",
            "'%é%'",
            "'_'",
            "'_y%'",
            "'%y'",
            "'%_ '",
            "''",
            "'%'",
            "'%!_%'",
            "'%!%%'",
            "'%k%'",
            "'%cdefghi_'",
            "'%i%'",
            "'xI'",
        ];
        self.of(&both, &["'x\\_y'", "'x\\%'", "'%\\_%'"], &["'x\\_y'", "'x %y'", "'%\\%%'"])
    }

    fn date(&mut self) -> String {
        let both = &[
            "'2026-01-01'",
            "'2026-01-02'",
            "'2026-01-01 00:00:00'",
            "'2026-01-01 10:00:00'",
            "'2026-01-01 10:00:00.5'",
            "'2026-01-01 10:00:00.500001'",
            "'2025-12-31 23:59:59.999999'",
            "'2026-03-29 02:30:00'",
            "'2026-03-29'",
            "'2026-1-2'",
            "'0001-01-01'",
            "date '2026-01-01'",
            "timestamp '2026-01-01 10:00:00'",
            "date '2026-01-31' - interval '1' month",
            "date '2025-11-30' + interval '1' month + interval '2' day",
            "(date '2027-01-01' - interval '1' year)",
        ];
        let postgres = &[
            "'2026-01-01'::date",
            "date '2026-02-01' - interval '1 month'",
            "'2026-01-02 10:00:00'::date",
            "'2026-01-01 10:00:00'::timestamp",
            "'2026-01-01 00:30:00+02'::timestamptz",
            "'2026-01-01'::timestamptz",
            "'2026-01-01 10:00:00+05'::timestamp",
            "'2026-01-01T23:30:00Z'",
            "'2026-01-01 00:00:00+00'",
            "'2026-01-02 05:00:00+05:30'",
            "'infinity'",
            "'-infinity'",
            "'01/02/2026'",
            "'10000-01-01'",
            "'0044-03-15 BC'",
        ];
        let mysql = &[
            "20260101",
            "20260101100000",
            "'20260101'",
            "'0000-00-00'",
            "'2026-02-00'",
            "'2026-02-30'",
            "'2026-01-01T10:00:00'",
            "'2026-01-01 10:00:00.4999999'",
            "'2026-01-01 10:00:00.4996'",
            "'2026-01-01 23:59:59.9999'",
            "'2026-01-01abc'",
            "DATE'2026-01-01'",
            "TIMESTAMP'2026-01-01 10:00:00'",
        ];
        self.of(both, postgres, mysql)
    }

    fn date_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let column = format!("{alias}.{}", self.random.one_of(DATES));
        let (x, y) = (self.date(), self.date());
        let other = format!("{}.{}", self.random.one_of(aliases), self.random.one_of(DATES));
        let compares = self.random.one_of(&["<", "<=", ">", ">="]).to_owned();
        match self.random.below(16) {
            0..=2 => format!("{column} = {x}"),
            3 => format!("{x} = {column}"),
            4 | 5 => format!("{column} IN ({x}, {y})"),
            6 | 7 => format!("{column} {} {x} AND {y}", self.between()),
            8..=10 => format!("{column} {compares} {x}"),
            11 => format!("{x} {compares} {column}"),
            12 => format!("{column} = {other}"),
            13 => format!("{column} NOT {} {x} AND {y}", self.between()),
            14 => format!("{column} <> {x}"),
            _ if self.postgres => format!("{column} = ANY('{{2026-01-01,\"2026-01-02 00:00:00\", NULL}}')"),
            _ => format!("{column} <=> {x}"),
        }
    }

    fn float(&mut self) -> String {
        let both =
            &["0", "0.1", "'0.1'", "-0.1", "1.5", "'1.5'", "16777217", "'16777217'", "1e0", "'-0'", "3", "1e300"];
        let postgres = &["'NaN'", "'Infinity'", "'-Infinity'", "0.1000000000000000055511151231257827"];
        self.of(both, postgres, &["0.10000000149011612", "'0.1abc'", "'x'"])
    }

    fn float_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let column = format!("{alias}.{}", self.random.one_of(FLOATS));
        let (x, y) = (self.float(), self.float());
        let other = format!("{}.{}", self.random.one_of(aliases), self.random.one_of(&["f", "g", "n", "a"]));
        let compares = self.random.one_of(&["<", "<=", ">", ">="]);
        match self.random.below(12) {
            0..=2 => format!("{column} = {x}"),
            3 => format!("{column} IN ({x}, {y})"),
            4 => format!("{column} BETWEEN {x} AND {y}"),
            5..=7 => format!("{column} {compares} {x}"),
            8 => format!("{x} {compares} {column}"),
            9 => format!("{column} = {other}"),
            10 => format!("{column} <> {x}"),
            _ if self.postgres => format!("{column} = ANY('{{0.1, 2}}')"),
            _ => format!("{column} <=> {x}"),
        }
    }

    pub(crate) fn atom(&mut self, aliases: &[&str]) -> String {
        let alias = self.random.one_of(aliases);
        match self.random.below(11) {
            8 => self.row_atom(alias, aliases),
            9 | 10 => self.residual_atom(alias),
            6 => self.nested_atom(alias),
            7 => self.negative_atom(alias, aliases),
            3 => self.float_atom(alias, aliases),
            0 => self.special_atom(alias, aliases),
            1 => self.text_atom(alias),
            2 => self.date_atom(alias, aliases),
            _ => self.number_atom(alias, aliases),
        }
    }

    pub(crate) fn number_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let column = format!("{alias}.{}", self.of(&["a", "a", "b", "b", "n", "k"], &[], &["A"]));
        let (x, y, z) = (self.number(), self.number(), self.number());
        let other = format!("{}.{}", self.random.one_of(aliases), self.random.one_of(NUMBERS));
        let compares = self.random.one_of(&["<", "<=", ">", ">="]).to_owned();
        match self.random.below(22) {
            0..=4 => format!("{column} = {x}"),
            5 => format!("{x} = {column}"),
            6 | 7 => format!("{column} IN ({x}, {y})"),
            8 => format!("{column} IN ({x}, {y}, {z})"),
            9 => format!("{column} {} {x} AND {y}", self.between()),
            10 | 11 => format!("{column} {compares} {x}"),
            12 => format!("{x} {compares} {column}"),
            13 => format!("{column} = {x} OR {column} = {y}"),
            14..=17 => format!("{column} = {other}"),
            18 => format!("{column} NOT {} {x} AND {y}", self.between()),
            19 => format!("{column} NOT IN ({x}, {y})"),
            20 => format!("{column} {} {x}", self.random.one_of(&["<>", "!="])),
            _ => format!("{column} {} {y} AND {other}", self.between()),
        }
    }

    fn between(&mut self) -> &'static str {
        if self.postgres && self.random.below(3) == 0 { "BETWEEN SYMMETRIC" } else { "BETWEEN" }
    }

    fn text_atom(&mut self, alias: &str) -> String {
        let column = format!("{alias}.{}", self.random.one_of(&["s", "e"]));
        let (x, y, pattern) = (self.text(), self.text(), self.pattern());
        let compares = self.random.one_of(&["<", "<=", ">", ">="]);
        let cast = if self.postgres { self.random.one_of(&["", "::text", "::varchar"]) } else { "" };
        if self.random.below(3) == 0 {
            return self.folded_atom(&column);
        }
        match self.random.below(15) {
            12 | 13 => format!("{column} {compares} {x}"),
            14 => format!("{x} {compares} {column}"),
            0 | 1 => format!("{column}{cast} = {x}"),
            2 => format!("{column}{cast} IN ({x}, {y})"),
            3..=6 => format!("{column} LIKE {pattern}"),
            7 => format!("{column} NOT LIKE {pattern}"),
            8 => format!("{column} {} {pattern} ESCAPE '!'", self.random.one_of(&["LIKE", "NOT LIKE"])),
            9 => format!("{column} BETWEEN {x} AND {y}"),
            10 => format!("{column} = {x} COLLATE {}", if self.postgres { "\"C\"" } else { "utf8mb4_bin" }),
            _ => format!("{column} = {alias}.{}", self.random.one_of(&["s", "e"])),
        }
    }

    /// Of a text: in one case, or not a value.
    fn folded_atom(&mut self, column: &str) -> String {
        let (x, y, pattern) = (self.text(), self.text(), self.pattern());
        let (case, other) = (self.random.one_of(&["UPPER", "LOWER"]), self.random.one_of(&["UPPER", "LOWER"]));
        let cast = if self.postgres { self.random.one_of(&["", "::text", "::varchar"]) } else { "" };
        let like = self.random.one_of(&["LIKE", "LIKE", "NOT LIKE"]);
        match self.random.below(14) {
            0 => format!("{case}({column}{cast}) = {case}({x})"),
            1 => format!("{x} = {case}({column})"),
            2 => format!("{case}({column}) IN ({case}({x}), {other}({y}))"),
            3 | 4 => format!("{case}({column}{cast}) {like} {case}({pattern})"),
            5 => format!("{case}({column}) {like} {pattern}"),
            6 => format!("{case}({column}) {like} {other}({pattern})"),
            7 => format!("{column}{cast} {like} {pattern}"),
            8 => format!("{column} <> {x}"),
            9 => format!("{column} NOT IN ({x}, {y})"),
            10 => format!("NOT ({case}({column}) = {x})"),
            11 if self.postgres => format!("{column} IS DISTINCT FROM {x}"),
            12 if self.postgres => format!("{column} NOT ILIKE {pattern}"),
            _ if self.postgres => format!("{column} ILIKE {pattern}"),
            11 => format!("NOT ({column} <=> {x})"),
            _ => format!("{column} {like} BINARY {pattern}"),
        }
    }

    /// A test and its negation.
    fn negative_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let column = format!("{alias}.{}", self.random.one_of(&COLUMNS));
        let (one, two) = (self.atom(aliases), self.atom(aliases));
        let (x, y) = (self.number(), self.number());
        let number = format!("{alias}.{}", self.random.one_of(NUMBERS));
        match self.random.below(11) {
            0 => format!("NOT ({one})"),
            1 => format!("NOT ({one} AND {column} IS NOT NULL)"),
            2 | 3 => format!("NOT ({number} = {x} AND {number} IS NOT NULL)"),
            10 => format!("NOT ({one} OR {two})"),
            4 => format!("(NOT ({one}) OR {column} IS NULL)"),
            5 => format!("NOT {column} IS NULL"),
            6 => format!("NOT (({alias}.a, {alias}.n) = ({x}, {y}))"),
            7 if self.postgres => format!("{number} <> ALL(ARRAY[{}, 1])", self.random.one_of(&["0", "2", "NULL"])),
            8 if self.postgres => format!("{number} IS DISTINCT FROM {x}"),
            9 if self.postgres => {
                format!("{number}::text LIKE {}", self.random.one_of(&["'1%'", "'%1'", "'_'", "'%.%'", "'1'"]))
            }
            _ if self.postgres => {
                format!("({one}) IS {}", self.random.one_of(&["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"]))
            }
            7 => format!("NOT ({number} <=> {x})"),
            8 => format!("NOT {number} = {x} IS {}", self.random.one_of(&["TRUE", "FALSE", "UNKNOWN"])),
            _ => format!("({one}) IS {}", self.random.one_of(&["TRUE", "FALSE"])),
        }
    }

    fn special_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let column = format!("{alias}.{}", self.random.one_of(&["a", "b"]));
        let (x, y) = (self.random.one_of(&["0", "1", "2"]), self.random.one_of(&["0", "1", "2"]));
        let any = format!("{alias}.{}", self.random.one_of(&COLUMNS));
        let correlated = format!("w.{} = {alias}.{}", self.random.one_of(NUMBERS), self.random.one_of(NUMBERS));
        let inner = if self.random.below(2) == 0 { self.number_atom("w", &["w"]) } else { "w.s IS NULL".to_owned() };
        match self.random.below(18) {
            15..=17 => self.negative_atom(alias, aliases),
            0..=3 => format!("{any} IS NULL"),
            14 => format!("({column}, {alias}.n) = ({x}, {y})"),
            4 => format!("{any} IS NOT NULL"),
            5 => format!("EXISTS (SELECT 1 FROM {{td}} w WHERE {correlated} AND {inner})"),
            6 => format!("NOT EXISTS (SELECT 1 FROM {{td}} w WHERE {correlated} AND {inner})"),
            7 => format!("{column} IN (SELECT w.a FROM {{td}} w WHERE {inner})"),
            8 => format!("CASE WHEN {column} = {x} THEN {alias}.b ELSE {y} END = {y}"),
            _ if self.postgres => self.postgres_atom(alias, aliases),
            _ => self.mysql_atom(alias, &column, x, y),
        }
    }

    /// A comparison of rows.
    fn row_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let kinds = [self.random.below(9), self.random.below(9)];
        let columns = kinds.map(|kind| match kind {
            0 => format!("{alias}.{}", self.random.one_of(DATES)),
            1 => format!("{alias}.{}", self.random.one_of(FLOATS)),
            2 => format!("{alias}.{}", self.random.one_of(&["s", "e"])),
            _ => format!("{}.{}", self.random.one_of(aliases), self.random.one_of(NUMBERS)),
        });
        let mut row = || {
            let values = kinds.map(|kind| match (kind, self.random.below(16)) {
                (_, 0) => "NULL".to_owned(),
                (0, _) => self.date(),
                (1, _) => self.float(),
                (2, _) => self.text(),
                _ => self.number(),
            });
            values.join(", ")
        };
        let (one, two, three) = (row(), row(), row());
        let compares = self.random.one_of(&["<", "<=", ">", ">=", "=", "<>"]);
        let columns = columns.join(", ");
        let not = self.random.one_of(&["", "", "", "NOT "]);
        match self.random.below(8) {
            0 => format!("({columns}) {not}IN (({one}))"),
            1 | 2 => format!("({columns}) {not}IN (({one}), ({two}))"),
            3 => format!("({columns}) {not}IN (({one}), ({two}), ({three}))"),
            4 => format!("{not}({one}) {compares} ({columns})"),
            _ => format!("{not}({columns}) {compares} ({one})"),
        }
    }

    fn postgres_atom(&mut self, alias: &str, aliases: &[&str]) -> String {
        let column = format!("{alias}.{}", self.random.one_of(NUMBERS));
        let other = self.random.one_of(aliases);
        match self.random.below(9) {
            0 => format!("{column} = ANY('{{1, NULL}}')"),
            1 => format!("{column} = ANY('{{ 0 ,\"2\"}}')"),
            2 => format!("{column} = ANY(ARRAY[1, 2])"),
            3 => format!("{alias}.a = ANY('{{1,5}}'::int[])"),
            4 => format!("{alias}.s = ANY('{{x,\"x y\",\"\"}}')"),
            5 => format!("{alias}.s = ANY(ARRAY['x', 'y'])"),
            6 => format!("{other} IS NULL"),
            7 => format!("{column} = 1 IS NOT TRUE"),
            _ => format!("{column} IS NOT DISTINCT FROM 1"),
        }
    }

    fn mysql_atom(&mut self, alias: &str, column: &str, x: &str, y: &str) -> String {
        match self.random.below(9) {
            0 => format!("{column} <=> {x}"),
            1 => format!("{alias}.s = BINARY 'x'"),
            2 => format!("BINARY {alias}.s = 'x'"),
            3 => format!("{alias}.s LIKE 'x%' = {y}"),
            4 => format!("{column} = {x} = {y}"),
            5 => format!("{column} < {x} {} 1", self.random.one_of(&["DIV", "MOD", "^", "|", "-", "<<"])),
            6 => format!("{column} = {x} IS {}", self.random.one_of(&["TRUE", "NOT TRUE", "NULL", "UNKNOWN"])),
            7 => format!("{column} IN ({x}) = {y}"),
            _ => format!("{column} BETWEEN {x} AND {y} IS NULL"),
        }
    }

    fn join(&mut self) -> String {
        let both = &["JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "LEFT OUTER JOIN"];
        self.of(both, &["FULL JOIN"], &["CROSS JOIN", "STRAIGHT_JOIN"])
    }

    /// The condition of a join: mostly an equality of columns, and more.
    pub(crate) fn on(&mut self, left: &str, right: &str, all: &[&str]) -> String {
        let columns = (self.random.one_of(NUMBERS), self.random.one_of(NUMBERS));
        let equal = match self.random.below(10) {
            0 => return self.condition(all, 1),
            8 => format!("{left}.d = {right}.d"),
            9 => format!("{left}.t = {right}.{}", self.random.one_of(DATES)),
            1 => format!("{left}.e = {right}.e"),
            2 | 7 => format!("{left}.s = {right}.s"),
            _ => format!("{left}.{} = {right}.{}", columns.0, columns.1),
        };
        match self.random.below(4) {
            0 | 1 => equal,
            // A constant of one side alone.
            2 => format!("{equal} AND {right}.{} = {}", columns.1, self.number()),
            _ => format!("{equal} AND {}", self.atom(all)),
        }
    }

    /// A table joined with a sub-select, on a plain column of that mostly.
    fn derived(&mut self, join: &str) -> String {
        let (column, other) = (self.random.one_of(NUMBERS), self.random.one_of(NUMBERS));
        let inner = self.number_atom("w", &["w"]);
        let shown = self.random.one_of(&["w.", "w.", "w.", "v.", "0 + w.", "1.5 * w."]);
        let from = self.random.one_of(&["", " JOIN {tb} v ON v.a = w.b", " LEFT JOIN {tb} v ON v.a = w.b"]);
        let from = if shown == "v." && from.is_empty() { " JOIN {tb} v ON v.b = w.a" } else { from };
        // In an order without ties.
        let limit = if from.is_empty() { " ORDER BY w.id LIMIT 2" } else { " ORDER BY w.id, v.id LIMIT 2" };
        let end = self.random.one_of(&["", "", limit, " UNION SELECT u.a FROM {tc} u WHERE u.b = 1"]);
        let distinct = if end.is_empty() { self.random.one_of(&["", "DISTINCT "]) } else { "" };
        let more = if self.random.below(3) == 0 { " AND x.b = 1" } else { "" };
        format!(
            "{{ta}} x {join} (SELECT {distinct}{shown}{column} AS p FROM {{td}} w{from} WHERE {inner}{end}) d ON x.{other} = d.p{more}"
        )
    }

    /// A FROM clause and its aliases.
    fn from(&mut self) -> (String, &'static [&'static str]) {
        const X: &[&str] = &["x"];
        const XY: &[&str] = &["x", "y"];
        const XYZ: &[&str] = &["x", "y", "z"];
        let (one, two) = (self.join(), self.join());
        let plain = |join: &str| join.replace("STRAIGHT_JOIN", "JOIN").replace("CROSS JOIN", "JOIN");
        let from = self.random.below(18);
        self.shape[1] = match from {
            0 | 1 => "one table",
            4 => "a cross join",
            5..=7 => "three tables",
            8 if !self.postgres => "three tables",
            11 | 12 => "a derived table",
            13..=17 if self.views.is_empty() => "blocks in blocks",
            13..=17 => "blocks and views",
            _ if one.contains("LEFT") || one.contains("RIGHT") || one.contains("FULL") => "an outer join",
            _ => "a join",
        };
        match from {
            0 | 1 => ("{ta} x".to_owned(), X),
            11 | 12 => (self.derived(&plain(&one)), X),
            13..=17 => self.nested_from(&plain(&one)),
            2 | 3 => (format!("{{ta}} x {one} {{tb}} y ON {}", self.on("x", "y", XY)), XY),
            4 => ("{ta} x, {tb} y".to_owned(), XY),
            5 | 6 => {
                let (on_one, on_two) = (self.on("x", "y", XY), self.on("y", "z", XYZ));
                (format!("{{ta}} x {one} {{tb}} y ON {on_one} {two} {{tc}} z ON {on_two}"), XYZ)
            }
            7 => {
                let (on_two, on_one) = (self.on("y", "z", &["y", "z"]), self.on("x", "y", XYZ));
                (format!("{{ta}} x {} {{tb}} y {} {{tc}} z ON {on_two} ON {on_one}", plain(&one), plain(&two)), XYZ)
            }
            8 if !self.postgres => {
                let on = self.on("y", "z", &["y", "z"]);
                (format!("{{ta}} x JOIN {{tb}} y {two} {{tc}} z ON {on}"), XYZ)
            }
            9 if self.random.below(6) == 0 => ("{ta} x NATURAL JOIN {tb} y".to_owned(), XY),
            _ => (format!("{{ta}} x {} {{tb}} y USING (b)", plain(&one)), XY),
        }
    }

    /// One value of all rows; the columns are of numbers.
    pub(crate) fn group(&self, columns: &[String]) -> String {
        if self.postgres {
            let shown: Vec<String> = columns.iter().map(|column| format!("COALESCE({column}::text, '-')")).collect();
            let shown = format!("concat_ws(':', {})", shown.join(", "));
            return format!("COALESCE(string_agg({shown}, ',' ORDER BY {shown}), 'none')");
        }
        let shown: Vec<String> = columns.iter().map(|column| format!("IFNULL({column}, '-')")).collect();
        let shown = shown.join(", ");
        format!("IFNULL(GROUP_CONCAT(CONCAT_WS(':', {shown}) ORDER BY {shown}), 'none')")
    }

    /// A query with an order without ties, and LIMIT. Its tables are in braces.
    pub(crate) fn cut(&mut self) -> Cut {
        if self.random.below(8) == 0 {
            return self.of_values();
        }
        let (from, aliases) = match self.random.below(6) {
            0 | 1 => self.joined(),
            2 => self.from(),
            _ => ("{ta} x".to_owned(), &["x"][..]),
        };
        let Sorted { list, group, order, others, shown, names } = match self.random.below(4) {
            0 => self.grouped(aliases),
            _ => self.listed(aliases, aliases.len() == 1 && !from.contains("JOIN")),
        };
        let kind = if group.is_empty() && others.is_some() { "a LIMIT" } else { "a LIMIT of groups" };
        self.shape = [kind, if aliases.len() == 1 { "one table" } else { "several tables" }];
        // By its number.
        let key = if others.is_none() { Some("c") } else { shown.last().and_then(|key| key.strip_prefix("q.")) };
        let number =
            key.and_then(|key| names.iter().position(|name| name == key)).filter(|_| self.random.below(4) == 0);
        let order = number.map_or(order, |at| (at + 1).to_string());
        let direction = self.of(&["", "", " DESC"], &[" NULLS FIRST", " DESC NULLS LAST"], &[" ASC"]);
        let rows = 1 + self.random.below(6) + 10 * self.random.below(2);
        let offset = self.random.below(4);
        let ties = self.random.one_of(&["ONLY", "WITH TIES"]);
        let is_open = self.random.below(3) == 0;
        let rows = if is_open && self.random.below(12) == 0 { 0 } else { rows };
        let open = is_open.then_some(rows);
        let limit = match self.random.below(6) {
            3.. if is_open && self.postgres && rows > 0 => format!("FETCH FIRST {rows} ROWS ONLY"),
            1.. if is_open => format!("LIMIT {rows}"),
            0 => format!("LIMIT {rows} OFFSET {offset}"),
            1 if self.postgres => format!("OFFSET {offset} ROWS FETCH FIRST {rows} ROWS {ties}"),
            1 => format!("LIMIT {offset}, {rows}"),
            // All rows, with their keys.
            2..=4 if others.is_some() => String::new(),
            _ => format!("LIMIT {rows}"),
        };
        if is_open {
            self.shape[0] = "a LIMIT in no order";
        }
        if limit.is_empty() {
            self.shape[0] = "all that is listed";
        }
        let condition = match self.random.below(3) {
            0 if limit.is_empty() => {
                format!(" WHERE {}.{} = {}", aliases[0], self.random.one_of(NUMBERS), self.random.below(3))
            }
            0 => String::new(),
            depth => format!(" WHERE {}", self.condition(aliases, depth - 1)),
        };
        let rows = format!("{list} FROM {from}{condition}{group}");
        if open.is_none() && !limit.is_empty() && others.is_some() && self.random.below(2) == 0 {
            let order = format!("ORDER BY {order}{direction}{}", others.unwrap_or_default());
            return self.page(&format!("{rows} {order} {limit}"), names, shown, aliases[0]);
        }
        let order = format!("ORDER BY {order}{direction}{}", others.unwrap_or_default());
        let (statement, compared) = match open {
            Some(_) => (format!("{rows} {limit}"), rows),
            None => (format!("{rows} {order} {limit}"), format!("{rows} {order} {limit}")),
        };
        let shown = self.group(&shown);
        let all = format!("{shown} FROM (SELECT {compared}) q");
        Cut { statement, all, shown, open, names }
    }

    /// Rows without keys, with an unordered LIMIT.
    fn of_values(&mut self) -> Cut {
        self.shape = ["a LIMIT in no order", "values alone"];
        let sides: Vec<String> = (0..=self.random.below(3)).map(|_| self.side_of_values()).collect();
        let operations: &[&str] = if self.postgres {
            &["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"]
        } else {
            &["UNION", "UNION ALL"]
        };
        let mut rows = String::new();
        for side in sides {
            let operation = self.random.one_of(operations);
            rows = if rows.is_empty() { side } else { format!("{rows} {operation} SELECT {side}") };
        }
        let rows_max = 1 + self.random.below(4);
        let shown = self.group(&["q.c".to_owned(), "q.d".to_owned()]);
        let (statement, all) = (format!("{rows} LIMIT {rows_max}"), format!("{shown} FROM (SELECT {rows}) q"));
        Cut { statement, all, shown, open: Some(rows_max), names: vec!["c".to_owned(), "d".to_owned()] }
    }

    fn side_of_values(&mut self) -> String {
        let (from, aliases) = match self.random.below(3) {
            0 => self.joined(),
            _ => (format!("{{{}}} x", self.random.one_of(&["ta", "tb", "tc"])), &["x"][..]),
        };
        let [one, two] = [(); 2].map(|()| format!("{}.{}", self.random.one_of(aliases), self.random.one_of(NUMBERS)));
        let condition = match self.random.below(4) {
            0 => format!(" WHERE {one} > {two}"),
            1 => format!(" WHERE {two} IS NOT NULL"),
            2 => format!(" WHERE {}", self.condition(aliases, 1)),
            _ => String::new(),
        };
        match self.random.below(4) {
            0 => format!("DISTINCT {one} AS c, {two} AS d FROM {from}{condition}"),
            1 => format!("{one} AS c, COUNT(*) AS d FROM {from}{condition} GROUP BY {one}"),
            2 => {
                format!("{one} AS c, MAX({two}) AS d FROM {from}{condition} GROUP BY {one}, {two} HAVING COUNT(*) < 3")
            }
            _ => format!("{one} AS c, {two} AS d FROM {from}{condition}"),
        }
    }

    /// Such rows joined with others.
    fn page(&mut self, page: &str, mut names: Vec<String>, mut shown: Vec<String>, alias: &str) -> Cut {
        self.shape = ["a page in FROM", "several tables"];
        let id = if names.len() == COLUMNS.len() { "id".to_owned() } else { format!("i{alias}") };
        let listed = names.iter().map(|name| format!("p.{name}")).collect::<Vec<_>>().join(", ");
        let join = self.random.one_of(&["LEFT JOIN", "LEFT JOIN", "LEFT JOIN", "JOIN", "RIGHT JOIN"]);
        let column = self.random.one_of(NUMBERS);
        let more = match self.random.below(6) {
            0 => format!(" WHERE o.{} = {}", self.random.one_of(NUMBERS), self.random.below(3)),
            1 => format!(" WHERE p.{id} > {}", self.random.below(10)),
            2 => format!(" ORDER BY {listed}, o.id LIMIT {}", 1 + self.random.below(12)),
            _ => String::new(),
        };
        let distinct = self.random.one_of(&["", "", "DISTINCT "]);
        let statement = format!(
            "{distinct}{listed}, o.id AS io FROM (SELECT {page}) p {join} {{td}} o ON o.{column} = p.{id}{more}"
        );
        names.push("io".to_owned());
        shown.push("q.io".to_owned());
        let shown = self.group(&shown);
        let all = format!("{shown} FROM (SELECT {statement}) q");
        Cut { statement, all, shown, open: None, names }
    }

    /// Rows as they are.
    fn listed(&mut self, aliases: &[&str], is_alone: bool) -> Sorted {
        // Of the other tables, one returns a column that is not its key.
        let keyed = if self.random.below(2) == 0 { &aliases[..1] } else { aliases };
        let alias = self.random.one_of(if keyed.len() < aliases.len() { &aliases[1..] } else { aliases });
        let column = if is_alone || self.random.below(2) == 0 {
            self.random.one_of(&COLUMNS)
        } else {
            self.random.one_of(&["id", "a", "b", "n"])
        };
        let qualified = format!("{alias}.{column}");
        let bare = if is_alone { column.to_owned() } else { qualified.clone() };
        let of_ids = || keyed.iter().map(|alias| format!("i{alias}"));
        let ids: Vec<String> = keyed.iter().map(|alias| format!("{alias}.id AS i{alias}")).collect();
        let ids = ids.join(", ");
        let other = format!("{alias}.{}", self.random.one_of(NUMBERS));
        let counted = self.random.one_of(&["*", "v.a", "v.a"]);
        let counted = if self.random.below(4) == 0 { other.clone() } else { counted.to_owned() };
        let made = match self.random.below(3) {
            0 => format!("(SELECT COUNT({counted}) FROM {{td}} v WHERE v.{} = {other})", self.random.one_of(NUMBERS)),
            1 => format!("(SELECT COUNT({counted}) FROM {{td}} v)"),
            _ => format!("ABS({other})"),
        };
        let (list, order, key, further) = match self.random.below(7) {
            0 if is_alone => ("*".to_owned(), bare, column, vec![]),
            1 => (format!("{ids}, {qualified}"), bare, column, vec![column]),
            2 => (format!("{qualified} AS c, {ids}"), "c".to_owned(), "c", vec![]),
            // An unqualified name is that of a column of the answer, which is another column of the table.
            3 if is_alone => (format!("{ids}, {other} AS {column}, {qualified} AS c"), bare, column, vec![column, "c"]),
            // The sort key is not in the answer.
            6 => (format!("{ids}, {other} + 1 AS d"), qualified, "d", vec!["d"]),
            4 => (format!("{ids}, {made} AS d, {qualified} AS c"), qualified, "c", vec!["d", "c"]),
            _ => (format!("{ids}, {qualified} AS c, {other} + 1 AS d"), qualified, "c", vec!["c", "d"]),
        };
        let further = further.into_iter().map(str::to_owned);
        let names: Vec<String> = match list.as_str() {
            "*" => COLUMNS.map(str::to_owned).to_vec(),
            _ if further.len() == 0 => std::iter::once("c".to_owned()).chain(of_ids()).collect(),
            _ => of_ids().chain(further).collect(),
        };
        let shown = match list.as_str() {
            "*" => COLUMNS.iter().map(|column| format!("q.{column}")).collect(),
            _ => of_ids().chain([key.to_owned()]).map(|name| format!("q.{name}")).collect(),
        };
        let others = aliases.iter().fold(String::new(), |text, alias| format!("{text}, {alias}.id"));
        Sorted { list, group: String::new(), order, others: Some(others), shown, names }
    }

    /// One row for each value.
    fn grouped(&mut self, aliases: &[&str]) -> Sorted {
        let alias = self.random.one_of(aliases);
        let exact: Vec<&str> = NUMBERS.iter().chain(DATES).copied().collect();
        let column = format!("{alias}.{}", self.random.one_of(&exact));
        let other = format!("{}.{}", self.random.one_of(aliases), self.random.one_of(NUMBERS));
        let shown = |columns: &[&str]| columns.iter().map(|column| format!("q.{column}")).collect();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        if self.random.below(2) == 0 {
            let (list, group) = (format!("DISTINCT {column} AS c"), String::new());
            let order = "c".to_owned();
            return Sorted { list, group, order, others: None, shown: shown(&["c"]), names: names(&["c"]) };
        }
        let having = self.random.one_of(&["", " HAVING COUNT(*) > 1"]);
        let list = format!("COUNT(*) AS m, {column} AS c, MAX({other}) AS p");
        let group = format!(" GROUP BY {column}{having}");
        let (shown, names) = (shown(&["c", "m", "p"]), names(&["m", "c", "p"]));
        Sorted { list, group, order: column, others: None, shown, names }
    }

    /// Tables joined on numbers alone, with their aliases.
    fn joined(&mut self) -> (String, &'static [&'static str]) {
        let both = &["JOIN", "JOIN", "LEFT JOIN"];
        let numbers = |random: &mut Random| random.one_of(NUMBERS).to_owned();
        let [one, two, three, four] = [(); 4].map(|()| numbers(self.random));
        let from = format!("{{ta}} x {} {{tb}} y ON x.{one} = y.{two}", self.random.one_of(both));
        if self.random.below(3) > 0 {
            return (from, &["x", "y"]);
        }
        (format!("{from} {} {{tc}} z ON z.{three} = y.{four}", self.random.one_of(both)), &["x", "y", "z"])
    }

    /// Rows of a join with only a pattern as condition.
    fn by_pattern(&mut self) -> String {
        self.shape = ["rows", "a join by a pattern"];
        let (from, aliases) = self.joined();
        let ids: Vec<String> = aliases.iter().map(|alias| format!("{alias}.id")).collect();
        let alias = self.random.one_of(aliases);
        format!("{} FROM {from} WHERE {}", self.group(&ids), self.text_atom(alias))
    }

    /// A query without SELECT, its tables in braces. The answer `none` or `0` mostly means no rows.
    pub(crate) fn query(&mut self) -> String {
        match self.random.below(12) {
            0 | 1 => return self.by_pattern(),
            2 => return self.paged(),
            3 => return self.absent(),
            4 if self.random.below(2) == 0 => return self.rare(),
            _ => {}
        }
        let (from, aliases) = self.from();
        let depth = self.random.below(4);
        // A pattern alone is the start of the join path.
        let condition = match self.random.below(6) {
            0 => {
                let alias = self.random.one_of(aliases);
                self.text_atom(alias)
            }
            _ => self.condition(aliases, depth),
        };
        let rows = format!("FROM {from} WHERE {condition}");
        let mut column = || format!("{}.{}", self.random.one_of(aliases), self.random.one_of(NUMBERS));
        let (one, two, three) = (column(), column(), column());
        let ids: Vec<String> = aliases.iter().map(|alias| format!("{alias}.id")).collect();
        // Equal numbers are printed alike.
        let of_q = self.group(&[if self.postgres { "q.p::float8" } else { "q.p" }.to_owned(), "q.c".to_owned()]);
        let kind = self.random.below(18);
        self.shape[0] = match kind {
            0..=4 | 11 => "rows",
            5 | 13 => "COUNT",
            6 => "GROUP BY, HAVING, LIMIT",
            7 => "ORDER BY, LIMIT",
            14 => "ORDER BY, OFFSET",
            15 => "MIN, MAX",
            16 => "WITH",
            17 => "DISTINCT",
            8 => "a window",
            9 => "UNION",
            10 => "a scalar sub-query",
            _ if self.postgres => "whole rows",
            _ => "COUNT(DISTINCT)",
        };
        match kind {
            0..=4 => format!("{} {rows}", self.group(&ids)),
            5 => format!("COUNT(*) {rows}"),
            6 => format!(
                "{of_q} FROM (SELECT {one} AS p, COUNT(*) AS c {rows} GROUP BY {one} HAVING MAX({two}) > 0 \
                 ORDER BY 1 LIMIT 3) q"
            ),
            7 => format!(
                "{of_q} FROM (SELECT {one} AS p, 1 AS c {rows} ORDER BY {two}, {}, {one} LIMIT 2) q",
                ids.join(", ")
            ),
            8 => format!(
                "{of_q} FROM (SELECT {one} AS p, RANK() OVER (PARTITION BY {two} ORDER BY {three}) AS c {rows}) q"
            ),
            9 => {
                let more = self.atom(&["w"]);
                format!(
                    "{of_q} FROM (SELECT {one} AS p, 1 AS c {rows} UNION SELECT w.a, 1 FROM {{td}} w WHERE {more}) q"
                )
            }
            10 => {
                let more = self.atom(&["v"]);
                let count = format!(
                    "(SELECT COUNT(*) FROM {{tc}} v WHERE v.{} = {two} AND {more})",
                    self.random.one_of(NUMBERS)
                );
                format!("{of_q} FROM (SELECT {one} AS p, {count} AS c {rows}) q")
            }
            11 => format!("{} {rows}", self.group(&[one])),
            14 => {
                let (order, offset) = (self.random.one_of(&["", "DESC"]), self.random.below(3));
                format!(
                    "{of_q} FROM (SELECT {one} AS p, 1 AS c {rows} ORDER BY {two} {order}, {}, {one} LIMIT 2 OFFSET {offset}) q",
                    ids.join(", ")
                )
            }
            15 => format!("{of_q} FROM (SELECT MIN({one}) AS p, MAX({two}) AS c {rows}) q"),
            16 => format!("{of_q} FROM (WITH r AS (SELECT {one} AS p, 1 AS c {rows}) SELECT * FROM r WHERE p > 0) q"),
            17 => format!("{of_q} FROM (SELECT DISTINCT {one} AS p, 1 AS c {rows}) q"),
            12 if self.postgres => format!("{} {rows}", self.group(&["x".to_owned()])),
            12 => format!("COUNT(DISTINCT {one}, {two}) {rows}"),
            _ => format!("COUNT({one}) {rows}"),
        }
    }
}
