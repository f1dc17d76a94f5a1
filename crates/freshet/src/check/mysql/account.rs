//! The account: its rights, and what the server shows to it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use freshet_net::mysql::{Client, Error, Upstream, identity, quote_name, quote_text};

use super::database::{Database, SYSTEM};
use super::tables::shown;
use crate::check::report::Report;

/// Time limit of the first packet of a binlog.
const DUMP_TIMEOUT: Duration = Duration::from_secs(10);
/// `COM_BINLOG_DUMP`, and its flag that requests only the existing events.
const DUMP: u8 = 0x12;
const DUMP_NON_BLOCK: u16 = 1;
/// A number that is probably not in use: a replica with the same number would be disconnected.
const SERVER_ID: u32 = 0xf7e5_0000;

/// The rights that Freshet's account needs, on everything.
const NEEDED: &str = "SELECT, SHOW VIEW, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT";

pub(super) async fn look(database: &mut Database, upstream: &Upstream, report: &mut Report) -> Result<()> {
    let account = database.account.clone();
    if identity::ask(database.client(), DUMP_TIMEOUT).await?.is_none() {
        report.problem("the server does not say who it is: nothing is cached", Vec::new());
    }
    let new_words = !database.server.is_mariadb && database.server.is_at_least(8, 2, 0);
    let question = if new_words { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let file = match database.attempt(question).await? {
        Ok(rows) => rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()),
        Err(refusal) => {
            let text = format!("{account} may not ask for the end of the binlog ({refusal}): nothing is cached");
            report.problem(text, vec![format!("GRANT REPLICATION CLIENT ON *.* TO {account};")]);
            None
        }
    };
    replication(database, upstream, file.as_deref(), report).await?;
    visibility(database, upstream.database(), report).await
}

/// Requests the binlog, which proves the right to it.
async fn replication(database: &Database, upstream: &Upstream, file: Option<&str>, report: &mut Report) -> Result<()> {
    let account = &database.account;
    let mut client = Client::connect_to_primary(upstream).await?;
    let mut payload = vec![DUMP, 4, 0, 0, 0];
    payload.extend(DUMP_NON_BLOCK.to_le_bytes());
    payload.extend((SERVER_ID | (std::process::id() & 0xffff)).to_le_bytes());
    payload.extend(file.unwrap_or_default().as_bytes());
    client.query("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum, @mariadb_slave_capability = 4").await?;
    client.send_command(&payload).await?;
    let answer = tokio::time::timeout(DUMP_TIMEOUT, client.receive_packet()).await;
    match answer.unwrap_or(Err(Error::Timeout(DUMP_TIMEOUT))) {
        Ok(_) => report.ok(format!("{account} may read the binlog")),
        Err(Error::Server(error)) if error.sqlstate == "42000" => {
            let text = format!("{account} may not read the binlog ({}): nothing is cached", error.message);
            report.problem(text, vec![format!("GRANT REPLICATION SLAVE ON *.* TO {account};")]);
        }
        // Without a binlog or a server_id there is nothing to read. This was reported before.
        Err(Error::Server(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Checks what the catalogue shows to the account. Rights on some databases suffice for those databases.
async fn visibility(database: &mut Database, wanted: Option<&str>, report: &mut Report) -> Result<()> {
    let account = database.account.clone();
    let held = privileges(database).await?;
    let has = |privilege: &str| held.contains(privilege) || held.contains("ALL PRIVILEGES");
    if has("SELECT") {
        report.ok(format!("{account} is shown every table"));
    } else {
        readable(database, wanted, report).await?;
    }
    views(database, report).await?;
    if !has("TRIGGER") {
        let text = format!(
            "{account} is not shown triggers, which may make temporary tables: a session that has written is not answered \
             from the cache any more"
        );
        report.hint(text, vec![format!("GRANT TRIGGER ON *.* TO {account}; -- which allows to create some, too")]);
    }
    if !["SELECT", "SHOW_ROUTINE", "SHOW CREATE ROUTINE"].into_iter().any(has) {
        let text = format!(
            "{account} is not shown all stored functions and procedures, which may make temporary tables: a session that \
             runs stored code, or may, is not answered from the cache any more"
        );
        let right = match &database.server {
            server if !server.is_mariadb && server.is_at_least(8, 0, 20) => "SHOW_ROUTINE",
            server if server.is_mariadb && server.is_at_least(11, 3, 0) => "SHOW CREATE ROUTINE",
            _ => "SELECT",
        };
        report.hint(text, vec![format!("GRANT {right} ON *.* TO {account};")]);
    }
    Ok(())
}

/// For an account that may not read everything. `wanted` is the database in the URL.
async fn readable(database: &mut Database, wanted: Option<&str>, report: &mut Report) -> Result<()> {
    let account = database.account.clone();
    let sql = format!(
        "SELECT table_schema FROM information_schema.columns WHERE FIND_IN_SET('select', privileges) > 0 AND \
         table_schema NOT IN {SYSTEM} UNION SELECT REPLACE(table_schema, '\\\\_', '_') FROM \
         information_schema.schema_privileges WHERE privilege_type = 'SELECT' AND grantee = {} ORDER BY 1",
        quote_text(&account)
    );
    let names = database.column(&sql).await?;
    let lacks = |name: &&str| !names.iter().any(|held| held == name || held.contains('%'));
    let on = match wanted.filter(lacks) {
        Some(name) => format!("{}.*", quote_name(name)),
        None if names.is_empty() => "*.*".to_owned(),
        None => {
            let text = format!(
                "{account} may read tables of {} alone: it is not shown those of other databases, so they are not cached",
                names.join(", ")
            );
            report.hint(text, vec![format!("GRANT SELECT, SHOW VIEW ON *.* TO {account};")]);
            return Ok(());
        }
    };
    let text = format!(
        "{account} may not read the tables of {on}, and is not shown them, so they are not cached (Freshet itself reads \
         keys alone, by which results join tables)"
    );
    report.problem(text, vec![format!("GRANT SELECT, SHOW VIEW ON {on} TO {account};")]);
    Ok(())
}

/// Views whose text is hidden. The right that shows it differs. MariaDB accepts SHOW VIEW on any object. MySQL 8.0.15 needs SELECT and SHOW VIEW, and
/// shows the text only by SHOW CREATE VIEW. So the answers are checked, not the rights.
async fn views(database: &mut Database, report: &mut Report) -> Result<()> {
    let account = database.account.clone();
    let sql = format!(
        "SELECT table_schema, table_name FROM information_schema.views WHERE table_schema NOT IN {SYSTEM} \
         AND COALESCE(view_definition, '') = '' ORDER BY 1, 2"
    );
    let mut views: Vec<[String; 2]> = Vec::new();
    for view @ [schema, name] in &database.rows::<2>(&sql).await? {
        let question = format!("SHOW CREATE VIEW {}.{}", quote_name(schema), quote_name(name));
        if database.rows::<4>(&question).await.is_err() {
            views.push(view.clone());
        }
    }
    if views.is_empty() {
        return Ok(());
    }
    let names = shown(views.iter().map(|[schema, name]| format!("{schema}.{name}")));
    let what = |[schema, name]: &[String; 2]| {
        let all_of = if database.server.is_mariadb { "*".to_owned() } else { quote_name(name) };
        format!("{}.{all_of}", quote_name(schema))
    };
    let on: BTreeSet<String> = views.iter().map(what).collect();
    let mends = on.iter().map(|on| format!("GRANT SELECT, SHOW VIEW ON {on} TO {account};")).collect();
    report.problem(
        format!("{account} is not shown what these views are made of, so they are not cached: {names}"),
        mends,
    );
    Ok(())
}

/// The account's rights on everything, its own and those of its roles.
async fn privileges(database: &mut Database) -> Result<BTreeSet<String>> {
    let grants = database.column("SHOW GRANTS").await?;
    Ok(grants.iter().filter_map(|grant| of_everything(grant)).flatten().collect())
}

/// The privileges of `GRANT … ON *.* TO …`.
fn of_everything(grant: &str) -> Option<Vec<String>> {
    let list = grant.strip_prefix("GRANT ")?.split_once(" ON *.* TO ")?.0;
    Some(list.split(',').map(|privilege| privilege.trim().to_owned()).collect())
}

/// Makes the account.
pub(super) fn script(role: &str) -> String {
    let account = format!("{}@'%'", quote_text(role));
    format!(
        "-- Freshet's own account. Give it a password:\n\
         --   ALTER USER {account} IDENTIFIED BY 'a password' ACCOUNT UNLOCK;\n\
         CREATE USER IF NOT EXISTS {account} ACCOUNT LOCK;\n\
         -- SELECT shows it the columns of tables, SHOW VIEW what views are made of, TRIGGER what triggers do.\n\
         GRANT {NEEDED} ON *.* TO {account};\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read() {
        let read = |grant| of_everything(grant).map(|list| list.join("|"));
        let everything =
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*1'";
        assert_eq!(read(everything).as_deref(), Some("SELECT|REPLICATION SLAVE|BINLOG MONITOR"));
        assert_eq!(read("GRANT ALL PRIVILEGES ON *.* TO `a`@`%`").as_deref(), Some("ALL PRIVILEGES"));
        assert_eq!(read("GRANT SELECT ON `shop`.* TO `a`@`%`"), None);
        assert_eq!(read("GRANT `role`@`%` TO `a`@`%`"), None);
    }
}
