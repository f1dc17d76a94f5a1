//! Counts the parameters of a statement, drawn as the load draws them.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::document::{Inputs, Parameter};
use crate::random::Random;
use crate::value::Value;
use crate::workload::single_statement::SingleStatement;

/// Longer examples are truncated.
const EXAMPLE_MAX: usize = 60;

/// Counts this many draws.
pub(super) fn of(statement: &SingleStatement, draws: usize, seed: u64) -> Inputs {
    let mut random = Random::new(seed);
    let drawn: Vec<(usize, Vec<Value>)> = (0..draws).map_while(|_| statement.draw(&mut random)).collect();
    let mut counts: HashMap<String, u64> = HashMap::new();
    for read in &drawn {
        *counts.entry(format!("{read:?}")).or_default() += 1;
    }
    let mut often: Vec<u64> = counts.into_values().collect();
    often.sort_unstable_by(|one, other| other.cmp(one));
    let tenth = often.len().div_ceil(10);
    let hot: u64 = often.iter().take(tenth).sum();
    let width = drawn.iter().map(|(_, values)| values.len()).max().unwrap_or_default();
    let values = |place: usize| drawn.iter().filter_map(move |(_, values)| values.get(place));
    Inputs {
        parameters: (0..width).map(|place| parameter(&values(place))).collect(),
        tables: statement.texts().flat_map(|text| tables(&text)).collect::<BTreeSet<_>>().into_iter().collect(),
        drawn: drawn.len() as u64,
        distinct: often.len() as u64,
        hot_tenth: hot as f64 / (drawn.len().max(1)) as f64,
    }
}

fn parameter<'a>(values: &(impl Iterator<Item = &'a Value> + Clone)) -> Parameter {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Int(_) => "integer",
        Value::Text(_) => "text",
    };
    let size = |value: &Value| match value {
        Value::Null => None,
        Value::Int(number) => Some(*number),
        Value::Text(text) => i64::try_from(text.chars().count()).ok(),
    };
    let kinds: BTreeSet<&str> = values.clone().map(kind).collect();
    let sizes = || values.clone().filter_map(size);
    let shown = |value: &Value| match value {
        Value::Null => "NULL".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => text.chars().take(EXAMPLE_MAX).collect(),
    };
    let counts = counted(values.clone().map(|value| format!("{value:?}")));
    let all = values.clone().count().max(1);
    Parameter {
        kind: kinds.into_iter().collect::<Vec<_>>().join(" or "),
        distinct: counts.len() as u64,
        range: [sizes().min().unwrap_or_default(), sizes().max().unwrap_or_default()],
        hottest: counts.values().copied().max().unwrap_or_default() as f64 / all as f64,
        example: values.clone().next().map(shown).unwrap_or_default(),
    }
}

fn counted<T: Hash + Eq>(values: impl Iterator<Item = T>) -> HashMap<T, u64> {
    let mut counts = HashMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

/// Names that follow FROM, JOIN, INTO or UPDATE, and those after commas in FROM. The text is not analysed, so names of WITH count too.
pub(super) fn tables(text: &str) -> Vec<String> {
    let spaced = text.replace(',', " , ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let is = |word: &str, these: &[&str]| these.iter().any(|one| word.eq_ignore_ascii_case(one));
    let name = |word: &str| word.trim_matches(['"', '`', ';']).to_owned();
    let mut found = Vec::new();
    let mut listing = false;
    for pair in words.windows(2) {
        let [before, word] = pair else { continue };
        let first = is(before, &["from", "join", "into", "update"]);
        let names = first || (listing && *before == ",");
        listing = is(before, &["from"]) || (listing && !is(before, &["where", "join", "on", "group", "order", ")"]));
        if names && *word != "(" && word.starts_with(|letter: char| letter.is_alphabetic() || "_\"`".contains(letter)) {
            found.push(name(word));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_the_names_that_stand_where_tables_do() {
        let of = |text| tables(text).join(" ");
        assert_eq!(of("SELECT a, b FROM title t JOIN name AS n ON t.id = n.id, x WHERE t.c = 1"), "title name");
        assert_eq!(of("select 1 from a, \"b\" , c where exists (select 1 from d)"), "a b c d");
        assert_eq!(of("SELECT * FROM (SELECT id FROM inner_one) q ORDER BY a, b"), "inner_one");
        assert_eq!(of("UPDATE t SET a = 1"), "t");
        assert_eq!(of("SELECT now()"), "");
    }

    #[test]
    fn parameters_are_described_by_what_was_drawn() {
        let values = [Value::Int(3), Value::Int(-7), Value::Int(3), Value::Int(9)];
        let integer = parameter(&values.iter());
        assert_eq!((integer.kind.as_str(), integer.distinct, integer.range), ("integer", 3, [-7, 9]));
        assert!((integer.hottest - 0.5).abs() < 1e-9 && integer.example == "3", "{integer:?}");
        let texts = [Value::from("ab"), Value::Null];
        let mixed = parameter(&texts.iter());
        assert_eq!((mixed.kind.as_str(), mixed.distinct, mixed.range), ("null or text", 2, [2, 2]));
    }
}
