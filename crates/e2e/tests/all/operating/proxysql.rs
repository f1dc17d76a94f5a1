//! ProxySQL's tables of statistics on MySQL and MariaDB: what its dashboards and collectors send is answered, to admin users only, and hides no table
//! of the database.

use anyhow::{Context, Result, bail, ensure};

use crate::mysql::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(dashboards_are_answered, tables_of_the_database_are_not_hidden, others_ask_the_database);

const SCHEMA: &str =
    "CREATE TABLE film (id INT PRIMARY KEY, title TEXT); INSERT INTO film VALUES (1, 'film 1'), (2, 'film 2')";
const READ: &str = "select title from film where id < 3";

/// What proxysql_exporter sends.
const COLLECTED: [&str; 7] = [
    "select variable_value from global_variables where variable_name = 'admin-version'",
    "SELECT Variable_Name, Variable_Value FROM stats_mysql_global",
    "SELECT hostgroup, srv_host, srv_port, * FROM stats_mysql_connection_pool",
    "SELECT COUNT(cli_host) as connection_count, cli_host FROM stats_mysql_processlist GROUP BY cli_host",
    "SELECT username, frontend_connections FROM stats_mysql_users",
    "SELECT user, db, cli_host, hostgroup, COUNT(*) as count from stats_mysql_processlist group by user, db, cli_host, hostgroup",
    "SELECT Variable_Name, Variable_Value FROM stats_memory_metrics",
];

/// ER_NO_SUCH_TABLE, ER_PARSE_ERROR
const NO_SUCH_TABLE: u16 = 1146;
const PARSE_ERROR: u16 = 1064;

type Rows = Vec<Vec<String>>;

fn ask(client: &mut RawClient, sql: &str) -> Result<Rows> {
    let answer = client.query(sql)?;
    ensure!(answer.error().is_none(), "{sql}: {answer:?}");
    let cells = |row: Vec<Option<String>>| row.into_iter().map(|cell| cell.unwrap_or("NULL".to_owned())).collect();
    Ok(answer.rows().into_iter().map(cells).collect())
}

/// The number of the error.
fn code(client: &mut RawClient, sql: &str) -> Result<Option<u16>> {
    Ok(client.query(sql)?.error().map(|(code, _, _)| code))
}

fn number(cell: &str) -> Result<u64> {
    cell.parse().with_context(|| format!("{cell} is no number"))
}

fn dashboards_are_answered(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    pair.until_hit(&mut c, READ)?;
    c.query("UPDATE film SET title = 'x' WHERE id = 2")?;
    c.query("SELECT SLEEP(0.01)")?;
    let top = "SELECT hostgroup hg, sum_time, count_star, digest_text FROM stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 10";
    let rows = ask(&mut c, top)?;
    let times = rows.iter().map(|row| number(&row[1])).collect::<Result<Vec<u64>>>()?;
    ensure!(!times.is_empty() && times.is_sorted_by(|a, b| a >= b), "{rows:?}");
    let film = "digest_text LIKE '%from film where%'";
    let hits = format!(
        "SELECT count_star, sum_rows_sent, digest, min_time, max_time FROM stats.stats_mysql_query_digest \
         WHERE hostgroup = -1 AND {film}"
    );
    let hits = eventually(PATIENCE, || {
        ask(&mut c, READ)?;
        let rows = ask(&mut c, &hits)?;
        let [hits] = rows.as_slice() else { bail!("not one row of hits: {rows:?}") };
        ensure!(number(&hits[0])? > 10, "few hits: {hits:?}");
        Ok(hits.clone())
    })?;
    let (count, sent) = (number(&hits[0])?, number(&hits[1])?);
    ensure!(sent == 2 * count && hits[2].starts_with("0x") && hits[2].len() == 18, "{hits:?}");
    ensure!(number(&hits[3])? <= number(&hits[4])?, "{hits:?}");
    let asked =
        ask(&mut c, &format!("SELECT sum_rows_sent FROM stats_mysql_query_digest WHERE hostgroup = 0 AND {film}"))?;
    ensure!(asked.len() == 1 && number(&asked[0][0])? >= 2, "{asked:?}");
    let written = ask(
        &mut c,
        "SELECT sum_rows_affected, first_seen, last_seen FROM stats_mysql_query_digest WHERE digest_text LIKE 'update film%'",
    )?;
    ensure!(
        written.len() == 1 && written[0][0] == "1" && number(&written[0][1])? <= number(&written[0][2])?,
        "{written:?}"
    );
    let commands =
        ask(&mut c, "SELECT Command, Total_cnt FROM stats_mysql_commands_counters WHERE Command = 'UPDATE'")?;
    ensure!(commands == [["UPDATE", "1"]], "{commands:?}");

    for sql in COLLECTED {
        ensure!(!ask(&mut c, sql)?.is_empty(), "nothing: {sql}");
    }
    let global = ask(&mut c, "SELECT * FROM stats_mysql_global")?;
    let figure = |name: &str| global.iter().find(|row| row[0] == name).with_context(|| name.to_owned());
    ensure!(number(&figure("Query_Cache_count_GET_OK")?[1])? >= count, "{global:?}");
    let sessions = ask(&mut c, "SELECT user, db, command FROM stats_mysql_processlist")?;
    let login = pair.login();
    ensure!(sessions == [[login.user, login.database.unwrap_or_default(), "Sleep"]], "{sessions:?}");
    let pool = ask(&mut c, "SELECT status, ConnUsed, Queries FROM stats_mysql_connection_pool")?;
    ensure!(pool.len() == 1 && pool[0][0] == "ONLINE" && pool[0][1] == "1" && number(&pool[0][2])? > 2, "{pool:?}");
    ensure!(ask(&mut c, "SELECT COUNT(*) FROM stats_mysql_query_rules")? == [["0"]], "there are no rules");
    for refused in
        ["SELECT * FROM stats_mysql_query_digest_reset", "SELECT hostgroup + 1 FROM stats_mysql_query_digest"]
    {
        ensure!(code(&mut c, refused)? == Some(PARSE_ERROR), "{refused}");
    }
    Ok(())
}

/// A table of the same name is read, and its rows are cached.
fn tables_of_the_database_are_not_hidden(kind: Kind) -> Result<()> {
    let schema = "CREATE TABLE stats_mysql_global (id INT PRIMARY KEY); INSERT INTO stats_mysql_global VALUES (7)";
    let pair = Pair::over(Database::shared(kind)?, schema, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    let own = "SELECT id FROM stats_mysql_global";
    ensure!(ask(&mut c, own)? == [["7"]], "the table is hidden");
    pair.until_hit(&mut c, own)?;
    ensure!(ask(&mut c, "SELECT username FROM stats_mysql_users")?.len() == 1, "the others are answered");
    Ok(())
}

/// To a user who is no admin there are no such tables.
fn others_ask_the_database(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &["--admin-users", "somebody"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    // The second is no SQL to the servers.
    for sql in COLLECTED.into_iter().filter(|sql| !sql.contains(", *")) {
        ensure!(code(&mut c, sql)? == Some(NO_SUCH_TABLE), "{sql}");
    }
    Ok(())
}
