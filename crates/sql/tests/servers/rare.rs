//! Forms of queries that the other modules create too seldom to find their faults.

use crate::queries::Queries;

impl Queries<'_> {
    /// A query without SELECT.
    pub(crate) fn rare(&mut self) -> String {
        if self.random.below(2) == 0 { self.of_null_branches() } else { self.of_ordered_rows() }
    }

    /// A set operation with NULL in place of a column in some branches, and a condition that NULL may satisfy.
    fn of_null_branches(&mut self) -> String {
        self.shape = ["rows", "branches of NULL"];
        let typed = if self.postgres { "NULL::int" } else { "CAST(NULL AS SIGNED)" };
        let null = self.random.one_of(&["NULL", typed, "w.b"]);
        let (one, two) = (self.number_atom("w", &["w"]), self.random.below(3));
        let branch = self.random.one_of(&["", " WHERE w.a IS NOT NULL", " WHERE w.n > 0"]);
        let operation = self.random.one_of(&["UNION", "UNION ALL"]);
        let same = if self.postgres { "q.p IS NOT DISTINCT FROM NULL" } else { "q.p <=> NULL" };
        let condition =
            self.random.one_of(&["q.p IS NULL", "q.p IS NULL", "q.p = 1", "q.p IS NOT NULL", "COALESCE(q.p, 1) = 1"]);
        let condition = if self.random.below(6) == 0 { same } else { condition };
        let more = match self.random.below(3) {
            0 => format!(" AND q.c = {two}"),
            1 => format!(" OR q.c = {two}"),
            _ => String::new(),
        };
        let (p, c) = (if self.postgres { "q.p::text" } else { "q.p" }, "q.c".to_owned());
        let shown = self.group(&[p.to_owned(), c]);
        format!(
            "{shown} FROM (SELECT {null} AS p, w.a AS c FROM {{ta}} w{branch} {operation} SELECT w.b AS p, w.a AS c FROM {{tb}} w WHERE {one}) q \
             WHERE {condition}{more}"
        )
    }

    /// Comparisons of rows by order, whose first columns are often equal.
    fn of_ordered_rows(&mut self) -> String {
        self.shape = ["rows", "rows in order"];
        let (one, two) =
            (self.random.one_of(&["a", "b"]).to_owned(), self.random.one_of(&["b", "n", "id", "s"]).to_owned());
        let compares = self.random.one_of(&["<", "<", ">", "<=", ">="]);
        let second = match &*two {
            "id" => self.random.below(18).to_string(),
            "s" => self.random.one_of(&["'x'", "'z'", "''"]).to_owned(),
            _ => self.random.one_of(&["0", "1", "2", "9", "-9"]).to_owned(),
        };
        let first = self.random.one_of(&["0", "1", "1", "2"]);
        let rows = match self.random.below(4) {
            0 => format!("({first}, {second}) {compares} (x.{one}, x.{two})"),
            1 => format!("NOT (x.{one}, x.{two}) {compares} ({first}, {second})"),
            _ => format!("(x.{one}, x.{two}) {compares} ({first}, {second})"),
        };
        format!("{} FROM {{ta}} x WHERE {rows}", self.group(&["x.id".to_owned()]))
    }
}
