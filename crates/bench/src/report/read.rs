//! Reads the document of a run, also one of an earlier version of the program.
//!
//! The schema version is checked first, so that a document of another version is not reported as one that lacks a field. Histograms are decoded once
//! here, so that later code can rely on them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::histogram;
use crate::result::{Load, Run, SCHEMA};

#[derive(Deserialize)]
struct Form {
    schema: u32,
}

/// Reads the run in a file. A file that cannot be read, or has another form, is an error.
pub fn read(path: &Path) -> Result<Run> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not a run that can be read", path.display()))
}

fn parse(text: &str) -> Result<Run> {
    let Form { schema } = serde_json::from_str(text).context("not the JSON document of a run")?;
    ensure!((1..=SCHEMA).contains(&schema), "its form is version {schema}; this program reads versions 1 to {SCHEMA}");
    let mut document: Value = serde_json::from_str(text)?;
    if schema == 1 {
        renew(&mut document);
    }
    let run: Run = serde_json::from_value(document).with_context(|| format!("not of the form of version {schema}"))?;
    for (number, cell) in run.cells.iter().enumerate() {
        for round in &cell.rounds {
            let place = || format!("cell {number}, {}, round {}", round.target, round.number);
            for load in std::iter::once(&round.load).chain(&round.writes) {
                decode_all(load).with_context(place)?;
            }
        }
    }
    Ok(run)
}

/// In version 1 the rate of writes was part of the method and the same for all cells.
fn renew(document: &mut Value) {
    document["schema"] = SCHEMA.into();
    let writes = document["method"]["writes"].clone();
    let cells = document.get_mut("cells").and_then(Value::as_array_mut);
    for cell in cells.into_iter().flatten().filter_map(Value::as_object_mut) {
        cell.insert("writes".to_owned(), writes.clone());
    }
}

fn decode_all(load: &Load) -> Result<()> {
    for text in std::iter::once(&load.latency).chain(&load.statements).chain(&load.lateness) {
        histogram::decode(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn a_document_is_read_back() {
        let run = example::run();
        let text = serde_json::to_string(&run).unwrap();
        let back = parse(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn the_writes_of_version_1_are_those_of_all_cells() {
        let run = example::run();
        let mut old = serde_json::to_value(&run).unwrap();
        old["schema"] = 1.into();
        old["method"]["writes"] = 50.0.into();
        for cell in old["cells"].as_array_mut().unwrap() {
            cell.as_object_mut().unwrap().remove("writes");
        }
        assert_eq!(serde_json::to_value(parse(&old.to_string()).unwrap()).unwrap(), serde_json::to_value(run).unwrap());
    }

    #[test]
    fn what_is_no_document_of_this_form_is_named() {
        assert!(error("{").starts_with("not the JSON document of a run: EOF"), "{}", error("{"));
        assert!(error("{\"latency\": 1}").contains("missing field `schema`"), "{}", error("{\"latency\": 1}"));
        assert_eq!(
            error("{\"schema\": 7}"),
            format!("its form is version 7; this program reads versions 1 to {SCHEMA}")
        );
        let bare = format!("{{\"schema\": {SCHEMA}}}");
        assert!(error(&bare).starts_with(&format!("not of the form of version {SCHEMA}: missing field")));
        let text = serde_json::to_string(&example::run()).unwrap().replacen("HIST", "MIST", 1);
        assert!(error(&text).starts_with("cell 0, direct, round 0: a broken histogram"), "{}", error(&text));
        assert!(format!("{:#}", read(Path::new("no/such.json")).unwrap_err()).starts_with("reading no/such.json"));
    }
}
