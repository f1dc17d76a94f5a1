//! Drivers of Python, Node, Go, Java and PHP, and libraries on top of them, as applications use them.

use anyhow::Result;

use super::{ALL, SCHEMA, Session};
use crate::mysql::support::{Kind, on_both_at_length};

on_both_at_length!(
    pymysql,
    mysqlclient,
    mysql_connector_python,
    sqlalchemy_pymysql,
    sqlalchemy_mysqlclient,
    node_mysql2,
    go_sql_driver,
    go_sql_driver_among_others,
    node_mysql2_among_others,
    java_connector_among_others,
    java_connector,
    java_mariadb_connector,
    php_mysqli_and_pdo,
    prisma,
);

fn python(kind: Kind, driver: &str, module: &str) -> Result<()> {
    let installed = ["python", "-c", &format!("import {module}")];
    let command = ["python", "python/mysql_session.py", driver, "{url}"];
    Session { installed: &installed, command: &command, hits: 10, compared: ALL }.same(kind, SCHEMA)
}

fn pymysql(kind: Kind) -> Result<()> {
    python(kind, "pymysql", "pymysql")
}

fn mysqlclient(kind: Kind) -> Result<()> {
    python(kind, "MySQLdb", "MySQLdb")
}

fn mysql_connector_python(kind: Kind) -> Result<()> {
    python(kind, "mysql.connector", "mysql.connector")
}

fn sqlalchemy_pymysql(kind: Kind) -> Result<()> {
    python(kind, "sqlalchemy+pymysql", "pymysql, sqlalchemy")
}

fn sqlalchemy_mysqlclient(kind: Kind) -> Result<()> {
    python(kind, "sqlalchemy+mysqldb", "MySQLdb, sqlalchemy")
}

fn node_mysql2(kind: Kind) -> Result<()> {
    let installed = &["test", "-e", "node/node_modules/mysql2"];
    Session { installed, command: &["node", "node/mysql2.js", "{url}"], hits: 20, compared: ALL }.same(kind, SCHEMA)
}

fn go_sql_driver(kind: Kind) -> Result<()> {
    let installed = &["test", "-e", "go/installed"];
    let command = &["go", "-C", "go", "run", "./mysql", "{url}"];
    Session { installed, command, hits: 40, compared: ALL }.same(kind, SCHEMA)
}

/// Its session shares connections with others, which prepare statements, too: go-sql-driver prepares all that has parameters.
fn go_sql_driver_among_others(kind: Kind) -> Result<()> {
    let command = &["go", "-C", "go", "run", "./mysql", "{url}"];
    Session { installed: &["test", "-e", "go/installed"], command, hits: 40, compared: ALL }
        .same_among_others(kind, SCHEMA)
}

fn node_mysql2_among_others(kind: Kind) -> Result<()> {
    let installed = &["test", "-e", "node/node_modules/mysql2"];
    let command = &["node", "node/mysql2.js", "{url}"];
    Session { installed, command, hits: 20, compared: ALL }.same_among_others(kind, SCHEMA)
}

fn java_connector_among_others(kind: Kind) -> Result<()> {
    let installed = ["sh", "-c", "ls java/lib/mysql-connector-j-*"];
    let command = ["java", "java/MysqlJdbc.java", "mysql", "{url}"];
    Session { installed: &installed, command: &command, hits: 20, compared: ALL }.same_among_others(kind, SCHEMA)
}

fn java(kind: Kind, scheme: &str, jar: &str) -> Result<()> {
    let installed = ["sh", "-c", &format!("ls java/lib/{jar}-*")];
    let command = ["java", "java/MysqlJdbc.java", scheme, "{url}"];
    Session { installed: &installed, command: &command, hits: 20, compared: ALL }.same(kind, SCHEMA)
}

fn java_connector(kind: Kind) -> Result<()> {
    java(kind, "mysql", "mysql-connector-j")
}

fn java_mariadb_connector(kind: Kind) -> Result<()> {
    java(kind, "mariadb", "mariadb-java-client")
}

fn php_mysqli_and_pdo(kind: Kind) -> Result<()> {
    let installed = &["php", "-r", "exit(extension_loaded('pdo_mysql') && extension_loaded('mysqli') ? 0 : 1);"];
    Session { installed, command: &["php", "php/mysql.php", "{url}"], hits: 20, compared: ALL }.same(kind, SCHEMA)
}

/// The questions of PostgreSQL's test, over the same tables with the same kinds of columns.
fn prisma(kind: Kind) -> Result<()> {
    let schema = format!(
        "{SCHEMA};
        ALTER TABLE film ALTER votes SET DEFAULT 0;
        ALTER TABLE kinds ADD yes BOOLEAN, ADD small SMALLINT, ADD doc JSON, ADD uid CHAR(36);
        UPDATE kinds SET yes = TRUE, small = -7, doc = '{{\"a\": [1, null]}}', uid = '12345678-9abc-def0-1234-56789abcdef0'
            WHERE id = 1"
    );
    let installed = &["test", "-e", "prisma/generated-mysql"];
    Session { installed, command: &["node", "prisma/main.js", "{url}"], hits: 100, compared: ALL }.same_with(
        kind,
        &schema,
        &PRISMA_READS,
    )
}

/// Pieces of the statements that must have been served from the cache, as `SHOW CACHES` writes them.
const PRISMA_READS: [&str; 11] = [
    "`film`.`id` = $1 and",
    "`film`.`id` in ($1,$2,$3)",
    "`film`.`title` = $1 limit",
    "`film`.`votes` from `film` where `film`.`title` = $1",
    "`_count$_all` from",
    "`_sum$votes`",
    "group by",
    "from `role`",
    "from `kinds`",
    "as raw",
    "as unsafe",
];
