//! What the documents list is what the program has: reasons, metrics, options. Nothing else keeps such lists in step.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::support::{Database, Freshet, Version, get, program};

type Names = BTreeSet<String>;

fn read(path: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

/// What is between two texts.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Result<&'a str> {
    let (_, rest) = text.split_once(from).with_context(|| format!("no {from:?}"))?;
    Ok(rest.split_once(to).with_context(|| format!("no {to:?} behind {from:?}"))?.0)
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What stands in backticks in the first column of the tables.
fn first_column(text: &str) -> impl Iterator<Item = &str> {
    let cells = text.lines().filter_map(|line| line.strip_prefix('|')?.split_once(" | "));
    cells.flat_map(|(first, _)| quoted(first))
}

fn is_name(text: &&str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn same(what: &str, documented: &Names, program: &Names) -> Result<()> {
    ensure!(program.len() > 3, "{what} of the program: {program:?}");
    let lacking: Vec<_> = program.difference(documented).collect();
    let gone: Vec<_> = documented.difference(program).collect();
    ensure!(lacking.is_empty() && gone.is_empty(), "{what}: not documented {lacking:?}, documented and gone {gone:?}");
    Ok(())
}

#[test]
fn reasons() -> Result<()> {
    let source = read("crates/model/src/reason.rs")?;
    let labels = between(&source, "fn label(", "impl fmt::Display")?;
    let program: Names = labels.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let readme = read("README.md")?;
    let part = between(&readme, "### What is never cached, and why", "## Looking inside")?;
    let (table, others) = part.split_once("Others say only").context("the other reasons")?;
    let in_table = first_column(table).filter(|name| *name != "reason");
    let documented: Names = in_table.chain(quoted(others).filter(is_name)).map(str::to_owned).collect();
    same("reasons", &documented, &program)
}

#[test]
fn metrics() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    let freshet = Freshet::start_unready(database.address(), &database.url(), &[])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let (_, text) = get(freshet.http, "/metrics")?;
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let sample = |(name, kind): (&str, &str)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
    let program: Names = families.map(sample).collect();
    let readme = read("README.md")?;
    let part = between(&readme, "| metric | is |", "\n\n")?;
    let documented = first_column(part).map(|name| name.split('{').next().unwrap_or_default().to_owned()).collect();
    same("metrics", &documented, &program)
}

/// The long options of a command, but for those that every command has and those that only tests use.
fn options_of(name: &str, command: &str) -> Result<Option<Names>> {
    let Some(program) = program()? else { return Ok(None) };
    let output = Command::new(program.with_file_name(name)).args([command, "--help"]).output()?;
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = help.lines().filter_map(|line| line.strip_prefix("      --"));
    let names = lines.map(|line| format!("--{}", line.split([' ', '[', '=']).next().unwrap_or_default()));
    Ok(Some(names.filter(|name| !["--test-fault", "--log"].contains(&name.as_str())).collect()))
}

#[test]
fn options() -> Result<()> {
    let readme = read("README.md")?;
    for (name, command, from) in
        [("freshet", "serve", "`freshet serve`\n"), ("freshet-bench", "demo", "`freshet-bench demo` (")]
    {
        let Some(program) = options_of(name, command)? else { return Ok(()) };
        let part = between(&readme, from, "\n\n`freshet").or_else(|_| between(&readme, from, "\n## "))?;
        let names = first_column(part).filter(|name| name.starts_with("--") && *name != "--log");
        let documented = names.map(|name| name.split(' ').next().unwrap_or_default().to_owned()).collect();
        same(&format!("options of {command}"), &documented, &program)?;
    }
    Ok(())
}
