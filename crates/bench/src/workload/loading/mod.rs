//! Creates a workload's tables and fills them, on either family of servers.
//!
//! A [`Data`] describes its contents once: the columns for each family, and the rows as steps that depend on their number and the seed only. Rows are
//! sent in batches, as COPY or as INSERTs of many rows, while the next are generated. All batches of a table use one connection, so a table always
//! has its rows in the same order. Keys and indexes are built after the rows. In MySQL, tables are clustered by their primary keys and get these at
//! once.
//!
//! A row of the table `freshet_bench` records what was loaded. It is written first and completed last, so an incomplete load is recognised. A table
//! is dropped only if it has the benchmark's comment: a table called `title` or `player` may belong to another application.

mod database;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::target::{Family, Target};

pub(super) use database::Database;
use database::OURS;
pub(super) use rows::{Cell, Rows};

/// The most connections that add rows and build keys.
const CONNECTIONS: usize = 2;
/// Approximate size of a batch.
const BATCH_BYTES: usize = 256 * 1024;
/// The most batches that wait for a connection.
const BATCHES: usize = 2;

/// A set of tables with their rows.
pub(super) trait Data: Send + Sync {
    /// Name in `freshet_bench`. Workloads that share data have the same name.
    fn kind(&self) -> &'static str;

    /// The options, with their values, that determine the rows.
    fn settings(&self) -> Vec<(String, String)>;

    /// The tables. Those that take longest to build come first.
    fn tables(&self, family: Family) -> Vec<Table>;

    /// Number of steps that generate all rows.
    fn steps(&self) -> u64;

    /// Adds the rows of one step. Steps are requested in order. A table is identified by its index in `tables`.
    fn step(&self, number: u64, rows: &mut Rows) -> Result<()>;
}

/// One table.
pub(super) struct Table {
    pub(super) name: String,
    /// Columns and their types.
    pub(super) columns: String,
    /// Columns of the primary key.
    pub(super) key: &'static str,
    /// Statements that run once the rows and the primary key are there.
    pub(super) after: Vec<String>,
}

/// Whether the data exist.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    /// Loaded, with these settings.
    Loaded,
    /// None of the tables exists.
    Missing,
    /// An earlier load created them with these settings, or (empty text) did not complete.
    Other(String),
    /// This table exists, and `freshet-bench load` did not create it.
    Foreign(String),
}

/// A progress bar on standard error.
pub(super) fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg} {percent}% [{bar:30}] {eta}") {
        bar.set_style(style);
    }
    bar.set_message("loading rows");
    bar
}

/// Drops the tables of an earlier load and creates them again. Returns the number of rows.
pub(super) async fn load<D: Data>(data: &D, target: &Target, bar: &ProgressBar) -> Result<u64> {
    let family = family(target)?;
    let tables = data.tables(family);
    let mut database = Database::open(target).await?;
    let name = &target.name;
    match state(data, &mut database).await? {
        State::Foreign(table) => bail!(
            "the table {table} on {name} was not created by `freshet-bench load`, which replaces only its own tables: \
             drop it yourself, or use another database"
        ),
        State::Loaded | State::Other(_) => drop_tables(data, &mut database).await?,
        State::Missing => {}
    }
    database.run(MARKER).await.context("creating the table freshet_bench")?;
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let (kind, names) = (data.kind(), names.join(" "));
    database.run(&format!("DELETE FROM freshet_bench WHERE data = '{kind}'")).await?;
    database.run(&format!("INSERT INTO freshet_bench VALUES ('{kind}', '', '{names}')")).await?;
    for table in &tables {
        database.create(table).await.with_context(|| format!("creating the table {}", table.name))?;
    }
    let rows = fill(data, target, &tables, bar).await?;
    bar.set_message("building keys");
    build_keys(target, tables).await?;
    let settings = settings_text(data);
    database.run(&format!("UPDATE freshet_bench SET settings = '{settings}' WHERE data = '{kind}'")).await?;
    Ok(rows)
}

const MARKER: &str = "CREATE TABLE IF NOT EXISTS freshet_bench (data varchar(40) NOT NULL PRIMARY KEY, \
                      settings varchar(400) NOT NULL, table_names text NOT NULL)";

fn family(target: &Target) -> Result<Family> {
    target
        .family()
        .with_context(|| format!("{} is not an SQL server: this workload cannot be loaded there", target.name))
}

/// The settings in the form of the command line.
pub(super) fn settings_text<D: Data>(data: &D) -> String {
    let options: Vec<_> = data.settings().iter().map(|(name, value)| format!("--{name} {value}")).collect();
    options.join(" ")
}

/// Checks whether the data exist.
pub(super) async fn state<D: Data>(data: &D, database: &mut Database) -> Result<State> {
    let tables: Vec<String> = data.tables(database.family()).into_iter().map(|table| table.name).collect();
    let marked = if database.comment("freshet_bench").await?.is_some() {
        let sql = format!("SELECT settings, table_names FROM freshet_bench WHERE data = '{}'", data.kind());
        database.texts(&sql).await?.into_iter().next()
    } else {
        None
    };
    let mut whole = true;
    for table in &tables {
        match database.comment(table).await? {
            None => whole = false,
            Some(comment) if comment == OURS => {}
            Some(_) => return Ok(State::Foreign(table.clone())),
        }
    }
    let Some(row) = marked else { return Ok(State::Missing) };
    let settings = row.into_iter().next().flatten().unwrap_or_default();
    Ok(match settings == settings_text(data) {
        true if whole => State::Loaded,
        true => State::Other(String::new()),
        false => State::Other(settings),
    })
}

/// An error that names the command to run, unless the data exist.
pub(super) async fn ready<D: Data>(data: &D, workload: &str, target: &Target) -> Result<()> {
    let state = state(data, &mut Database::open(target).await?).await?;
    explain(&state, (workload, &settings_text(data)), target)
}

/// The error for a state that is not [`State::Loaded`]. `wanted` is the workload and its settings.
pub(super) fn explain(state: &State, wanted: (&str, &str), target: &Target) -> Result<()> {
    let (workload, settings) = wanted;
    let load = format!("freshet-bench load {workload} {settings} --target {}={}", target.name, target.shown_url());
    match state {
        State::Loaded => Ok(()),
        State::Missing => bail!("there are no data; load them with: {load}"),
        State::Other(found) if found.is_empty() => {
            bail!("an earlier load was not completed; load again with: {load}")
        }
        State::Other(found) => bail!("the data were loaded with {found}; load others with: {load}"),
        State::Foreign(table) => bail!("the table {table} was not created by `freshet-bench load`"),
    }
}

/// Drops the tables that the marker names. They may differ from those that this load creates.
async fn drop_tables<D: Data>(data: &D, database: &mut Database) -> Result<()> {
    let sql = format!("SELECT table_names FROM freshet_bench WHERE data = '{}'", data.kind());
    for names in database.texts(&sql).await?.into_iter().flatten().flatten() {
        for table in names.split_whitespace() {
            if database.comment(table).await?.is_some_and(|comment| comment == OURS) {
                database.drop_table(table).await?;
            }
        }
    }
    Ok(())
}

/// Rows of one table, in the form that is sent.
struct Batch {
    table: String,
    text: String,
}

async fn fill<D: Data>(data: &D, target: &Target, tables: &[Table], bar: &ProgressBar) -> Result<u64> {
    let mut senders = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..CONNECTIONS.min(tables.len()) {
        let (sender, receiver) = mpsc::channel(BATCHES);
        senders.push(sender);
        writers.push(tokio::spawn(write(Database::open(target).await?, receiver)));
    }
    bar.set_length(data.steps());
    let mut rows = Rows::new(family(target)?, tables.len());
    for number in 0..data.steps() {
        data.step(number, &mut rows)?;
        bar.inc(1);
        if !send(&mut rows, BATCH_BYTES, tables, &senders).await {
            break; // the writer has failed, and says why
        }
    }
    send(&mut rows, 0, tables, &senders).await;
    drop(senders);
    finish(writers).await.context("writing rows")?;
    Ok(rows.count())
}

/// Sends each batch longer than `at_least` bytes. False if the task that writes them has ended.
async fn send(rows: &mut Rows, at_least: usize, tables: &[Table], senders: &[mpsc::Sender<Batch>]) -> bool {
    while let Some((index, text)) = rows.take(at_least) {
        let Some(sender) = senders.get(index % senders.len().max(1)) else { return false };
        if sender.send(Batch { table: tables[index].name.clone(), text }).await.is_err() {
            return false;
        }
    }
    true
}

async fn write(mut database: Database, mut batches: mpsc::Receiver<Batch>) -> Result<()> {
    while let Some(batch) = batches.recv().await {
        let table = batch.table;
        database.add(&table, batch.text).await.with_context(|| format!("the table {table}"))?;
    }
    Ok(())
}

async fn finish(tasks: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Each connection takes the next table.
async fn build_keys(target: &Target, tables: Vec<Table>) -> Result<()> {
    let (tables, next) = (Arc::new(tables), Arc::new(AtomicUsize::new(0)));
    let mut builders = Vec::new();
    for _ in 0..CONNECTIONS.min(tables.len()) {
        let mut database = Database::open(target).await?;
        let (tables, next) = (Arc::clone(&tables), Arc::clone(&next));
        builders.push(tokio::spawn(async move {
            while let Some(table) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
                database.complete(table).await.with_context(|| format!("the table {}", table.name))?;
            }
            Ok(())
        }));
    }
    finish(builders).await.context("building keys")
}
