//! The account: what it may ask, and what it is shown.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use freshet_net::mysql::{Client, Error, Upstream, identity};

use super::database::{Database, quote_text};
use crate::check::report::Report;

/// Time for the first packet of a binlog.
const DUMP_TIMEOUT: Duration = Duration::from_secs(10);
/// `COM_BINLOG_DUMP`, and its flag that asks for no more than there is.
const DUMP: u8 = 0x12;
const DUMP_NON_BLOCK: u16 = 1;
/// No server's number, it is to be hoped: a replica that has it would be told to go.
const SERVER_ID: u32 = 0xf7e5_0000;

/// What Freshet's account needs, on everything.
const NEEDED: &str = "SELECT, SHOW VIEW, REPLICATION SLAVE, REPLICATION CLIENT";

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
    visibility(database, report).await
}

/// Asks for the binlog, which proves the right to it.
async fn replication(database: &Database, upstream: &Upstream, file: Option<&str>, report: &mut Report) -> Result<()> {
    let account = &database.account;
    let mut client = Client::connect(upstream).await?;
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
        // Without a binlog, or a server_id, there is nothing to read: that was said.
        Err(Error::Server(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What the catalogue shows to the account.
async fn visibility(database: &mut Database, report: &mut Report) -> Result<()> {
    let account = database.account.clone();
    let held = privileges(database).await?;
    let has = |privilege: &str| held.contains(privilege) || held.contains("ALL PRIVILEGES");
    if has("SELECT") {
        report.ok(format!("{account} is shown every table"));
    } else {
        let text = format!(
            "{account} is shown the columns of those tables alone that it may read, so no others are cached (Freshet itself \
             reads keys alone, by which results join tables)"
        );
        report.problem(text, vec![format!("GRANT SELECT ON *.* TO {account};")]);
    }
    if !has("SHOW VIEW") {
        let text = format!("{account} is not shown what views are made of, so they are not cached");
        report.problem(text, vec![format!("GRANT SHOW VIEW ON *.* TO {account};")]);
    }
    if !has("TRIGGER") {
        let text = format!(
            "{account} is not shown triggers, so after each write the next cacheable read of a session asks the server for \
             the session's settings first"
        );
        report.hint(text, vec![format!("GRANT TRIGGER ON *.* TO {account}; -- which allows to create some, too")]);
    }
    Ok(())
}

/// What the account may do with everything, by itself and by its roles.
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
         -- SELECT shows it the columns of tables, SHOW VIEW what views are made of.\n\
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
