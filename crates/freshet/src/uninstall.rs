//! `freshet uninstall`: removes from a database what Freshet created there.
//!
//! Objects that others created or still use stay: a slot that is being read, and a schema `freshet` with other
//! objects in it. Freshet's account stays too, since Freshet did not create it.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use freshet_net::Upstream;
use freshet_net::postgres::{Error, quote_identifier, quote_literal};
use freshet_replication::triggers::drop_statements;

use crate::check::NO_ANSWER;
use crate::check::database::Database;

/// SQLSTATE `dependent_objects_still_exist`.
const DEPENDENT_OBJECTS: &str = "2BP01";

/// Options of `freshet uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    /// The database, and an account that may do this, as for `freshet serve`
    #[arg(long, env = "FRESHET_UPSTREAM", hide_env_values = true, default_value = "", hide_default_value = true)]
    upstream: String,
    /// Name of the publication to drop
    #[arg(long, default_value = "freshet")]
    publication: String,
    /// Print the statements only
    #[arg(long)]
    dry_run: bool,
}

/// Prints each statement as it is run: success if nothing of Freshet is left, failure if something is, 2 if the
/// database cannot be reached.
pub(crate) async fn run(args: UninstallArgs) -> ExitCode {
    match uninstall(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("freshet: {error:#}");
            ExitCode::from(NO_ANSWER)
        }
    }
}

/// Removes everything. Returns whether nothing is left.
async fn uninstall(args: &UninstallArgs) -> Result<bool> {
    if freshet_net::mysql::Upstream::is_url(&args.upstream) {
        println!(
            "-- Freshet makes nothing in MySQL or MariaDB: there is nothing to remove but its account (DROP USER)"
        );
        return Ok(true);
    }
    let upstream = Arc::new(Upstream::parse(&args.upstream).context("--upstream")?);
    let mut database = Database::connect(&upstream).await.with_context(|| upstream.to_string())?;
    let mut clean = true;
    for active in slots(&mut database, true).await? {
        println!("-- left: replication slot {active} is in use; stop its Freshet and run this again");
        clean = false;
    }
    for statement in statements(&mut database, &args.publication).await? {
        if args.dry_run {
            println!("{statement}");
            continue;
        }
        match database.run(&statement).await {
            Ok(()) => println!("{statement}"),
            Err(error) => {
                println!("-- left ({}): {statement}", error.root_cause());
                clean = false;
            }
        }
    }
    Ok(schema(&mut database, args.dry_run).await? && clean)
}

/// The slots of this database with Freshet's name.
async fn slots(database: &mut Database, active: bool) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT slot_name FROM pg_replication_slots WHERE starts_with(slot_name, 'freshet_') AND active = {active} \
         AND database = current_database() ORDER BY slot_name"
    );
    database.column(&sql).await
}

/// The statements that remove everything except the schema.
async fn statements(database: &mut Database, publication: &str) -> Result<Vec<String>> {
    let mut statements = Vec::new();
    for slot in slots(database, false).await? {
        statements.push(format!("SELECT pg_catalog.pg_drop_replication_slot('{slot}');"));
    }
    let sql = format!("SELECT 1 FROM pg_publication WHERE pubname = {}", quote_literal(publication));
    if !database.column(&sql).await?.is_empty() {
        statements.push(format!("DROP PUBLICATION {};", quote_identifier(publication)));
    }
    let sql = "SELECT 1 FROM pg_event_trigger WHERE evtname IN ('freshet_ddl_end', 'freshet_sql_drop', 'freshet_ddl_start') \
               UNION ALL SELECT 1 FROM pg_proc WHERE pronamespace = to_regnamespace('freshet') AND proname = 'note_ddl'";
    if !database.column(sql).await?.is_empty() {
        statements.extend(drop_statements().into_iter().filter(|statement| !statement.starts_with("DROP SCHEMA")));
    }
    Ok(statements)
}

/// Drops the schema if it is empty. False if it stays for another reason.
async fn schema(database: &mut Database, dry_run: bool) -> Result<bool> {
    if database.column("SELECT 1 FROM pg_namespace WHERE nspname = 'freshet'").await?.is_empty() {
        return Ok(true);
    }
    let statement = "DROP SCHEMA freshet;";
    if dry_run {
        println!("{statement} -- if nothing else is in it");
        return Ok(true);
    }
    // Without CASCADE, the server refuses to drop a schema that is not empty.
    match database.run(statement).await {
        Ok(()) => println!("{statement}"),
        Err(error) => {
            println!("-- left: schema freshet ({})", error.root_cause());
            return Ok(error.downcast_ref::<Error>().and_then(Error::sqlstate) == Some(DEPENDENT_OBJECTS));
        }
    }
    Ok(true)
}
