//! `freshet check` for MySQL and MariaDB.
//!
//! Little must be set up: no publication, no triggers, nothing in the schema. But the servers' defaults are often not enough. MariaDB has no binlog
//! by default, MySQL no global transaction identifiers, and accounts see only what they have privileges for. The check looks at everything as the
//! services will see it. Each finding has the statement or the line of the option file that solves it.

mod account;
mod binlog;
mod database;
mod hosts;
mod tables;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use freshet_net::mysql::Upstream;

use super::report::Report;
use super::{CheckArgs, print};
use crate::serve;
use database::Database;

/// The oldest supported releases.
const OLDEST: (Version, Version) = ((8, 0, 0), (10, 5, 2));

type Version = (u32, u32, u32);

/// Checks the server, and prints the findings.
pub(super) async fn check(args: &CheckArgs) -> Result<ExitCode> {
    let upstream = upstream(args)?;
    let mut report = Report::default();
    hosts::look(&upstream, &mut report).await;
    let connected = connect(&upstream).await;
    if connected.is_err() && upstream.has_several_hosts() {
        // It says why none is the primary.
        print(&report.to_string())?;
    }
    let mut database = connected?;
    if kind(&database, &mut report) {
        binlog::look(&mut database, &mut report).await?;
        account::look(&mut database, &upstream, &mut report).await?;
        tables::look(&mut database, &args.tables, &mut report).await?;
    }
    print(&report.to_string())?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a script that creates an account and does the administrator's other tasks in the report.
pub(super) async fn print_setup(args: &CheckArgs) -> Result<ExitCode> {
    let upstream = upstream(args)?;
    let mut database = connect(&upstream).await?;
    let mut report = Report::default();
    if kind(&database, &mut report) {
        binlog::look(&mut database, &mut report).await?;
    }
    let mut script = format!(
        "-- Prepares {} for Freshet. Run it as an administrator; it may be run again.\n\
         -- Freshet makes nothing in the server, so there is nothing else to set up, and nothing to remove.\n\n",
        database.server
    );
    script.push_str(&account::script(&args.role));
    script.push_str("\n-- The binlog, which is the change stream.\n");
    for statement in report.mends() {
        let _ = writeln!(script, "{statement}");
    }
    if report.mends().next().is_none() {
        script.push_str("-- It is as it should be.\n");
    }
    print(&script)?;
    Ok(ExitCode::SUCCESS)
}

fn upstream(args: &CheckArgs) -> Result<Arc<Upstream>> {
    match &args.configured {
        Some(config) => serve::mysql::upstream(config),
        None => Ok(Arc::new(Upstream::parse(&args.upstream).context("--upstream")?)),
    }
}

async fn connect(upstream: &Upstream) -> Result<Database> {
    Database::connect(upstream).await.with_context(|| format!("{upstream} cannot be looked at"))
}

/// Checks the kind of the server. False if no other check is useful.
fn kind(database: &Database, report: &mut Report) -> bool {
    let server = &database.server;
    let oldest = if server.is_mariadb { OLDEST.1 } else { OLDEST.0 };
    if server.is_at_least(oldest.0, oldest.1, oldest.2) {
        report.ok(server.to_string());
        return true;
    }
    let text = format!("{server}: Freshet needs version {}.{}.{} or later", oldest.0, oldest.1, oldest.2);
    report.problem(text, vec!["-- upgrade the server".into()]);
    false
}
