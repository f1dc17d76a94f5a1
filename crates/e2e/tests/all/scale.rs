//! Many connections: the cost of an idle one, and the speed of two thousand busy ones among them.
//!
//! `make bench-scale` opens ten thousand connections through the release binary to a PostgreSQL that allows as many, or as many as files and memory
//! of the machine allow, and writes `docs/benchmarks/scale.md`. A single thread drives the busy ones: it sends a statement on each and then reads all
//! answers, so that all of them run at once.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use crate::support::{Database, Freshet, RawClient, Version, files_max, frames};

/// Connections aimed at.
const IDLE: usize = 10_000;
/// Of these, busy at once.
const BUSY: usize = 2_000;
/// Threads that open them.
const OPENERS: usize = 4;
/// Memory that is left to the rest of the machine.
const MEMORY_LEFT_KB: u64 = 3 << 20;
/// Files that a process opens besides its connections.
const FILES_BESIDES: usize = 100;
const ROUNDS_FOR: Duration = Duration::from_secs(5);
const STARTS: usize = 11;

const CACHED: &str = "SELECT name FROM scaled WHERE id = 7";
const PASSED: &str = "SELECT name FROM scaled WHERE id = 7 AND now() IS NOT NULL";

/// A number from a file of `/proc` whose lines have names.
fn named_kb(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("{path}: no {name}"))?;
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().context("a number")
}

/// Processor time of a process so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(") ").context("no name")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at).context("too short")?.parse::<u32>().context("a number");
    Ok(f64::from(ticks(11)? + ticks(12)?) / 100.0)
}

struct Scaled {
    freshet: Freshet,
    database: Database,
    pid: u32,
    text: String,
}

impl Scaled {
    fn rss_kb(&self) -> Result<u64> {
        named_kb(&format!("/proc/{}/status", self.pid), "VmRSS")
    }

    /// Opens connections until there are so many, or memory runs short.
    fn open(&self, count: usize) -> Result<Vec<RawClient>> {
        let open = |share: usize| -> Result<Vec<RawClient>> {
            let mut clients = Vec::new();
            while clients.len() < share && named_kb("/proc/meminfo", "MemAvailable")? > MEMORY_LEFT_KB {
                clients.push(RawClient::login(self.freshet.address, self.database.login())?);
            }
            Ok(clients)
        };
        thread::scope(|scope| {
            let openers: Vec<_> = (0..OPENERS).map(|_| scope.spawn(|| open(count / OPENERS))).collect();
            let mut all = Vec::new();
            for opener in openers {
                all.extend(opener.join().expect("an opener does not panic")?);
            }
            Ok(all)
        })
    }

    /// Statements of all these clients at once, over and over.
    fn busy(&mut self, clients: &mut [RawClient], name: &str, sql: &str) -> Result<()> {
        let message = frames::query(sql);
        let (mut count, before, start) = (0, cpu_seconds(self.pid)?, Instant::now());
        while start.elapsed() < ROUNDS_FOR {
            clients.iter_mut().try_for_each(|client| client.send(&message))?;
            for client in &mut *clients {
                let answer = client.until(b'Z')?;
                ensure!(answer.iter().any(|message| message.tag == b'D'), "{sql}: {answer:?}");
                count += 1;
            }
        }
        let (took, used) = (start.elapsed().as_secs_f64(), cpu_seconds(self.pid)? - before);
        let (rate, each) = (f64::from(count) / took, used * 1e6 / f64::from(count));
        writeln!(self.text, "| {name}, {} connections busy at once | {rate:.0} | {each:.1} |", clients.len())?;
        Ok(())
    }
}

/// From the start of the process to the answer of the first statement that passes, in milliseconds.
fn first_answers(database: &Database) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let freshet = Freshet::start_unready(database.address(), &database.url(), &[])?;
        RawClient::login(freshet.address, database.login())?.run("SELECT now()")?;
        all.push(start.elapsed().as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn idle(scaled: &mut Scaled, count: usize) -> Result<Vec<RawClient>> {
    let (before, start) = (scaled.rss_kb()?, Instant::now());
    let mut clients = scaled.open(count)?;
    let took = start.elapsed().as_secs_f64();
    let each = |now: u64| now.saturating_sub(before) as f64 / clients.len() as f64;
    let opened = each(scaled.rss_kb()?);
    writeln!(scaled.text, "| connections open at once | {} |", clients.len())?;
    writeln!(scaled.text, "| opened in, s | {took:.0} |")?;
    writeln!(scaled.text, "| MB before | {:.1} |", before as f64 / 1e3)?;
    writeln!(scaled.text, "| kB each, opened | {opened:.1} |")?;
    for client in &mut clients {
        client.run(CACHED)?;
        client.run(PASSED)?;
    }
    let used = scaled.rss_kb()?.saturating_sub(before) as f64 / clients.len() as f64;
    writeln!(scaled.text, "| kB each, after a cached and a passed statement | {used:.1} |")?;
    Ok(clients)
}

const HEAD: &str = "# Many connections

`make bench-scale`: PostgreSQL 18 with `max_connections` for all of them, the release binary with one worker for each core, all on one machine
by TCP. Each connection has a backend of its own. As many are opened as the limit of open files allows (a session needs two; the limit of the
machine is 20,000 where this was measured, so that not all of 10,000 fit), with 3 GB of memory left to the rest. What else runs on the machine makes the rates
lower; memory stays.

";

#[test]
#[ignore = "run by `make bench-scale`, with the release binary"]
fn many_connections() -> Result<()> {
    let count = IDLE.min((files_max()?.1 - FILES_BESIDES) / 2);
    let settings = Settings::default().with(format!("max_connections = {}", IDLE + 50)).with("shared_buffers = 64MB");
    let database = Database::create(Version::V18.start(&settings)?)?;
    database.run("CREATE TABLE scaled (id int PRIMARY KEY, name text); INSERT INTO scaled SELECT i, 'name ' || i FROM generate_series(1, 100) i")?;
    let firsts = first_answers(&database)?;
    let freshet = Freshet::start(&database, &["--admission", "always"])?;
    let Some(pid) = freshet.pid() else { return crate::clients::left_out("Freshet") };
    let mut scaled = Scaled { freshet, database, pid, text: HEAD.to_owned() };
    let (median, worst) = (firsts[STARTS / 2], firsts[STARTS - 1]);
    writeln!(scaled.text, "| | |\n|---|---:|")?;
    writeln!(
        scaled.text,
        "| first statement passed, ms after the start of the process, median of {STARTS} | {median:.0} |"
    )?;
    writeln!(scaled.text, "| the slowest of these, ms | {worst:.0} |")?;
    let mut clients = idle(&mut scaled, count)?;
    writeln!(scaled.text, "\n| | statements/s | Freshet's processor time, µs each |\n|---|---:|---:|")?;
    let busy = clients.len().min(BUSY);
    let busy = clients.get_mut(..busy).context("none")?;
    scaled.busy(busy, "hits", CACHED)?;
    scaled.busy(busy, "passed", PASSED)?;
    println!("{}", scaled.text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/scale.md");
    fs::write(path, &scaled.text)?;
    Ok(())
}
