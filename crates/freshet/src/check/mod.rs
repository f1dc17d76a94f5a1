//! `freshet check`: whether a database meets every requirement, and the remedy if not.
//!
//! Freshet serves any database, uncached if necessary. So a missing right shows as missing speed and not as an error. The check does in advance what
//! the services will do. Each finding has the statement that solves it. `--print-setup` prints one script with everything that an administrator can
//! do in advance, for a Freshet that must change nothing itself (`freshet serve --prepared`).

pub(crate) mod database;
mod keys;
mod mysql;
mod publication;
mod report;
mod rights;
mod script;
mod server;
mod tables;
mod triggers;
mod waiting;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use freshet_net::Upstream;

use crate::config::{self, DatabaseConfig};
use crate::serve;
use database::Database;
use report::Report;

/// The exit code if nothing could be checked.
pub(crate) const NO_ANSWER: u8 = 2;

/// Options of `freshet check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The database and Freshet's account in it, as for `freshet serve`
    #[arg(long, env = "FRESHET_UPSTREAM", hide_env_values = true, default_value = "", hide_default_value = true)]
    upstream: String,
    /// Check all databases of this configuration file instead
    #[arg(long, value_name = "FILE", conflicts_with = "print_triggers")]
    config: Option<PathBuf>,
    /// The database of the configuration file that is being checked.
    #[arg(skip)]
    configured: Option<DatabaseConfig>,
    /// Name of the publication that Freshet keeps
    #[arg(long, default_value = "freshet")]
    publication: String,
    /// Tables that are to be cached, as schema.table; a partitioned table stands for its partitions; all if not given
    #[arg(long, value_delimiter = ',')]
    tables: Vec<String>,
    /// Check for `freshet serve --prepared`, which changes nothing in the database's schema
    #[arg(long)]
    prepared: bool,
    /// Print an SQL script that prepares the database, to be run by a superuser
    #[arg(long)]
    print_setup: bool,
    /// Print the event triggers alone, to be made by a superuser; nothing is asked of a database
    #[arg(long, conflicts_with = "print_setup")]
    print_triggers: bool,
    /// Freshet's account in the script of --print-setup
    #[arg(long, default_value = "freshet")]
    role: String,
}

/// Who changes the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Freshet makes the publication and what else it needs, and adds tables.
    Managed,
    /// An administrator has made them.
    Prepared,
}

/// Prints the findings. Success if every guarantee holds, failure if not, 2 if the database cannot be checked.
pub(crate) async fn run(args: CheckArgs) -> ExitCode {
    let Some(path) = &args.config else { return run_one(&args).await };
    let arguments = [OsString::from("freshet"), "serve".into(), "--config".into(), path.into()];
    let config = match config::read(&arguments) {
        Ok(config) => config,
        Err(faults) => {
            for fault in &faults {
                eprintln!("{fault}");
            }
            return ExitCode::from(NO_ANSWER);
        }
    };
    let mut outcome = ExitCode::SUCCESS;
    for database in config.databases {
        let head = if args.print_setup { "-- database" } else { "database" };
        // If the output is closed, nobody reads it.
        let _ = print(&format!("{head} {}\n", database.label()));
        let one = CheckArgs {
            upstream: database.args.upstream.clone(),
            publication: database.args.publication.clone(),
            prepared: database.args.prepared,
            configured: Some(database),
            ..args.clone()
        };
        let code = run_one(&one).await;
        if code != ExitCode::SUCCESS && outcome != ExitCode::from(NO_ANSWER) {
            outcome = code;
        }
    }
    outcome
}

async fn run_one(args: &CheckArgs) -> ExitCode {
    let outcome = match (freshet_net::mysql::Upstream::is_url(&args.upstream), args.print_setup) {
        _ if args.print_triggers => print(&triggers::script()).map(|()| ExitCode::SUCCESS),
        (true, true) => mysql::print_setup(args).await,
        (true, false) => mysql::check(args).await,
        (false, true) => print_setup(args).await,
        (false, false) => check(args).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("freshet: {error:#}");
        ExitCode::from(NO_ANSWER)
    })
}

async fn connect(args: &CheckArgs) -> Result<(Arc<Upstream>, Database)> {
    let upstream = if let Some(config) = &args.configured {
        // Its warnings are logged.
        serve::postgres::upstream(config)?
    } else {
        let upstream = Upstream::parse(&args.upstream).context("--upstream")?;
        for warning in &upstream.conninfo().warnings {
            tracing::warn!("--upstream: {warning}");
        }
        Arc::new(upstream)
    };
    let database = Database::connect(&upstream).await.with_context(|| format!("{upstream} cannot be looked at"))?;
    Ok((upstream, database))
}

async fn check(args: &CheckArgs) -> Result<ExitCode> {
    let (upstream, mut database) = connect(args).await?;
    let mut report = Report::default();
    let configured = args.configured.as_ref();
    if let Some(warning) = configured.and_then(|config| serve::postgres::warn_of_replicas(config, &upstream)) {
        report.warning(warning, Vec::new());
    }
    if server::kind(&mut database, &mut report).await? {
        server::capacity(&mut database, &mut report).await?;
        server::replication(&mut database, &upstream, &mut report).await?;
        rights::look(&mut database, &mut report).await?;
        schema(&mut database, args, &mut report).await?;
        server::settings(&mut database, &mut report).await?;
        waiting::writers(&mut database, &mut report).await?;
    }
    print(&report.to_string())?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks tables and publication.
async fn schema(database: &mut Database, args: &CheckArgs, report: &mut Report) -> Result<()> {
    let mode = if args.prepared { Mode::Prepared } else { Mode::Managed };
    let all = tables::all(database, &args.publication).await?;
    let unfit_but_published = all.iter().filter(|table| table.published && !table.publishable()).cloned();
    let mut chosen = unfit_but_published.collect::<Vec<_>>();
    chosen.retain(|_| !args.tables.is_empty());
    for table in tables::chosen(database, all, &args.tables, report).await? {
        if !chosen.iter().any(|other| other.name == table.name) {
            chosen.push(table);
        }
    }
    tables::look(&chosen, report);
    let relations = keys::relations(database, &chosen).await?;
    keys::look(database, relations, report);
    let exists = publication::look(database, &args.publication, &chosen, mode, report).await?;
    if mode == Mode::Managed {
        publication::owners_of_tables(database, &args.publication, exists, &chosen, report);
    }
    triggers::look(database, mode, report).await
}

async fn print_setup(args: &CheckArgs) -> Result<ExitCode> {
    let (_, mut database) = connect(args).await?;
    let mut report = Report::default();
    let all = tables::all(&mut database, &args.publication).await?;
    let chosen = tables::chosen(&mut database, all, &args.tables, &mut report).await?;
    if !report.is_good() {
        eprint!("{report}");
        return Ok(ExitCode::FAILURE);
    }
    let triggers_stand = triggers::stand(&mut database).await?;
    let keys = keys::relations(&mut database, &chosen).await?;
    let (role, publication, tables) = (&args.role, &args.publication, chosen.as_slice());
    let wanted = script::Wanted { role, publication, tables, keys: &keys, triggers_stand };
    print(&script::write(&database, &wanted))?;
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}
