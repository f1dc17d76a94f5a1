//! The binlog: whether it exists, contains all changes, and contains them as rows.

use anyhow::Result;
use freshet_net::mysql::ServerVersion;
use freshet_types::GtidSet;

use super::database::{Database, in_option_file};
use crate::check::report::{Report, THEN_RESTART};

/// The steps from no GTIDs to GTIDs for all transactions. Each may be taken while clients work.
const GTID_MODES: [&str; 4] = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"];

pub(super) async fn look(database: &mut Database, report: &mut Report) -> Result<()> {
    if is_off(&database.variable("log_bin").await?) {
        let default = if database.server.is_mariadb { ", as by default" } else { "" };
        let text = format!("log_bin is OFF{default}: there is no change stream, so nothing is cached until it is on");
        report.problem(text, vec![in_option_file(&option_lines(&database.server)), THEN_RESTART.into()]);
        return Ok(());
    }
    report.ok("log_bin is ON");
    format(database, report).await?;
    if !database.server.is_mariadb {
        gtids(database, report).await?;
    }
    if database.variable("server_id").await? == "0" {
        let text = "server_id is 0, so the server sends its binlog to nobody: nothing is cached";
        report.problem(text, database.set("server_id", "1"));
    }
    completeness(database, report).await?;
    expiry(database, report).await
}

/// All options that a server without a binlog lacks.
fn option_lines(server: &ServerVersion) -> Vec<&'static str> {
    let mut lines = vec!["log-bin = binlog", "binlog-format = ROW", "server-id = 1 (a number of its own)"];
    if !server.is_mariadb {
        lines.extend(["gtid-mode = ON", "enforce-gtid-consistency = ON"]);
    }
    lines
}

/// Checks what is logged for a change.
async fn format(database: &mut Database, report: &mut Report) -> Result<()> {
    let format = database.variable("binlog_format").await?;
    if format == "ROW" {
        report.ok("binlog_format is ROW");
    } else {
        let default = if database.server.is_mariadb && format == "MIXED" { ", as by default" } else { "" };
        let text = format!(
            "binlog_format is {format}{default}: a write that is logged as a statement invalidates everything, since it does not \
             say which rows it changed"
        );
        report.problem(text, database.set("binlog_format", "ROW"));
    }
    let image = database.variable("binlog_row_image").await?;
    if !matches!(image.as_str(), "FULL" | "FULL_NODUP") {
        let text = format!(
            "binlog_row_image is {image}: updates and deletes carry few old values, so for results that compare other \
             columns than the key's the keys of their rows are read by one more query; of more than 1,000 rows, and \
             without a primary key, each invalidates them all"
        );
        report.warning(text, database.set("binlog_row_image", "FULL"));
    }
    let metadata = database.variable("binlog_row_metadata").await?;
    if !matches!(metadata.as_str(), "FULL" | "") {
        let text = format!(
            "binlog_row_metadata is {metadata}, as by default: columns are named after the catalogue, so after DDL each \
             write invalidates all results over its table until the catalogue has been read again"
        );
        report.hint(text, database.set("binlog_row_metadata", "FULL"));
    }
    Ok(())
}

/// GTIDs tell which commits are visible in MySQL.
async fn gtids(database: &mut Database, report: &mut Report) -> Result<()> {
    let mode = database.variable("gtid_mode").await?;
    if mode != "ON" {
        let default = if mode == "OFF" { ", as by default" } else { "" };
        let text =
            format!("gtid_mode is {mode}{default}: there is no change stream, so nothing is cached until it is ON");
        let mut mend = vec![
            "-- first with WARN instead of ON, if applications may do what it forbids: the server's log tells"
                .to_owned(),
            "SET PERSIST enforce_gtid_consistency = ON;".to_owned(),
        ];
        let done = GTID_MODES.iter().position(|known| *known == mode).unwrap_or(0);
        for step in GTID_MODES.iter().skip(done + 1) {
            if *step == "ON" {
                let wait = "-- on every server of a replication group, before the next: wait until \
                            SHOW STATUS LIKE 'Ongoing_anonymous_transaction_count' is 0";
                mend.push(wait.to_owned());
            }
            mend.push(format!("SET PERSIST gtid_mode = {step};"));
        }
        report.problem(text, mend);
        return Ok(());
    }
    let executed = database.value("SELECT @@GLOBAL.gtid_executed").await?;
    if GtidSet::parse(&executed).is_some() {
        report.ok("gtid_mode is ON");
    } else {
        let text = "gtid_executed holds identifiers with tags (MySQL 8.3), which are not understood: nothing is cached";
        report.problem(text, vec!["-- do not set gtid_next = 'AUTOMATIC:tag'".into()]);
    }
    if database.variable("session_track_gtids").await? == "OFF" {
        let text = "session_track_gtids is OFF, as by default: the server's OK does not name the commit, so each write of a session \
                    waits until the server has been asked for the end of its log besides";
        report.hint(text, database.set("session_track_gtids", "OWN_GTID"));
    }
    Ok(())
}

/// Whether every change is logged.
async fn completeness(database: &mut Database, report: &mut Report) -> Result<()> {
    let new_words = !database.server.is_mariadb && database.server.is_at_least(8, 2, 0);
    let question = if new_words { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    // A refusal is reported with the account's rights.
    let rows = database.attempt(question).await?.unwrap_or_default();
    let filters: Vec<(&str, &str)> = ["binlog-do-db", "binlog-ignore-db"]
        .into_iter()
        .zip(rows.first().into_iter().flat_map(|row| row.iter().skip(2).map(|filter| filter.as_deref().unwrap_or(""))))
        .filter(|(_, filter)| !filter.is_empty())
        .collect();
    for (option, filter) in &filters {
        let text = format!(
            "{option} is {filter}: DDL, TRUNCATE and GRANT are logged or not by the database in use, whatever tables they \
             name, so nothing is cached"
        );
        report.problem(text, vec![format!("-- remove {option} from the option file"), THEN_RESTART.into()]);
    }
    let logs_replicated =
        [database.variable("log_slave_updates").await?, database.variable("log_replica_updates").await?];
    if !logs_replicated.iter().any(|value| value == "ON") && replicates(database).await? {
        let text = "the server applies changes of another one without logging them (log_slave_updates is OFF): nothing is \
                    cached";
        let option = if database.server.is_mariadb { "log-slave-updates = ON" } else { "log-replica-updates = ON" };
        let mut remedy = vec![in_option_file(&[option]), THEN_RESTART.into()];
        if database.server.is_mariadb {
            remedy.push("-- or, if it was a replica and is none any more, so that Freshet is shown that:".into());
            remedy.push(format!("RESET SLAVE ALL; GRANT REPLICA MONITOR ON *.* TO {};", database.account));
        }
        report.problem(text, remedy);
    } else if filters.is_empty() && !rows.is_empty() {
        report.ok("the binlog tells of all databases");
    }
    if database.variable("wsrep_on").await? == "ON" {
        let text = "wsrep_on is ON: what other nodes of a Galera cluster write is not followed, so nothing is cached";
        report.problem(text, vec!["-- point --upstream to a server that is no node of a cluster".into()]);
    }
    Ok(())
}

/// Whether the server applies changes of another server. MySQL logs them by default. If it does not, it is assumed to apply some.
async fn replicates(database: &mut Database) -> Result<bool> {
    if !database.server.is_mariadb {
        return Ok(true);
    }
    if let Ok(masters) = database.attempt("SHOW ALL SLAVES STATUS").await? {
        return Ok(!masters.is_empty());
    }
    // The account is not shown them. One that has lost its primary does not count as running.
    let rows: Vec<[String; 2]> = database.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'").await?;
    let runs = rows.iter().any(|[_, running]| running != "0");
    Ok(runs || !database.variable("gtid_slave_pos").await?.is_empty())
}

/// Checks that old files of the log are removed.
async fn expiry(database: &mut Database, report: &mut Report) -> Result<()> {
    let seconds = database.variable("binlog_expire_logs_seconds").await?;
    let days = database.variable("expire_logs_days").await?;
    let is_none = |value: &str| value.is_empty() || value.trim_end_matches('0').trim_end_matches('.').is_empty();
    if is_none(&seconds) && is_none(&days) {
        let text = "binlogs are kept for ever; Freshet needs those of the last minutes alone";
        report.hint(text, database.set("binlog_expire_logs_seconds", "604800"));
    }
    Ok(())
}

fn is_off(value: &str) -> bool {
    value != "ON" && value != "1"
}
