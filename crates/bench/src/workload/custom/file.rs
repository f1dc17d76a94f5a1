//! Reads the file of a custom workload.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use toml::Spanned;

use super::super::distribution::{Distribution, Keys};
use super::parameter::{Parameter, Source};
use super::placeholder::numbered;
use crate::statement::{Effect, Statement};
use crate::value::Value;

/// The contents of the file, ready to run.
#[derive(Debug)]
pub(super) struct File {
    pub(super) parameters: Vec<Parameter>,
    pub(super) transactions: Vec<Transaction>,
    pub(super) writes: Vec<Transaction>,
}

/// A transaction: its statements, with the indexes of their parameters.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) weight: u64,
    pub(super) begin: bool,
    pub(super) statements: Vec<(Statement, Vec<usize>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedFile {
    #[serde(default)]
    params: BTreeMap<String, Spanned<TypedParameter>>,
    transactions: Vec<Spanned<TypedTransaction>>,
    #[serde(default)]
    writes: Vec<Spanned<TypedTransaction>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedParameter {
    range: Option<[i64; 2]>,
    values: Option<Vec<toml::Value>>,
    query: Option<String>,
    text: Option<[usize; 2]>,
    sequence: Option<i64>,
    distribution: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedTransaction {
    weight: Option<u64>,
    #[serde(default)]
    begin: bool,
    statements: Vec<TypedStatement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedStatement {
    sql: Spanned<String>,
    name: Option<String>,
    kind: Option<Kind>,
    #[serde(default)]
    ordered: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Read,
    Write,
}

/// Parses the whole file. An error names the line of the mistake.
pub(super) fn parse(text: &str) -> Result<File> {
    let typed: TypedFile = toml::from_str(text)?;
    let line = |at: usize| format!("line {}", text[..at].matches('\n').count() + 1);
    let mut parameters = Vec::new();
    for (name, parameter) in typed.params {
        let at = line(parameter.span().start);
        let described = format!("{parameter:?}");
        let source = source(parameter.into_inner()).with_context(|| format!("{at}: the parameter {name}"))?;
        parameters.push(Parameter::new(&name, described, source));
    }
    let mut used = vec![false; parameters.len()];
    let mut read = |typed: Spanned<TypedTransaction>| -> Result<Transaction> {
        let at = line(typed.span().start);
        let TypedTransaction { weight, begin, statements } = typed.into_inner();
        ensure!(!statements.is_empty(), "{at}: a transaction without statements");
        let weight = weight.unwrap_or(1);
        ensure!((1..=1_000_000).contains(&weight), "{at}: a weight is from 1 to 1000000");
        let mut found = Vec::new();
        for typed in statements {
            let at = line(typed.sql.span().start);
            let (statement, indexes) = statement(typed, &parameters).with_context(|| at)?;
            for index in &indexes {
                used[*index] = true;
            }
            found.push((statement, indexes));
        }
        Ok(Transaction { weight, begin, statements: found })
    };
    let transactions = typed.transactions.into_iter().map(&mut read).collect::<Result<Vec<_>>>()?;
    let writes = typed.writes.into_iter().map(&mut read).collect::<Result<Vec<_>>>()?;
    ensure!(!transactions.is_empty(), "no transactions");
    if let Some((idle, _)) = parameters.iter().zip(&used).find(|(_, used)| !**used) {
        bail!("the parameter {} is used by no statement", idle.name());
    }
    Ok(File { parameters, transactions, writes })
}

fn source(typed: TypedParameter) -> Result<Source> {
    let distribution = typed.distribution.as_deref().map(str::parse::<Distribution>).transpose()?;
    let chosen = distribution.unwrap_or(Distribution::Uniform);
    let TypedParameter { range, values, query, text, sequence, .. } = typed;
    if distribution.is_some() && (text.is_some() || sequence.is_some()) {
        bail!("a distribution goes with range, values and query only");
    }
    Ok(match (range, values, query, text, sequence) {
        (Some([first, last]), None, None, None, None) => {
            ensure!(first <= last, "the range from {first} to {last} is empty");
            let count = usize::try_from(last.abs_diff(first)).ok().and_then(|count| count.checked_add(1));
            Source::Range(first, Keys::new(chosen, count.context("the range is too long")?)?)
        }
        (None, Some(values), None, None, None) => {
            let values: Vec<Value> = values.into_iter().map(value).collect::<Result<_>>()?;
            let keys = Keys::new(chosen, values.len())?;
            Source::Values(values.into(), keys)
        }
        (None, None, Some(sql), None, None) => Source::Query { sql, distribution: chosen, found: OnceLock::new() },
        (None, None, None, Some([least, most]), None) => {
            ensure!(least <= most && most <= 1_000_000, "text = [LEAST, MOST] letters, up to 1000000");
            Source::Text(least, most)
        }
        (None, None, None, None, Some(first)) => Source::Sequence(AtomicI64::new(first)),
        _ => bail!("exactly one of range, values, query, text and sequence"),
    })
}

fn value(typed: toml::Value) -> Result<Value> {
    Ok(match typed {
        toml::Value::String(text) => Value::from(text),
        toml::Value::Integer(number) => Value::Int(number),
        toml::Value::Float(number) => Value::from(number.to_string()),
        toml::Value::Boolean(yes) => Value::from(yes.to_string()),
        toml::Value::Datetime(time) => Value::from(time.to_string()),
        toml::Value::Array(_) | toml::Value::Table(_) => bail!("values are texts, numbers, booleans or times"),
    })
}

fn statement(typed: TypedStatement, parameters: &[Parameter]) -> Result<(Statement, Vec<usize>)> {
    let (text, names) = numbered(typed.sql.get_ref())?;
    let mut indexes = Vec::new();
    for name in names {
        let index = parameters.iter().position(|parameter| parameter.name() == name);
        indexes.push(index.with_context(|| format!("there is no [params.{name}] for :{name}"))?);
    }
    let effect = match typed.kind {
        Some(Kind::Read) => Effect::Read,
        Some(Kind::Write) => Effect::Write,
        None => guessed(&text)?,
    };
    let usual = || text.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
    let statement = Statement::new(&typed.name.unwrap_or_else(usual), &text, effect);
    Ok((if typed.ordered { statement.ordered() } else { statement }, indexes))
}

/// The effect, by the first word and by words that make a write of a read. `set_config` may change a setting for later statements.
pub(in super::super) fn guessed(text: &str) -> Result<Effect> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let first = words.first().context("an empty statement")?;
    let writes = ["insert", "update", "delete", "merge"];
    Ok(match first.as_str() {
        "begin" | "start" | "commit" | "end" | "rollback" => {
            bail!("begin = true sends BEGIN and COMMIT: they are not written as statements")
        }
        _ if words.iter().any(|word| word == "set_config") => Effect::Write,
        "with" if words.iter().any(|word| writes.contains(&word.as_str())) => Effect::Write,
        "select" | "with" | "values" | "table" | "show" | "explain" => Effect::Read,
        _ => Effect::Write,
    })
}
