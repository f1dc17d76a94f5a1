//! Instructions for each statement and each applied change: a figure that does not depend on the load of the machine.
//!
//! Freshet runs under valgrind's callgrind, with one worker. The instructions of the worker's thread are counted while one client sends statements of
//! one kind, those of the main thread while changes arrive. The kernel's work for the process is not counted. `make bench-instructions` runs it with
//! the release binary and compares with `docs/benchmarks/instructions.md`: a figure that has grown by more than 3% fails; `ARGS=--write` writes the
//! document. Hits read several results in turn, all of which are in the cache before they are counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::join_keys::stage::{Session, Stage, Which};
use crate::mysql::support::packets::Value as MysqlValue;
use crate::mysql::support::{Kind, Statement};
use crate::support::{PATIENCE, Version, eventually, frames, time_passes};

/// Times each statement is run while it is counted.
const RUNS: u32 = 1000;
/// … and before.
const RUNS_BEFORE: u32 = 50;
/// The keys that hits read in turn. The curve of cache sizes samples one key in sixteen, whose look-ups cost more: with a single key, the figure would
/// depend on whether it is one of them.
const HIT_KEYS: u32 = 256;
const HIT_KEYS_FROM: u32 = 19_000;
/// Changes that the main thread applies, in two windows of equal length.
const CHANGES: [u32; 2] = [1000, 9000];
const WINDOW: Duration = Duration::from_secs(6);
const ROWS: u32 = 20_000;
/// A figure that has grown by more is reported.
const GROWTH_MAX: f64 = 1.03;

/// One worker, so that all statements are counted in one place; time enough for a program that is slow.
const OPTIONS: [&str; 8] =
    ["--workers", "1", "--admission", "always", "--refresh-share", "0", "--max-staleness", "30s"];

const SERVERS: [(&str, Which); 3] = [
    ("PostgreSQL", Which::Postgres(Version::V18)),
    ("MariaDB", Which::Mysql(Kind::Mariadb)),
    ("MySQL", Which::Mysql(Kind::Mysql)),
];

/// What is sent, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Hit,
    HitTen,
    Pass,
    Kept,
    Update,
}

impl Case {
    const ALL: [Self; 5] = [Self::Hit, Self::HitTen, Self::Pass, Self::Kept, Self::Update];

    fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit, one row",
            Self::HitTen => "hit, ten rows of 100 bytes",
            Self::Pass => "passes, not cacheable",
            Self::Kept => "missed and kept",
            Self::Update => "UPDATE of one row, held",
        }
    }

    /// The statement, and its parameter in the given run. `{}` is the parameter's place.
    fn statement(self) -> &'static str {
        match self {
            Self::Hit | Self::Kept => "SELECT name FROM counted WHERE id = {}",
            Self::HitTen => "SELECT id, name FROM counted WHERE id >= {} ORDER BY id LIMIT 10",
            Self::Pass => "SELECT name FROM counted WHERE id = {} AND now() IS NOT NULL",
            Self::Update => "UPDATE counted SET touched = touched + 1 WHERE id = {}",
        }
    }

    fn is_hit(self) -> bool {
        matches!(self, Self::Hit | Self::HitTen)
    }

    fn key(self, run: u32) -> u32 {
        match self {
            Self::Pass => 7,
            Self::Kept => 100 + run,
            Self::Update => 10_000 + run,
            Self::Hit | Self::HitTen => HIT_KEYS_FROM + run % HIT_KEYS,
        }
    }
}

/// Sends a case's statement.
enum Sender {
    Text,
    /// Prepared under this number (MySQL), or under the case's name (PostgreSQL).
    Prepared(Option<Statement>),
}

impl Sender {
    fn text(case: Case, run: u32) -> String {
        case.statement().replace("{}", &case.key(run).to_string())
    }

    fn prepared(session: &mut Session, case: Case) -> Result<Self> {
        Ok(Self::Prepared(match session {
            Session::Postgres(client) => {
                let sql = case.statement().replace("{}", "$1");
                client.exchange(&[frames::parse(case.name(), &sql), frames::sync()].concat(), 1)?;
                None
            }
            Session::Mysql(client) => Some(client.prepare(&case.statement().replace("{}", "?"))?),
        }))
    }

    fn send(&self, session: &mut Session, case: Case, run: u32) -> Result<()> {
        let key = case.key(run);
        match (self, session) {
            (Self::Text, Session::Postgres(client)) => client.run(&Self::text(case, run)),
            (Self::Text, Session::Mysql(client)) => client.run(&Self::text(case, run)),
            (Self::Prepared(_), Session::Postgres(client)) => {
                let bind = frames::bind_text("", case.name(), &[&key.to_string()]);
                let answer = client.exchange(&[bind, frames::execute("", 0), frames::sync()].concat(), 1)?;
                ensure!(answer.iter().all(|message| message.tag != b'E'), "{case:?}: {answer:?}");
                Ok(())
            }
            (Self::Prepared(statement), Session::Mysql(client)) => {
                let statement = statement.context("not prepared")?;
                let answer = client.execute(statement, &[MysqlValue::Int(key.cast_signed())])?;
                ensure!(answer.error().is_none(), "{case:?}: {answer:?}");
                Ok(())
            }
        }
    }
}

/// A Freshet whose instructions are counted.
struct Counted {
    stage: Stage,
    pid: u32,
    dumps: u32,
}

/// Instructions by thread; the main thread is 1.
type Threads = BTreeMap<u32, u64>;

impl Counted {
    fn start(which: Which) -> Result<Option<Self>> {
        let Some(stage) = Stage::alone_with(which, &OPTIONS)? else { return Ok(None) };
        let mut direct = stage.direct()?;
        direct.run("CREATE TABLE counted (id int PRIMARY KEY, name varchar(100) NOT NULL, touched int NOT NULL)")?;
        let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, '{id:0100}', 0)")).collect();
        for some in rows.chunks(2000) {
            direct.run(&format!("INSERT INTO counted VALUES {}", some.join(", ")))?;
        }
        let pid = stage.freshet.pid().context("no Freshet")?;
        Ok(Some(Self { stage, pid, dumps: 0 }))
    }

    fn control(&self, arguments: &[&str]) -> Result<()> {
        let out = Command::new("callgrind_control").args(arguments).arg(self.pid.to_string()).output()?;
        ensure!(out.status.success(), "callgrind_control {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }

    /// Instructions while this is done.
    fn count(&mut self, action: impl FnOnce() -> Result<()>) -> Result<Threads> {
        self.control(&["--instr=on"])?;
        self.control(&["--zero"])?;
        action()?;
        self.control(&["--dump"])?;
        self.control(&["--instr=off"])?;
        self.dumps += 1;
        let mut threads = Threads::new();
        for file in fs::read_dir(folder()?)? {
            let path = file?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(rest) = name.strip_prefix(&format!("{}.{}-", self.pid, self.dumps)) else { continue };
            threads.insert(rest.parse().with_context(|| name.to_owned())?, total(&path)?);
        }
        ensure!(!threads.is_empty(), "no dump {} of {}", self.dumps, self.pid);
        Ok(threads)
    }

    /// Instructions of the worker for each run of a case.
    fn each(&mut self, case: Case, prepared: bool) -> Result<u64> {
        let mut session = self.stage.connect()?;
        self.stage.until_hits(&mut session, &[Sender::text(Case::Hit, 0)])?;
        let sender = if prepared { Sender::prepared(&mut session, case)? } else { Sender::Text };
        if case.is_hit() {
            eventually(PATIENCE, || {
                let before = self.stage.metrics()?;
                (0..HIT_KEYS).try_for_each(|run| sender.send(&mut session, case, run))?;
                let hits = self.stage.metrics()?.hits() - before.hits();
                ensure!(hits == u64::from(HIT_KEYS), "{case:?}: {hits} hits of {HIT_KEYS}");
                Ok(())
            })?;
        }
        // Texts and prepared statements have results of their own.
        let first = 1 + u32::from(prepared) * (RUNS + RUNS_BEFORE);
        let mut runs = first..;
        for run in runs.by_ref().take(RUNS_BEFORE as usize) {
            sender.send(&mut session, case, run)?;
        }
        let before = self.stage.metrics()?;
        let threads =
            self.count(|| runs.take(RUNS as usize).try_for_each(|run| sender.send(&mut session, case, run)))?;
        let hits = self.stage.metrics()?.hits() - before.hits();
        let expected = if case.is_hit() { u64::from(RUNS) } else { 0 };
        ensure!(hits == expected, "{case:?}: {hits} hits");
        let worker = threads.iter().filter(|(thread, _)| **thread != 1).map(|(_, count)| *count).max();
        Ok(worker.context("no worker")? / u64::from(RUNS))
    }

    /// Instructions of the main thread for each applied change of a row, with as many results in memory as there are rows.
    fn change(&mut self) -> Result<u64> {
        let mut direct = self.stage.direct()?;
        // Invalidates what hits have read: the thousand results below are to be the only ones.
        direct.run(&format!("DELETE FROM counted WHERE id >= {HIT_KEYS_FROM}"))?;
        let mut counts = Vec::new();
        for changes in CHANGES {
            let mut session = self.stage.connect()?;
            for run in 0..RUNS {
                Sender::Text.send(&mut session, Case::Kept, run)?;
            }
            let threads = self.count(|| {
                direct.run(&format!("UPDATE counted SET touched = touched + 1 WHERE id < {changes}"))?;
                time_passes("the window of the measurement", WINDOW);
                Ok(())
            })?;
            counts.push(*threads.get(&1).context("no main thread")?);
        }
        let [few, many] = counts[..] else { bail!("two windows") };
        Ok(many.saturating_sub(few) / u64::from(CHANGES[1] - CHANGES[0]))
    }
}

/// Where the dumps are written: `script/counted` is told by the same variable.
fn folder() -> Result<PathBuf> {
    Ok(std::env::var_os("FRESHET_COUNTS").context("FRESHET_COUNTS names no folder: make bench-instructions")?.into())
}

/// The sum that a dump states.
fn total(path: &Path) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    line.with_context(|| format!("{}: no total", path.display()))?.trim().parse().context("a total")
}

/// A row of the table by its name, with a figure for each column.
type Table = Vec<(String, Vec<u64>)>;

fn markdown(columns: &[String], table: &Table) -> String {
    let mut text = format!("| | {} |\n|---|{}\n", columns.join(" | "), "---:|".repeat(columns.len()));
    for (name, figures) in table {
        let figures: Vec<String> = figures.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "| {name} | {} |", figures.join(" | "));
    }
    text
}

/// The table of a document.
fn read(text: &str) -> BTreeMap<String, Vec<u64>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.filter_map(|row| {
        let (name, figures) = row.split_once(" | ")?;
        Some((name.to_owned(), figures.split(" | ").map(|figure| figure.parse().ok()).collect::<Option<_>>()?))
    })
    .collect()
}

/// Figures that have grown.
fn grown(before: &BTreeMap<String, Vec<u64>>, table: &Table, columns: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for (name, figures) in table {
        let Some(were) = before.get(name) else { continue };
        for ((is, was), column) in figures.iter().zip(were).zip(columns) {
            if *is as f64 > *was as f64 * GROWTH_MAX {
                all.push(format!("{name}, {column}: {was} before, {is} now"));
            }
        }
    }
    all
}

const HEAD: &str = "# Instructions

`make bench-instructions`: instructions that Freshet itself executes for each statement, counted by callgrind in the thread of its one
worker while one client sends a thousand of them; for a change, those of the main thread, which decodes the stream and looks for the
results that it touches (a thousand results of the same table are in memory, an UPDATE of many rows in one transaction). The kernel's
part, sockets above all, is not in it. What the machine does besides makes no difference; the compiler does. `ARGS=--write` writes
this document; without it a figure that is more than 3% above what stands here fails. The program is that of `cargo build --release`,
with glibc; [packages](../guide/packages.md#building-the-packages) says what the static one takes.

Before shared connections, query analytics, rules and orders (2026-11-28) the same program's hits of one row cost 2280, 3255, 2484, 3320, 2484 and 3327, and
passing statements 5952, 6220, 8129, 7248, 7991 and 7109, in the order of the columns. Figures of passing, kept and written statements differ by some per cent between
runs, since sessions wait more or less often.

";

/// The recorded figures.
fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/instructions.md")
}

#[test]
#[ignore = "run by `make bench-instructions`, with the release binary under callgrind"]
fn counted() -> Result<()> {
    let (mut columns, mut table): (Vec<String>, Table) = (Vec::new(), Table::new());
    for case in Case::ALL {
        table.push((case.name().to_owned(), Vec::new()));
    }
    table.push(("change applied".to_owned(), Vec::new()));
    for (name, which) in SERVERS {
        let Some(mut counted) = Counted::start(which)? else { return crate::clients::left_out("Freshet") };
        for prepared in [false, true] {
            columns.push(format!("{name}, {}", if prepared { "prepared" } else { "text" }));
            for (row, case) in table.iter_mut().zip(Case::ALL) {
                row.1.push(counted.each(case, prepared)?);
            }
        }
        let change = counted.change()?;
        table.last_mut().context("a row for changes")?.1.extend([change, change]);
    }
    let text = markdown(&columns, &table);
    println!("{text}");
    if std::env::var("ARGS").is_ok_and(|arguments| arguments.contains("--write")) {
        fs::write(page(), format!("{HEAD}{text}"))?;
        return Ok(());
    }
    let grown = grown(&read(&fs::read_to_string(page())?), &table, &columns);
    ensure!(grown.is_empty(), "{}", grown.join("\n"));
    Ok(())
}

#[test]
fn figures_that_grow_are_told() {
    let columns = ["a".to_owned(), "b".to_owned()];
    let table = |figures: [u64; 2]| vec![("hit".to_owned(), figures.to_vec())];
    let before = read(&format!("{HEAD}{}", markdown(&columns, &table([1000, 2000]))));
    assert_eq!(before.get("hit"), Some(&vec![1000, 2000]));
    assert!(grown(&before, &table([1020, 1500]), &columns).is_empty());
    assert_eq!(grown(&before, &table([900, 2100]), &columns), ["hit, b: 2000 before, 2100 now"]);
}

#[test]
fn the_page_holds_what_it_says() -> Result<()> {
    let text = fs::read_to_string(page())?;
    ensure!(text.starts_with(HEAD), "the page begins in another way than `make bench-instructions` writes it");
    let recorded = read(&text);
    let hits = recorded.get(Case::Hit.name()).context("no row for hits")?;
    ensure!(hits.len() == SERVERS.len() * 2, "{hits:?}");
    Ok(())
}
