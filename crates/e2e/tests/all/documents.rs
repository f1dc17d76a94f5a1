//! The lists in the reference are the program's: reasons, metrics, options, columns. And no link in a document is broken.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::support::{Database, Freshet, Version, get, program};

type Names = BTreeSet<String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// What is between two texts.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Result<&'a str> {
    let (_, rest) = text.split_once(from).with_context(|| format!("no {from:?}"))?;
    Ok(rest.split_once(to).with_context(|| format!("no {to:?} behind {from:?}"))?.0)
}

/// A chapter of a document, without its heading.
fn chapter<'a>(text: &'a str, heading: &str) -> Result<&'a str> {
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).with_context(|| format!("no chapter {heading:?}"))?;
    Ok(rest.split("\n## ").next().unwrap_or_default())
}

/// The blocks of code in a chapter of a page: their language and their lines.
pub(crate) fn code(page: &str, heading: &str) -> Result<Vec<(String, String)>> {
    let page = read(page)?;
    let parts = chapter(&page, heading)?.split("```").skip(1).step_by(2);
    let block = |part: &str| part.split_once('\n').map(|(language, lines)| (language.to_owned(), lines.to_owned()));
    Ok(parts.filter_map(block).collect())
}

/// The block about managed databases with these words: what `freshet check` prints.
pub(crate) fn printed_there(words: &str) -> Result<String> {
    let blocks = code("docs/guide/cloud.md", "What `freshet check` prints there")?;
    let block = blocks.into_iter().map(|(_, lines)| lines).find(|lines| lines.contains(words));
    block.with_context(|| format!("no block about {words}"))
}

/// The texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The texts in backticks in the first column of the tables.
fn first_column(text: &str) -> impl Iterator<Item = &str> {
    let cells = text.lines().filter_map(|line| line.strip_prefix('|')?.split_once(" | "));
    cells.flat_map(|(first, _)| quoted(first))
}

fn is_name(text: &&str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn same(what: &str, documented: &Names, program: &Names) -> Result<()> {
    ensure!(!program.is_empty(), "{what}: none in the program");
    let lacking: Vec<_> = program.difference(documented).collect();
    let gone: Vec<_> = documented.difference(program).collect();
    ensure!(lacking.is_empty() && gone.is_empty(), "{what}: not documented {lacking:?}, documented and gone {gone:?}");
    Ok(())
}

#[test]
fn reasons() -> Result<()> {
    let source = read("crates/types/src/reason.rs")?;
    let labels = between(&source, "fn label(", "impl fmt::Display")?;
    let program: Names = labels.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let page = read("docs/reference/cacheability.md")?;
    let documented = first_column(chapter(&page, "What is never cached, and why")?).map(str::to_owned).collect();
    same("reasons", &documented, &program)
}

#[test]
fn metrics() -> Result<()> {
    let database = Database::shared(Version::V18)?;
    // With everything that has metrics of its own.
    let upstream = format!("postgres://postgres@{},127.0.0.1:1/{}", database.address(), database.name);
    let options = ["--auth", "trust", "--pool", "transaction", "--read-replicas"];
    let freshet = Freshet::start_unready(database.address(), &upstream, &options)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let (_, text) = get(freshet.http, "/metrics")?;
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let sample = |(name, kind): (&str, &str)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
    let program: Names = families.map(sample).collect();
    let page = read("docs/reference/metrics.md")?;
    let (_, part) = page.split_once("| metric | is |").context("the table of metrics")?;
    let documented = first_column(part).map(|name| name.split('{').next().unwrap_or_default().to_owned()).collect();
    same("metrics", &documented, &program)
}

/// The long options of a command, but for those that every command has and those that only tests use.
fn options_of(name: &str, command: &str) -> Result<Option<Names>> {
    let Some(program) = program()? else { return Ok(None) };
    let output = Command::new(program.with_file_name(name)).args(command.split(' ')).arg("--help").output()?;
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = help.lines().filter_map(|line| line.strip_prefix("      --"));
    let names = lines.map(|line| format!("--{}", line.split([' ', '[', '=']).next().unwrap_or_default()));
    Ok(Some(names.filter(|name| !["--test-fault", "--log", "--log-format"].contains(&name.as_str())).collect()))
}

#[test]
fn options() -> Result<()> {
    let page = read("docs/reference/options.md")?;
    for (commands, heading) in [
        (&["serve"][..], "`freshet serve`"),
        (&["config import"], "`freshet config`"),
        (&["check"], "`freshet check`"),
        (&["uninstall"], "`freshet uninstall`"),
        (&["advise"], "`freshet advise`"),
        (&["top"], "`freshet top`"),
        (&["bypass"], "`freshet bypass on|off`"),
        (&["memory"], "`freshet memory SIZE`"),
        (&["demo"], "`freshet-bench demo`"),
    ] {
        let name = if heading.starts_with("`freshet-bench") { "freshet-bench" } else { "freshet" };
        let names = first_column(chapter(&page, heading)?)
            .filter(|name| name.starts_with("--") && !["--log", "--log-format"].contains(name));
        let documented = names.map(|name| name.split(' ').next().unwrap_or_default().to_owned()).collect();
        for command in commands {
            let Some(program) = options_of(name, command)? else { return Ok(()) };
            same(&format!("options of {command}"), &documented, &program)?;
        }
    }
    Ok(())
}

/// What Freshet's own SQL commands answer: columns, or the names in the first of two columns.
#[test]
fn answers_to_sql_commands() -> Result<()> {
    let source = read("crates/proxy/src/admin.rs")?;
    let page = read("docs/reference/sql-commands.md")?;
    let pairs = |text: &str| -> Names {
        let names = text.split("(\"").skip(1).filter_map(|part| part.split_once("\", ")).map(|(name, _)| name);
        names.filter(is_name).map(str::to_owned).collect()
    };
    let columns = |command: &str| -> Result<Names> {
        let list = between(&source, &format!("{command} => &["), "]")?;
        Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
    };
    for (command, program) in [
        ("SHOW CACHES", columns("Admin::ShowCaches")?),
        ("SHOW CONFIG", columns("Admin::ShowConfig")?),
        ("RELOAD", columns("Admin::Reload")?),
        ("SHOW PROXIED QUERIES", columns("Admin::ShowProxiedQueries")?),
        ("SHOW FRESHET QUERIES", columns("Admin::ShowQueries")?),
        ("SHOW ADVICE", columns("Admin::ShowAdvice")?),
        ("SHOW REPLICATION", columns("Admin::ShowReplication")?),
        ("SHOW FRESHET STATUS", pairs(between(&source, "fn status(", "fn table_of_pairs(")?)),
        ("EXPLAIN LAST STATEMENT", pairs(between(&source, "fn explain_last(", "fn explain(")?)),
        ("EXPLAIN CACHE", pairs(source.split_once("fn explain(").context("explain")?.1)),
    ] {
        same(command, &first_column(chapter(&page, command)?).map(str::to_owned).collect(), &program)?;
    }
    Ok(())
}

/// All documents of the repository, by their paths from its root.
fn documents() -> Result<Vec<PathBuf>> {
    let (root, mut folders, mut found) = (root(), vec![PathBuf::new()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (path, name) = (folder.join(entry.file_name()), entry.file_name());
            if entry.file_type()?.is_dir() && name != "target" && name != ".git" && name != ".testbed" {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The lines of a document that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Where the links of a document lead, but for those to other hosts.
fn links(text: &str) -> Vec<String> {
    let lines = prose(text).map(|line| line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
    let targets = |line: String| -> Vec<String> {
        line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    };
    lines.flat_map(targets).filter(|target| !target.contains("://")).collect()
}

/// The anchors of a document's headings, as browsers of repositories and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            other => plain.push(other),
        }
        plain
    })
}

/// What is wrong with a link, if anything is.
fn fault(document: &Path, target: &str) -> Result<Option<&'static str>> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let folder = document.parent().unwrap_or(Path::new(""));
    let to = if path.is_empty() { document.to_owned() } else { plain(&folder.join(path)) };
    if !root().join(&to).exists() {
        return Ok(Some("leads nowhere"));
    }
    // The site is made of docs/ alone.
    if document.starts_with("docs") && !to.starts_with("docs") {
        return Ok(Some("leaves the site: name the file instead"));
    }
    let Some(anchor) = anchor else { return Ok(None) };
    Ok((!anchors(&fs::read_to_string(root().join(&to))?).contains(anchor)).then_some("no heading of that name"))
}

#[test]
fn links_lead_somewhere() -> Result<()> {
    let documents = documents()?;
    ensure!(documents.len() > 50, "only {} documents", documents.len());
    let mut faults = Vec::new();
    for document in &documents {
        for target in links(&fs::read_to_string(root().join(document))?) {
            let fault = fault(document, &target)?;
            faults.extend(fault.map(|fault| format!("{}: {target}: {fault}", document.display())));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn every_page_is_in_the_book() -> Result<()> {
    let listed: BTreeSet<PathBuf> =
        links(&read("docs/SUMMARY.md")?).iter().map(|page| Path::new("docs").join(page)).collect();
    let is_page = |path: &PathBuf| path.starts_with("docs") && !path.ends_with("SUMMARY.md");
    let pages: BTreeSet<PathBuf> = documents()?.into_iter().filter(is_page).collect();
    let lacking: Vec<_> = pages.difference(&listed).collect();
    ensure!(lacking.is_empty(), "not in docs/SUMMARY.md: {lacking:?}");
    Ok(())
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# One [two](a.md#b)\n```\n[no](x)\n# no\n```\n`[no](y)` ![c](d.svg) [e](https://f)\n## G `h` (i), j?\n";
    assert_eq!(links(text), ["a.md#b", "d.svg"]);
    assert!(anchors(text).contains("g-h-i-j") && anchors(text).len() == 2);
    assert_eq!(plain(Path::new("a/b/../../c/./d.md")), Path::new("c/d.md"));
}
