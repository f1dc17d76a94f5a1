//! Random queries with a LIMIT whose sort key is not in the answer, at any place of a statement.

use crate::queries::{COLUMNS, NUMBERS, Queries};

impl Queries<'_> {
    /// Rows of the table of x and of others, with an order without ties and LIMIT.
    fn cut_rows(&mut self, list: &str, group: &str) -> String {
        let (one, two) = (self.random.one_of(NUMBERS).to_owned(), self.random.one_of(NUMBERS).to_owned());
        let on = self.on("x", "y", &["x", "y"]);
        // If MySQL sorts by a column that an outer join may replace by NULL, the answer depends on the plan.
        let kind = self.random.below(12);
        let kind = if kind == 1 && !self.postgres { 0 } else { kind };
        let (from, several) = match kind {
            0 => (format!("{{ta}} x JOIN {{tb}} y ON x.{one} = y.{two}"), true),
            1 => (format!("{{ta}} x RIGHT JOIN {{tb}} y ON x.{one} = y.{two}"), true),
            2 => ("{ta} x, {tb} y".to_owned(), true),
            3..=5 => (format!("{{ta}} x LEFT JOIN {{tb}} y ON {on}"), true),
            _ => ("{ta} x".to_owned(), false),
        };
        let condition = match self.random.below(8) {
            0 => format!(" WHERE {}", self.number_atom("x", &["x"])),
            1 if several => format!(" WHERE y.{one} IS NULL"),
            2 => format!(" WHERE {}", self.random.one_of(&["1=1", "1 = 1", "1 = 2", "1 = 1 AND 2 = 2"])),
            _ => String::new(),
        };
        let may_miss = (3..=5).contains(&kind) && !self.postgres;
        let alias = if several && !may_miss && self.random.below(6) == 0 { "y" } else { "x" };
        let ties = if several && group.is_empty() { ", x.id, y.id" } else { ", x.id" };
        let column = if self.random.below(4) == 0 { "id" } else { self.random.one_of(&COLUMNS) };
        let group = match group {
            "" => String::new(),
            by => format!(" GROUP BY {by}, {alias}.{column}"),
        };
        let direction = self.of(&["", "", " DESC"], &[" NULLS FIRST", " DESC NULLS LAST"], &[" ASC"]);
        let (rows, offset) = (1 + self.random.below(5), self.random.below(4));
        let limit = match self.random.below(4) {
            0 if self.postgres => format!("OFFSET {offset} ROWS FETCH NEXT {rows} ROWS WITH TIES"),
            0 => format!("LIMIT {offset}, {rows}"),
            1 | 2 => format!("LIMIT {rows} OFFSET {offset}"),
            _ => format!("LIMIT {rows}"),
        };
        format!("SELECT {list} FROM {from}{condition}{group} ORDER BY {alias}.{column}{direction}{ties} {limit}")
    }

    /// One number of a row of the table of x, or several of one.
    fn of_x(&mut self) -> String {
        let (one, two) = (self.random.one_of(NUMBERS), self.random.one_of(NUMBERS));
        match self.random.below(12) {
            0 => format!("COALESCE(x.{one}, x.{two})"),
            1 if self.postgres => "generate_series(1, x.a)".to_owned(),
            2 => format!("RANK() OVER (ORDER BY x.{one})"),
            3 => format!("(SELECT COUNT(*) FROM {{tc}} v WHERE v.{two} = x.{one})"),
            4 if !self.postgres => format!("COUNT(x.{one})"),
            _ => format!("x.{one}"),
        }
    }

    /// A query without SELECT.
    pub(crate) fn paged(&mut self) -> String {
        let value = self.of_x();
        let number = self.random.one_of(NUMBERS);
        let of_q = self.group(&[if self.postgres { "q.p::float8" } else { "q.p" }.to_owned(), "q.c".to_owned()]);
        let kind = self.random.below(9);
        self.shape = [
            "a page not shown",
            match kind {
                0 | 1 => "a derived table",
                2 => "a count",
                3 => "groups",
                4 => "IN",
                5 => "one value",
                6 => "a join",
                _ => "a set operation",
            },
        ];
        match kind {
            0 | 1 => format!("{of_q} FROM ({}) q", self.cut_rows(&format!("{value} AS p, x.{number} AS c"), "")),
            2 => format!("COUNT(*) FROM ({}) q", self.cut_rows(&format!("{value} AS p"), "")),
            3 => {
                let by = self.random.one_of(&["x.id", "x.id", "x.a, x.id", "x.a"]);
                let made = self.random.one_of(&["COUNT(*)", "MAX(x.b)", "SUM(x.a)"]);
                format!("{of_q} FROM ({}) q", self.cut_rows(&format!("{made} AS p, MIN(x.{number}) AS c"), by))
            }
            4 => {
                let page = self.cut_rows(&format!("{value} AS p"), "");
                let not = self.random.one_of(&["", "", "NOT "]);
                format!(
                    "{} FROM {{td}} z WHERE z.{number} {not}IN (SELECT q.p FROM ({page}) q)",
                    self.group(&["z.id".to_owned()])
                )
            }
            5 => {
                let page = self.cut_rows(&format!("{value} AS p"), "");
                let one = self.random.one_of(&["MAX(q.p)", "COUNT(*)", "SUM(q.p)"]);
                format!(
                    "{} FROM {{td}} z WHERE z.{number} >= (SELECT {one} FROM ({page}) q)",
                    self.group(&["z.id".to_owned()])
                )
            }
            6 => {
                let (page, join) =
                    (self.cut_rows(&format!("{value} AS p, x.s AS s"), ""), self.of(&["JOIN", "LEFT JOIN"], &[], &[]));
                let on = self.random.one_of(&["q.p", "q.p", "q.s"]);
                let column = if on == "q.s" { "s" } else { number };
                let more = self.random.one_of(&["", " LEFT JOIN {tc} v ON v.a = z.b", " AND z.a IS NOT NULL"]);
                let shown = self.group(&["z.id".to_owned(), "z.a".to_owned()]);
                format!("{shown} FROM ({page}) q {join} {{td}} z ON z.{column} = {on}{more}")
            }
            _ => {
                let list = format!("{value} AS p, x.{number} AS c");
                let (one, two) = (self.cut_rows(&list, ""), self.cut_rows("x.a AS p, x.b AS c", ""));
                let operation = self.of(&["UNION", "UNION ALL"], &["EXCEPT", "INTERSECT"], &[]);
                format!("{of_q} FROM (({one}) {operation} ({two})) q")
            }
        }
    }
}
