//! Random nested query blocks: derived tables and common table expressions with the columns of a table, so that any condition may be outside them,
//! and sub-selects in conditions.

use crate::queries::{COLUMNS, NUMBERS, Queries};

/// Columns that can be grouped or merged with a certain result.
const GROUPED: [&str; 4] = ["a", "b", "k", "d"];

impl Queries<'_> {
    /// A query in parentheses with [`COLUMNS`].
    pub(crate) fn block(&mut self, depth: usize) -> String {
        let kind = self.random.below(17);
        match kind {
            0..=2 => {
                let (rows, alias) = self.block_rows(depth);
                let distinct = self.random.one_of(&["", "", "DISTINCT "]);
                format!("(SELECT {distinct}{} {rows})", self.list(alias))
            }
            3 => {
                let (rows, alias) = self.block_rows(0);
                format!("(SELECT {alias}.* {rows})")
            }
            4 => {
                let (rows, alias) = self.block_rows(0);
                let offset = self.random.one_of(&["", " OFFSET 1"]);
                // In an order without ties.
                let tie = if rows.contains("{tb} v") { ", v.id, w.id" } else { "" };
                format!("(SELECT {} {rows} ORDER BY {alias}.b, {alias}.id{tie} LIMIT 3{offset})", self.list(alias))
            }
            5 | 6 => self.in_groups(depth),
            7 => self.windowed(),
            8..=11 => {
                let operation = self.of(&["UNION", "UNION ALL", "UNION ALL"], &["EXCEPT", "INTERSECT"], &[]);
                let one = self.merged_side("{ta}");
                let two = self.merged_side("{tb}");
                format!("({one} {operation} {two})")
            }
            12 => format!("(WITH c AS {} SELECT * FROM c)", self.block(0)),
            13 | 14 => {
                let inner = if self.random.below(2) == 0 { self.block(0) } else { "(SELECT * FROM {ta} w)".to_owned() };
                let (more, column) = (self.number_atom("p", &["p"]), self.random.one_of(NUMBERS));
                let join = self.random.one_of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "JOIN"]);
                let on = self.random.one_of(&["p.id < q.id", "p.a = q.b", "p.b = q.a"]);
                format!(
                    "(WITH c AS {inner} SELECT q.* FROM c p {join} c q ON {on} AND p.{column} IS NOT NULL WHERE {more})"
                )
            }
            15 if self.postgres => {
                let columns = COLUMNS.join(", ");
                format!("(SELECT r.* FROM {} AS r ({columns}))", self.nested(0))
            }
            _ if depth == 0 => format!("(SELECT {} FROM {{ta}} w)", self.list("w")),
            _ => {
                let (inner, more) = (self.nested(depth - 1), self.atom(&["o"]));
                let condition = self.random.one_of(&["", "WHERE"]);
                let more = if condition.is_empty() { "" } else { &more };
                format!("(SELECT o.* FROM {inner} o {condition} {more})")
            }
        }
    }

    /// The same, or a view.
    fn nested(&mut self, depth: usize) -> String {
        if !self.views.is_empty() && self.random.below(2) == 0 {
            return self.random.one_of(&self.views.clone()).to_owned();
        }
        self.block(depth)
    }

    /// The columns under their names, some replaced by others of the same type.
    fn list(&mut self, alias: &str) -> String {
        let swap = self.random.below(4);
        let other = self.random.below(6);
        let column = |name: &str| match (name, swap, other) {
            ("a", 0, _) => format!("{alias}.b AS a"),
            ("b", 0, _) => format!("{alias}.a AS b"),
            ("a", _, 0) => format!("{alias}.a + 1 AS a"),
            ("b", _, 1) => format!("{alias}.n AS b"),
            ("n", _, 2) => format!("(SELECT MAX(m.n) FROM {{tc}} m WHERE m.a = {alias}.a) AS n"),
            _ => format!("{alias}.{name}"),
        };
        COLUMNS.map(column).join(", ")
    }

    /// FROM and WHERE with one or two tables or blocks, and the alias whose columns are returned.
    fn block_rows(&mut self, depth: usize) -> (String, &'static str) {
        let inner = if depth > 0 && self.random.below(3) == 0 { self.nested(depth - 1) } else { "{ta}".to_owned() };
        let single = self.random.below(3) == 0;
        let join = self.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN"], &["FULL JOIN"], &[]);
        let on = self.on("w", "v", &["w", "v"]);
        let aliases: &[&str] = if single { &["w"] } else { &["w", "v"] };
        let condition =
            if self.random.below(3) == 0 { String::new() } else { format!(" WHERE {}", self.condition(aliases, 1)) };
        let shown = if single || self.random.below(2) == 0 { "w" } else { "v" };
        let more = if single { String::new() } else { format!(" {join} {{tb}} v ON {on}") };
        (format!("FROM {inner} w{more}{condition}"), shown)
    }

    fn in_groups(&mut self, depth: usize) -> String {
        let (rows, alias) = self.block_rows(depth);
        let (one, two) = (self.random.one_of(&GROUPED).to_owned(), self.random.one_of(&GROUPED).to_owned());
        let column = |name: &str| match name {
            _ if name == one || name == two => format!("{alias}.{name}"),
            "s" | "e" => format!("'x' AS {name}"),
            _ => format!("{}({alias}.{name}) AS {name}", if name == "b" { "MAX" } else { "MIN" }),
        };
        let having = self.random.one_of(&["", "", " HAVING COUNT(*) > 1"]);
        let all = self.random.below(5) == 0;
        let columns = if all {
            // One group of all.
            COLUMNS.map(|name| {
                if name == "s" || name == "e" { column(name) } else { format!("MAX({alias}.{name}) AS {name}") }
            })
        } else {
            COLUMNS.map(column)
        };
        let by = if all { String::new() } else { format!(" GROUP BY {alias}.{one}, {alias}.{two}") };
        format!("(SELECT {} {rows}{by}{having})", columns.join(", "))
    }

    fn windowed(&mut self) -> String {
        let (rows, alias) = self.block_rows(0);
        let (name, by) = (self.random.one_of(NUMBERS).to_owned(), self.random.one_of(NUMBERS));
        let column = |column: &str| {
            if column == name {
                format!("RANK() OVER (PARTITION BY {alias}.{by} ORDER BY {alias}.id) AS {column}")
            } else {
                format!("{alias}.{column}")
            }
        };
        format!("(SELECT {} {rows})", COLUMNS.map(column).join(", "))
    }

    fn merged_side(&mut self, table: &str) -> String {
        let condition = if self.random.below(2) == 0 { String::new() } else { format!(" WHERE {}", self.atom(&["w"])) };
        let list = if self.random.below(3) == 0 {
            // Few columns with many equal values, so that rows are equal.
            let column = |name: &str| match name {
                "a" | "b" => format!("w.{name}"),
                "id" => "w.a AS id".to_owned(),
                "s" | "e" => format!("'x' AS {name}"),
                "n" => "w.n".to_owned(),
                _ => format!("NULL AS {name}"),
            };
            COLUMNS.map(column).join(", ")
        } else if self.random.below(2) == 0 {
            COLUMNS.map(|name| self.null_or(name)).join(", ")
        } else {
            self.list("w")
        };
        format!("SELECT {list} FROM {table} w{condition}")
    }

    /// A column, or NULL in its place, with one type or another.
    fn null_or(&mut self, name: &str) -> String {
        let value = match (self.random.below(3), name) {
            (0, "a" | "b") => self.of(
                &["NULL", "CAST(NULL AS DECIMAL(9, 2))"],
                &["CAST(NULL AS INT)", "NULL::bigint", "NULL::float8"],
                &["CAST(NULL AS SIGNED)", "CAST(NULL AS UNSIGNED)", "CAST(NULL AS CHAR(9))"],
            ),
            (0, "s" | "e") => self.of(
                &["NULL", "CAST(NULL AS CHAR(50))"],
                &["CAST(NULL AS VARCHAR(50))", "NULL::text"],
                &["CAST(NULL AS BINARY(9))"],
            ),
            (0, "d") => self.of(&["NULL", "CAST(NULL AS DATE)"], &["NULL::timestamptz"], &["CAST(NULL AS DATETIME)"]),
            (0, "n" | "k") => "NULL".to_owned(),
            _ => format!("w.{name}"),
        };
        format!("{value} AS {name}")
    }

    /// A sub-select in a condition on a column of the alias.
    pub(crate) fn nested_atom(&mut self, alias: &str) -> String {
        let column = format!("{alias}.{}", self.random.one_of(NUMBERS));
        let correlated = format!("w.{} = {alias}.{}", self.random.one_of(NUMBERS), self.random.one_of(NUMBERS));
        let inner = self.atom(&["w"]);
        let not = self.random.one_of(&["", "", "", "NOT "]);
        let (of, two) = (self.random.one_of(NUMBERS).to_owned(), self.random.one_of(NUMBERS).to_owned());
        match self.random.below(18) {
            0 => format!("{not}EXISTS (SELECT 1 FROM {{td}} w WHERE {correlated} AND {inner} LIMIT 1)"),
            1 => format!("{not}EXISTS (SELECT 1 FROM {{td}} w WHERE {correlated} OR {inner})"),
            2 => format!("{not}EXISTS (SELECT COUNT(*) FROM {{td}} w WHERE {correlated} AND {inner})"),
            3 => format!(
                "{not}EXISTS (SELECT w.{of} FROM {{td}} w WHERE {correlated} AND {inner} GROUP BY w.{of} HAVING COUNT(*) > 1)"
            ),
            4 => format!(
                "{not}EXISTS (SELECT 1 FROM {{td}} w WHERE {inner} AND EXISTS (SELECT 1 FROM {{tc}} u WHERE u.{of} = \
                 {column} AND u.{two} = w.{two}))"
            ),
            5 => format!("{column} {not}IN (SELECT w.{of} FROM {{td}} w WHERE {correlated} AND {inner})"),
            6 => format!(
                "{alias}.n IN (1.5, -0.5, 0.5) AND {alias}.n {not}IN (SELECT w.{of} FROM {{td}} w WHERE {inner})"
            ),
            7 => format!(
                "{column} IN (1, 2) AND {column} {not}IN (SELECT w.a FROM {{td}} w GROUP BY w.a HAVING COUNT(*) > 1)"
            ),
            8 => format!(
                "{column} IN (0, 2) AND {column} {not}IN (SELECT w.a FROM {{td}} w UNION SELECT u.a FROM {{tc}} u)"
            ),
            9 => format!("{column} = (SELECT MAX(w.{of}) FROM {{td}} w WHERE {inner})"),
            10 => format!("{column} = (SELECT w.{of} FROM {{td}} w WHERE w.id = 3)"),
            15 => {
                let limit = self.random.one_of(&["", " LIMIT 1", " LIMIT 1 OFFSET 1"]);
                let scalar = format!("(SELECT w.{of} FROM {{td}} w WHERE w.id = {column}{limit})");
                format!("{not}{scalar} = {}", self.random.below(3))
            }
            16 => {
                let more = self.random.one_of(&["", " AND w.id IN (1, 2)"]);
                let made = self.random.one_of(&["w.", "MAX(w.", "1 + (w."]);
                let end = if made.len() > 2 { ")" } else { "" };
                format!("1 = (SELECT {made}{of}{end} FROM {{td}} w WHERE {column} = w.id{more})")
            }
            17 => format!("(SELECT w.{of} FROM {{td}} w WHERE w.id = {alias}.{two} AND {inner}) IS {not}NULL"),
            11 => format!("{column} IN (SELECT p.a FROM {} p WHERE p.{of} = {alias}.{two})", self.nested(0)),
            12 => format!("{not}EXISTS (SELECT 1 FROM {} p WHERE p.{of} = {alias}.{two} AND p.b = 1)", self.nested(0)),
            13 => format!(
                "{not}EXISTS (SELECT 1 FROM {{td}} w LEFT JOIN {{tc}} u ON u.{of} = {alias}.{two} WHERE {correlated})"
            ),
            _ => format!("{not}EXISTS (SELECT 1 FROM {{td}} w WHERE {correlated} HAVING COUNT(*) > 1)"),
        }
    }

    /// A FROM clause with a block as x, which may be joined with y.
    pub(crate) fn nested_from(&mut self, join: &str) -> (String, &'static [&'static str]) {
        let block = self.nested(2);
        let on = self.on("x", "y", &["x", "y"]);
        match self.random.below(5) {
            0 | 1 => (format!("{block} x"), &["x"]),
            2 => (format!("{{tc}} y {join} {block} x ON {on}"), &["x", "y"]),
            3 => (format!("{block} x {join} {block} y ON {on}"), &["x", "y"]),
            _ => (format!("{block} x {join} {{tc}} y ON {on}"), &["x", "y"]),
        }
    }
}
