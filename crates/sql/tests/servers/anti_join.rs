//! Random queries for rows that match no row of another table.

use crate::queries::Queries;

/// Columns of one type, and one of another.
const KEYS: &[&str] = &["a", "b", "a", "b", "id", "n", "s"];

impl Queries<'_> {
    /// A condition on inner rows: mostly equalities.
    fn of_inside(&mut self, alias: &str) -> String {
        let (x, y) = (self.random.below(3), self.random.below(3));
        let one = self.random.one_of(&["'x'", "'y'", "'X'", "'xy'", "'ss'"]);
        let column = self.random.one_of(&["a", "b", "k", "id"]);
        match self.random.below(8) {
            0 => format!("{alias}.s = {one}"),
            1 => format!("{alias}.e IN ({one}, '1')"),
            2 => format!("{alias}.{column} IN ({x}, {y})"),
            3 => format!("{alias}.{column} = {x} AND {alias}.a = {alias}.b"),
            4 => self.atom(&[alias]),
            5 => format!("{alias}.{column} = {}", self.of(&["1.0", "'1'", "1", "NULL"], &["'2'"], &["'1abc'", "1e0"])),
            _ => format!("{alias}.{column} = {x}"),
        }
    }

    /// A condition that a row matches none.
    fn meets_none(&mut self, alias: &str) -> String {
        let (own, key) = (self.random.one_of(KEYS).to_owned(), self.random.one_of(KEYS).to_owned());
        let (one, two) =
            (self.random.one_of(&["a", "b", "id"]).to_owned(), self.random.one_of(&["a", "b", "id"]).to_owned());
        let (inner, more) = (self.of_inside("w"), self.of_inside("u"));
        let shown = self.random.one_of(&["1", "1", "w.id", "COUNT(*)"]);
        let limit = self.random.one_of(&["", "", " LIMIT 1", " LIMIT 0", " LIMIT 1 OFFSET 1", " HAVING COUNT(*) > 1"]);
        let column = format!("{alias}.{own}");
        match self.random.below(8) {
            0..=2 => format!("NOT EXISTS (SELECT {shown} FROM {{td}} w WHERE w.{key} = {column} AND {inner}{limit})"),
            3 => format!(
                "NOT EXISTS (SELECT 1 FROM {{td}} w, {{tc}} u WHERE w.{key} = {column} AND u.{one} = w.{two} AND {more})"
            ),
            4 => format!(
                "NOT (EXISTS (SELECT 1 FROM {{td}} w {} {{tc}} u ON u.{one} = w.{two} WHERE {column} = w.{key} AND {more}{limit}))",
                self.random.one_of(&["JOIN", "JOIN", "LEFT JOIN"])
            ),
            5 => {
                let kinds: &[&str] =
                    if self.postgres { &["", " ORDER BY w.id LIMIT 1", " ORDER BY w.id DESC LIMIT 2"] } else { &[""] };
                let (end, distinct) = (self.random.one_of(kinds), self.random.one_of(&["", "DISTINCT "]));
                let on = if self.postgres && self.random.below(6) == 0 { "DISTINCT ON (w.b) " } else { distinct };
                let end = if on.contains("ON") {
                    " ORDER BY w.b, w.id"
                } else if on.is_empty() {
                    end
                } else {
                    ""
                };
                format!("{column} NOT IN (SELECT {on}w.{key} FROM {{td}} w WHERE {inner}{end})")
            }
            6 => {
                let beside = self.random.one_of(&[&own, &own, "k"]).to_owned();
                format!(
                    "NOT ({column} IN (SELECT w.{key} FROM {{td}} w WHERE {inner}) AND {alias}.{beside} IS NOT NULL)"
                )
            }
            _ => format!(
                "NOT (EXISTS (SELECT 1 FROM {{td}} w WHERE w.{key} = {column} AND {inner}) AND {column} IS NOT NULL)"
            ),
        }
    }

    /// A query without SELECT.
    pub(crate) fn absent(&mut self) -> String {
        let none = self.meets_none("x");
        let on = self.on("x", "y", &["x", "y"]);
        let (one, two) = (self.random.one_of(&["a", "b"]), self.random.one_of(&["a", "b"]));
        let (from, ids) = match self.random.below(6) {
            0 => (format!("{{ta}} x LEFT JOIN {{tb}} y ON {on} WHERE {none}"), vec!["x.id", "y.id"]),
            1 => (format!("{{tb}} y LEFT JOIN {{ta}} x ON x.{one} = y.{two} WHERE {none}"), vec!["x.id", "y.id"]),
            2 => (format!("{{tb}} y LEFT JOIN {{ta}} x ON x.{one} = y.{two} AND {none}"), vec!["x.id", "y.id"]),
            3 => (format!("{{ta}} x JOIN {{tb}} y ON x.{one} = y.{two} AND {none}"), vec!["x.id", "y.id"]),
            _ => (format!("{{ta}} x WHERE {none}"), vec!["x.id"]),
        };
        let more = match self.random.below(4) {
            0 => format!(" AND {}", self.atom(&["x"])),
            1 if ids.len() > 1 => format!(" AND {}", self.number_atom("y", &["y"])),
            _ => String::new(),
        };
        self.shape = ["rows that meet none", if ids.len() > 1 { "a join" } else { "one table" }];
        let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
        let rows = if self.random.below(4) == 0 { "COUNT(*)".to_owned() } else { self.group(&ids) };
        format!("{rows} FROM {from}{more}")
    }
}
