//! The programs in `examples/` print the same directly and through Freshet, with hits among their reads; the options in its
//! compose file are the program's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::languages::publish;
use super::{RUNS_MAX, SECONDS_MAX, Way, ensure_same, left_out, output_of, python};
use crate::support::{Database, Pair, Version, program};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed")
}

/// Go, which `script/setup-clients` may have installed.
fn go() -> Command {
    let path = format!("{}:{}", testbed().join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command.args([SECONDS_MAX, "go", "-C"]).arg(folder().join("go")).args(["run", "."]).env("PATH", path);
    command
}

#[test]
fn django_and_go() -> Result<()> {
    let Some(interpreter) = python::interpreter() else { return left_out("Python's drivers") };
    let schema = fs::read_to_string(folder().join("schema.sql"))?;
    let pair = Pair::over(Database::shared(Version::V18)?, &schema, &[])?;
    let django = |way: Way<'_>| {
        let mut command = way.command(&interpreter);
        command.arg("-B").arg(folder().join("django/shop.py"));
        command
    };
    let go = |way: Way<'_>| {
        let (address, login, password) = (way.address(), pair.login(), pair.database.server.password());
        let mut command = go();
        command.arg(format!("postgres://{}:{password}@{address}/{}", login.user, login.database));
        command
    };
    if !testbed().join("go/installed").exists() {
        return left_out("Go's drivers");
    }
    publish(&pair, &["product", "review"])?;
    same(&pair, django).context("django")?;
    same(&pair, go).context("go")
}

fn same(pair: &Pair, command: impl Fn(Way<'_>) -> Command) -> Result<()> {
    let direct = output_of(&command(Way { pair, through: false }), 0)?;
    ensure!(direct.lines().count() == 6 && direct.to_lowercase().ends_with("is read: true\n"), "{direct}");
    for _ in 0..RUNS_MAX {
        let before = pair.freshet.metrics()?.hits();
        ensure_same(&direct, &output_of(&command(Way { pair, through: true }), 0)?)?;
        if pair.freshet.metrics()?.hits() >= before + 20 || !pair.freshet.is_there() {
            return Ok(());
        }
    }
    bail!("never 20 hits in {RUNS_MAX} runs")
}

#[test]
fn options_of_the_compose_file() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let output = Command::new(program).args(["serve", "--help"]).output()?;
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = fs::read_to_string(folder().join("compose/compose.yaml"))?;
    let options: Vec<&str> =
        file.lines().filter_map(|line| line.trim().strip_prefix("- --")?.split('=').next()).collect();
    ensure!(options.len() == 3, "{options:?}");
    for option in options {
        ensure!(help.contains(&format!("--{option} ")), "no option --{option}");
    }
    ensure!(file.contains("FRESHET_UPSTREAM:") && help.contains("FRESHET_UPSTREAM"), "no FRESHET_UPSTREAM");
    Ok(())
}
