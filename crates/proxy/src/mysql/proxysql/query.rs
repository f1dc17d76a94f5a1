//! Runs a SELECT on rows in memory.
//!
//! All values are texts. Two values that are both numbers compare as numbers, others as texts, NULL first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use freshet_sql::{Aggregate, Comparison, StatsCondition, StatsItem, StatsQuery};

use super::Answer;
use crate::mysql::admin::is_like;

/// A row.
pub(super) type Row = Vec<Option<String>>;

/// What is read.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Row>,
}

impl Table {
    fn column(&self, name: &str) -> Result<usize, String> {
        let found = self.columns.iter().position(|column| column.eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("no such column: {name}"))
    }
}

/// A column of the answer.
enum Output {
    Column(usize),
    Aggregate(Aggregate, Option<usize>),
}

/// A value for comparisons.
#[derive(Clone, Debug)]
enum Value {
    Null,
    Number(f64),
    Text(String),
}

impl Value {
    fn of(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::Null };
        number(text).map_or_else(|| Self::Text(text.to_owned()), Self::Number)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) | (Self::Number(_), Self::Text(_)) => Ordering::Less,
            _ => Ordering::Greater,
        }
    }
}

/// The number that a text is; words such as `inf` are none.
fn number(text: &str) -> Option<f64> {
    let begins = text.strip_prefix('-').unwrap_or(text).starts_with(|c: char| c.is_ascii_digit());
    text.parse().ok().filter(|_| begins)
}

fn cell(row: &[Option<String>], column: usize) -> Option<&str> {
    row.get(column).and_then(Option::as_deref)
}

pub(super) fn run(table: &Table, query: &StatsQuery) -> Result<Answer, String> {
    let (names, outputs) = outputs(table, &query.items)?;
    let conditions = query.conditions.iter().map(|condition| Ok((table.column(&condition.column)?, condition)));
    let conditions = conditions.collect::<Result<Vec<_>, String>>()?;
    let holds = |row: &&Row| conditions.iter().all(|(column, condition)| is_met(cell(row, *column), condition));
    let rows: Vec<&Row> = table.rows.iter().filter(holds).collect();
    let group_by = query.group_by.iter().map(|name| table.column(name)).collect::<Result<Vec<_>, String>>()?;
    let aggregates = outputs.iter().any(|output| matches!(output, Output::Aggregate(..)));
    let groups: Vec<Vec<&Row>> = if !group_by.is_empty() {
        let mut groups: BTreeMap<Vec<Value>, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            groups.entry(group_by.iter().map(|column| Value::of(cell(row, *column))).collect()).or_default().push(row);
        }
        groups.into_values().collect()
    } else if aggregates {
        vec![rows]
    } else {
        rows.into_iter().map(|row| vec![row]).collect()
    };
    let mut answered: Vec<(Vec<Value>, Row)> = Vec::with_capacity(groups.len());
    let order = query.order_by.iter().map(|(name, _)| ordering(table, &names, name));
    let order = order.collect::<Result<Vec<_>, String>>()?;
    for group in groups {
        let row: Row = outputs.iter().map(|output| output.of(&group)).collect();
        let key = order.iter().map(|by| match by {
            By::Answer(at) => Value::of(cell(&row, *at)),
            By::Table(column) => Value::of(group.first().and_then(|row| cell(row, *column))),
        });
        answered.push((key.collect(), row));
    }
    let descends: Vec<bool> = query.order_by.iter().map(|(_, descends)| *descends).collect();
    answered.sort_by(|(a, _), (b, _)| {
        let orders = a.iter().zip(b).zip(&descends).map(|((a, b), down)| if *down { b.cmp(a) } else { a.cmp(b) });
        orders.fold(Ordering::Equal, Ordering::then)
    });
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
    Ok((names, answered.into_iter().map(|(_, row)| row).skip(offset).take(limit).collect()))
}

/// The columns of the answer, with their names.
fn outputs(table: &Table, items: &[StatsItem]) -> Result<(Vec<String>, Vec<Output>), String> {
    let (mut names, mut outputs) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            StatsItem::All => {
                names.extend(table.columns.iter().map(|&name| name.to_owned()));
                outputs.extend((0..table.columns.len()).map(Output::Column));
            }
            StatsItem::Column(column, name) => {
                names.push(name.clone());
                outputs.push(Output::Column(table.column(column)?));
            }
            StatsItem::Aggregate(aggregate, column, name) => {
                names.push(name.clone());
                let column = column.as_ref().map(|column| table.column(column)).transpose()?;
                outputs.push(Output::Aggregate(*aggregate, column));
            }
        }
    }
    Ok((names, outputs))
}

/// What an ORDER BY means.
enum By {
    Answer(usize),
    Table(usize),
}

fn ordering(table: &Table, names: &[String], name: &str) -> Result<By, String> {
    if let Ok(number) = name.parse::<usize>() {
        let at = number.checked_sub(1).filter(|at| *at < names.len());
        return at.map(By::Answer).ok_or_else(|| format!("ORDER BY {name}: there is no such column in the answer"));
    }
    match names.iter().position(|answered| answered.eq_ignore_ascii_case(name)) {
        Some(at) => Ok(By::Answer(at)),
        None => table.column(name).map(By::Table),
    }
}

fn is_met(value: Option<&str>, condition: &StatsCondition) -> bool {
    // A comparison with NULL is not true.
    let Some(value) = value else { return false };
    condition.values.iter().any(|constant| compares(value, condition.operator, constant))
}

fn compares(value: &str, operator: Comparison, constant: &str) -> bool {
    let order = || Value::of(Some(value)).cmp(&Value::of(Some(constant)));
    match operator {
        Comparison::Equal => order().is_eq(),
        Comparison::Unequal => order().is_ne(),
        Comparison::Less => order().is_lt(),
        Comparison::LessOrEqual => order().is_le(),
        Comparison::Greater => order().is_gt(),
        Comparison::GreaterOrEqual => order().is_ge(),
        Comparison::Like => is_like(constant, value),
        Comparison::NotLike => !is_like(constant, value),
    }
}

impl Output {
    fn of(&self, group: &[&Row]) -> Option<String> {
        match *self {
            Self::Column(column) => group.first().and_then(|row| cell(row, column)).map(str::to_owned),
            Self::Aggregate(Aggregate::Count, None) => Some(group.len().to_string()),
            Self::Aggregate(aggregate, column) => {
                let values: Vec<&str> = group.iter().filter_map(|row| cell(row, column?)).collect();
                aggregated(aggregate, &values)
            }
        }
    }
}

fn aggregated(aggregate: Aggregate, values: &[&str]) -> Option<String> {
    let by_value = |a: &&&str, b: &&&str| Value::of(Some(a)).cmp(&Value::of(Some(b)));
    let sum = || values.iter().filter_map(|value| number(value)).sum::<f64>();
    match aggregate {
        Aggregate::Count => Some(values.len().to_string()),
        Aggregate::Min => values.iter().min_by(by_value).map(|value| (*value).to_owned()),
        Aggregate::Max => values.iter().max_by(by_value).map(|value| (*value).to_owned()),
        Aggregate::Sum => (!values.is_empty()).then(|| {
            let whole = values.iter().map(|value| value.parse::<i128>().ok()).sum::<Option<i128>>();
            whole.map_or_else(|| sum().to_string(), |sum| sum.to_string())
        }),
        Aggregate::Avg => (!values.is_empty()).then(|| (sum() / values.len() as f64).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use freshet_sql::{Admin, admin};
    use freshet_types::Dialect;

    use super::*;

    fn table() -> Table {
        let row = |cells: [&str; 3]| cells.map(|cell| (cell != "NULL").then(|| cell.to_owned())).to_vec();
        let rows = [["-1", "select", "10"], ["0", "update", "9"], ["0", "select", "100"], ["0", "NULL", "2"]];
        Table { columns: &["hostgroup", "digest_text", "count_star"], rows: rows.map(row).to_vec() }
    }

    fn ask(sql: &str) -> Result<Answer, String> {
        let Some(Ok(Admin::Stats(stats))) = admin(Dialect::MySql, sql) else { panic!("{sql}") };
        run(&table(), &stats.query.unwrap())
    }

    fn rows(sql: &str) -> Vec<String> {
        let (_, rows) = ask(sql).unwrap();
        let text =
            |row: Row| row.into_iter().map(|cell| cell.unwrap_or("NULL".to_owned())).collect::<Vec<_>>().join(" ");
        rows.into_iter().map(text).collect()
    }

    #[test]
    fn statements_are_run() {
        const FROM: &str = "FROM stats_mysql_query_digest";
        let digests = |what: &str, behind: &str| rows(&format!("SELECT {what} {FROM} {behind}"));
        assert_eq!(digests("count_star", "ORDER BY count_star DESC LIMIT 2"), ["100", "10"], "numbers, not texts");
        assert_eq!(digests("count_star n", "ORDER BY n LIMIT 1 OFFSET 1"), ["9"]);
        assert_eq!(digests("digest_text", "WHERE hostgroup = -1"), ["select"]);
        assert_eq!(digests("count_star", "WHERE digest_text LIKE 'SEL%' AND count_star > 10"), ["100"]);
        assert_eq!(digests("count_star", "WHERE digest_text <> 'select'"), ["9"], "NULL compares with nothing");
        assert_eq!(digests("COUNT(*), COUNT(digest_text), SUM(count_star)", ""), ["4 3 121"]);
        assert_eq!(digests("COUNT(*), MAX(count_star)", "WHERE hostgroup = 7"), ["0 NULL"]);
        assert_eq!(
            digests("hostgroup, COUNT(*) AS n, AVG(count_star)", "GROUP BY hostgroup ORDER BY n DESC"),
            ["0 3 37", "-1 1 10"]
        );
        assert_eq!(digests("hostgroup, *", "ORDER BY 4 LIMIT 1"), ["0 0 NULL 2"]);
        let (names, _) = ask(&format!("SELECT Count_Star, COUNT(*) {FROM}")).unwrap();
        assert_eq!(names, ["Count_Star", "COUNT(*)"]);
        assert_eq!(ask(&format!("SELECT x {FROM}")).unwrap_err(), "no such column: x");
        assert!(ask(&format!("SELECT hostgroup {FROM} ORDER BY 2")).is_err());
    }
}
