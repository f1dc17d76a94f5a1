//! The rules of the code base that neither the compiler nor clippy checks.
//!
//! Each rule walks the sources and reports violations as `file:line`. The limits are guidelines: a justified exception goes into [`EXCEPTIONS`] with
//! its reason, and an exception that is no longer needed is a violation itself, so that the list stays current.

mod cycles;
mod source;
mod structs;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

const FUNCTION_LINES_MAX: usize = 70;
const PARAMETERS_MAX: usize = 5;
const FILE_LINES_MAX: usize = 500;

/// `(rule, what the offence's text contains, why it is right all the same)`
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("struct size", "struct CardArgs has", "configuration: the options of a command line"),
    ("struct size", "struct WorkloadArgs has", "configuration: the options of a command line"),
    ("struct size", "struct ServeArgs has", "configuration: the options of a command line"),
    ("struct size", "struct Faults has", "configuration: test switches, one for each rule of the protocol"),
    (
        "struct size",
        "struct Shared has",
        "what all sessions and services share: one field for each service, each of a type of its own",
    ),
    ("struct size", "struct Catalog has", "plain data of one load: what the verdicts look up, each by its own name"),
    (
        "struct size",
        "struct Core has",
        "the state behind the one lock; to be divided into epochs, unproven commits and published tables",
    ),
    ("struct size", "struct Done has", "plain data of one answer, each value as its packets report it"),
    (
        "struct size",
        "struct Client has",
        "facts about a connection that the server tells one by one, in any combination",
    ),
];

/// Which crates of the workspace each crate may use. `e2e` sits on top and may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("wire", &["types"]),
    ("sql", &["types"]),
    ("cache", &["types"]),
    ("net", &["types", "wire"]),
    ("replication", &["types", "net", "wire"]),
    ("proxy", &["cache", "types", "net", "sql", "units", "wire"]),
    ("testbed", &[]),
    ("units", &[]),
    ("pages", &[]),
    ("bench", &["pages", "testbed", "units"]),
    ("freshet", &["cache", "types", "net", "pages", "proxy", "sql", "replication", "units", "wire"]),
    ("e2e", &["bench", "cache", "freshet", "types", "net", "proxy", "sql", "replication", "testbed", "units", "wire"]),
];

/// What any crate's tests may use besides.
const TESTS_MAY_USE: &[&str] = &["anyhow", "freshet-testbed", "tokio"];

/// Outside crates that only the named ones may use: `(outside crate, users)`.
const RESERVED: &[(&str, &[&str])] = &[
    ("sqlparser", &["sql"]),
    ("axum", &["freshet"]),
    ("clap", &["freshet", "bench", "pages", "e2e"]),
    ("anyhow", &["freshet", "bench", "testbed", "e2e"]),
    ("tokio", &["net", "replication", "proxy", "freshet", "bench", "e2e"]),
    ("quick_cache", &["cache", "proxy"]),
];

/// Crates that the benchmark program and the tests use alone.
const NOT_IN_THE_SERVER: &[&str] =
    &["freshet-bench", "freshet-testbed", "comfy-table", "hdrhistogram", "indicatif", "mysql_async", "tokio-postgres"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// The crates' directories, by name.
fn crates() -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(workspace().join("crates"))
        .expect("crates/ can be read")
        .map(|entry| entry.expect("a directory entry"))
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    found.sort();
    found
}

/// All Rust sources of the workspace, as paths relative to its root.
fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for (_, directory) in crates() {
        walk(&directory, &mut files);
    }
    files.sort();
    let root = workspace();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source can be read");
        Source::new(path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned(), text)
    };
    files.into_iter().map(read).collect()
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a source directory can be read") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() && !path.ends_with("target") {
            walk(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Fails with all offences that no exception excuses, and with the exceptions that excuse none.
fn report(rule: &str, offences: &[String]) {
    let excused = |offence: &String| EXCEPTIONS.iter().any(|(r, text, _)| *r == rule && offence.contains(text));
    let idle = |(r, text, _): &&(&str, &str, &str)| *r == rule && !offences.iter().any(|o| o.contains(text));
    let mut lines: Vec<String> =
        EXCEPTIONS.iter().filter(idle).map(|(_, text, _)| format!("exception no longer needed: {text}")).collect();
    lines.extend(offences.iter().filter(|o| !excused(o)).cloned());
    assert!(lines.is_empty(), "{rule}:\n  {}\n", lines.join("\n  "));
}

#[test]
fn functions_are_short_and_take_few_parameters() {
    let mut offences = Vec::new();
    for source in sources() {
        for function in source.functions() {
            let at = format!("{}:{}: fn {}", source.path, function.line, function.name);
            if function.lines > FUNCTION_LINES_MAX {
                offences.push(format!("{at} has {} lines (limit {FUNCTION_LINES_MAX})", function.lines));
            }
            if function.parameters > PARAMETERS_MAX {
                offences.push(format!("{at} takes {} parameters (limit {PARAMETERS_MAX})", function.parameters));
            }
        }
    }
    report("function size", &offences);
}

#[test]
fn files_are_short() {
    let long = |s: &Source| s.lines_without_tests() > FILE_LINES_MAX;
    let text =
        |s: Source| format!("{}:1: {} lines without tests (limit {FILE_LINES_MAX})", s.path, s.lines_without_tests());
    let offences: Vec<_> = sources().into_iter().filter(long).map(text).collect();
    report("file size", &offences);
}

#[test]
fn files_say_at_the_top_what_they_are_for() {
    let silent = |s: &Source| !s.text.trim_start().starts_with("//!");
    let offences: Vec<_> = sources().into_iter().filter(silent).map(|s| format!("{}:1: no //! doc", s.path)).collect();
    report("module docs", &offences);
}

#[test]
fn modules_have_telling_names() {
    let vague = |s: &Source| {
        Path::new(&s.path)
            .with_extension("")
            .components()
            .any(|part| ["util", "utils", "helper", "helpers", "common", "misc"].iter().any(|n| part.as_os_str() == *n))
    };
    let offences: Vec<_> = sources().into_iter().filter(vague).map(|s| format!("{}:1: a vague name", s.path)).collect();
    report("module names", &offences);
}

#[test]
fn forbidden_words_do_not_occur() {
    let everywhere = [("unbounded_channel", "queues have bounds"), ("mpsc::channel()", "queues have bounds")];
    let clocks = [("Instant::now", "time is a parameter"), ("SystemTime", "time is a parameter")];
    let mut offences = Vec::new();
    for source in sources() {
        let timeless = ["crates/cache/src/", "crates/types/src/"].iter().any(|p| source.path.starts_with(p));
        for (word, why) in everywhere.iter().chain(clocks.iter().filter(|_| timeless)) {
            offences.extend(source.lines_with(word).map(|line| format!("{}:{line}: {word}: {why}", source.path)));
        }
    }
    report("forbidden words", &offences);
}

/// End-to-end tests wait for a state. Where time itself must pass, a helper's name says why.
#[test]
fn tests_sleep_in_named_helpers_alone() {
    let mut offences = Vec::new();
    for source in sources() {
        if source.path.starts_with("crates/e2e/tests/") && !source.path.ends_with("/support/waiting.rs") {
            let text = |line| format!("{}:{line}: wait with support::eventually, rest or time_passes", source.path);
            offences.extend(source.lines_with("sleep(").map(text));
        }
    }
    report("sleeps", &offences);
}

#[test]
fn lints_are_expected_with_a_reason() {
    let mut offences = Vec::new();
    for source in sources() {
        for (line, _) in source.attributes("allow(") {
            offences.push(format!("{}:{line}: use #[expect(…, reason = \"…\")] rather than allow", source.path));
        }
        for (line, attribute) in source.attributes("expect(") {
            if !attribute.contains("reason") {
                offences.push(format!("{}:{line}: expect without a reason", source.path));
            }
        }
    }
    report("lints", &offences);
}

#[test]
fn crates_use_only_what_the_layout_allows() {
    let mut offences = Vec::new();
    for (name, directory) in crates() {
        let path = format!("crates/{name}/Cargo.toml");
        let Some((_, allowed)) = MAY_USE.iter().find(|(n, _)| *n == name) else {
            offences.push(format!("{path}:1: the crate is not in the layout table"));
            continue;
        };
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest can be read");
        for Dependency { line, name: dependency, of_tests } in dependencies(&manifest) {
            if of_tests && TESTS_MAY_USE.contains(&dependency) {
                continue;
            }
            let own = if dependency == "freshet" { Some("freshet") } else { dependency.strip_prefix("freshet-") };
            if own.is_some_and(|own| !allowed.contains(&own)) {
                offences.push(format!("{path}:{line}: {name} may not use {dependency}"));
            }
            let reserved = RESERVED.iter().find(|(outside, _)| *outside == dependency);
            if reserved.is_some_and(|(_, users)| !users.contains(&name.as_str())) {
                offences.push(format!("{path}:{line}: {name} may not use {dependency}"));
            }
        }
    }
    report("dependencies", &offences);
}

/// The server is built without what the benchmark program and the tests need.
#[test]
fn the_server_is_built_alone() -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = std::process::Command::new(cargo);
    tree.args(["tree", "--package", "freshet", "--edges", "normal", "--prefix", "none", "--locked", "--offline"]);
    let output = tree.current_dir(workspace()).output()?;
    anyhow::ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let names: HashSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    anyhow::ensure!(names.contains("freshet-proxy"), "{text}");
    let foreign: Vec<_> = NOT_IN_THE_SERVER.iter().filter(|name| names.contains(**name)).collect();
    anyhow::ensure!(foreign.is_empty(), "freshet depends on {foreign:?}");
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Dependency<'a> {
    line: usize,
    name: &'a str,
    of_tests: bool,
}

/// What all `[…dependencies]` sections of a manifest name.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let (mut inside, mut of_tests) = (false, false);
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim().ends_with("dependencies]");
            of_tests = line.contains("dev-dependencies");
        } else if inside && line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c))).unwrap_or(line.len());
            found.push(Dependency { line: index + 1, name: &line[..end], of_tests });
        }
    }
    found
}

#[test]
fn dependencies_are_read_from_every_section() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n[dev-dependencies]\nb-c = \"1\"\n";
    let (a, b) =
        (Dependency { line: 4, name: "a", of_tests: false }, Dependency { line: 6, name: "b-c", of_tests: true });
    assert_eq!(dependencies(manifest), [a, b]);
}
