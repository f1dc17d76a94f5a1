//! Compares a target's answers with the database's own.
//!
//! Answers are compared when there is no load and all writes have had time to arrive. Then both must return the same rows, byte for byte, for any
//! query. The queries are drawn as the load draws its reads, so most results are cached. The number of wrong answers is next to every figure, so that
//! a fast cache with wrong answers does not look good.

use anyhow::{Context, Result};

use crate::driver::{Driver, Row, Rows};
use crate::random::Random;
use crate::result::Checked;
use crate::session::Opening;
use crate::value::Value;
use crate::workload::Workload;

const EXAMPLES_MAX: usize = 5;

/// Sends the same reads to both, one after another. It is an error if one of them does not answer.
pub async fn compare(
    database: &Opening,
    target: &Opening,
    workload: &dyn Workload,
    (reads, seed): (usize, u64),
) -> Result<Checked> {
    let open = async |opening: &Opening| {
        Driver::open(&opening.target, &opening.statements, opening.protocol)
            .await
            .with_context(|| format!("comparing answers: connecting to {}", opening.target.name))
    };
    let (mut truth, mut asked) = (open(database).await?, open(target).await?);
    let mut random = Random::new(seed);
    let mut checked = Checked::default();
    for _ in 0..reads {
        let (statement, values) = workload.draw_read(&mut random);
        let described = database.statements.get(statement).context("a statement of the workload")?;
        let ask = async |driver: &mut Driver| {
            let mut rows = Vec::new();
            driver
                .run(statement, &values, Rows::Kept(&mut rows))
                .await
                .with_context(|| format!("comparing answers to {}", described.name))?;
            if !described.ordered {
                rows.sort_unstable();
            }
            anyhow::Ok(rows)
        };
        // The target is queried first, so that the database's answer is the newer one if rows still change. It is queried twice, so that the second
        // answer may come from the cache.
        ask(&mut asked).await?;
        let answer = ask(&mut asked).await?;
        let right = ask(&mut truth).await?;
        checked.answers += 1;
        if answer != right {
            checked.wrong += 1;
            if checked.examples.len() < EXAMPLES_MAX {
                checked.examples.push(difference(&described.name, &values, &answer, &right));
            }
        }
    }
    Ok(checked)
}

/// The difference in one line. It shows rows, which are generated or belong to the user who runs the comparison.
fn difference(name: &str, values: &[Value], answer: &[Row], right: &[Row]) -> String {
    let row =
        |rows: &[Row], other: &[Row]| rows.iter().find(|row| !other.contains(row)).map_or_else(String::new, shown);
    let (ours, theirs) = (row(answer, right), row(right, answer));
    let values: Vec<String> = values.iter().map(shown_value).collect();
    format!(
        "{name}({}): {} rows instead of {}; only in the answer: {ours:?}; only in the database: {theirs:?}",
        values.join(", "),
        answer.len(),
        right.len()
    )
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
    }
}

fn shown(row: &Row) -> String {
    let column = |value: &Option<Vec<u8>>| match value {
        None => "NULL".to_owned(),
        // Binary values are shown in hexadecimal.
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains(|c: char| c.is_control()) => text.to_owned(),
            _ => bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
        },
    };
    row.iter().map(column).collect::<Vec<_>>().join(" | ")
}
