//! The servers' own programs, sysbench, and the statements of WordPress.

use anyhow::Result;

use super::{ALL, NONE, SCHEMA, Session};
use crate::mysql::support::{Kind, on_both};

on_both!(the_mariadb_program, mariadb_dump, sysbench_prepared, sysbench_text, mariadb_slap, wordpress);

/// How the programs of MariaDB are told where to go.
const PLACE: [&str; 6] =
    ["--no-defaults", "--protocol=tcp", "--host={host}", "--port={port}", "--user={user}", "--password={password}"];

fn mariadb(kind: Kind, more: &[&str], (hits, schema): (u64, &str)) -> Result<()> {
    let command = [["mariadb"].as_slice(), &PLACE, more].concat();
    Session { installed: &["mariadb", "--version"], command: &command, hits, compared: ALL }.same(kind, schema)
}

fn the_mariadb_program(kind: Kind) -> Result<()> {
    let read = "SELECT * FROM film WHERE id = 7; DO SLEEP(0.01); ".repeat(20);
    let session = format!(
        "{read} SHOW TABLES; DESCRIBE film; SELECT * FROM kinds\\G SHOW WARNINGS; USE {{database}}; SELECT 1 + NULL;
         BEGIN; DELETE FROM role; SELECT COUNT(*) FROM role; ROLLBACK; SELECT COUNT(*) FROM role"
    );
    mariadb(kind, &["--table", "{database}", "-e", &session], (5, SCHEMA))
}

fn mariadb_dump(kind: Kind) -> Result<()> {
    let own = ["--single-transaction", "--skip-dump-date", "--compact", "--hex-blob", "{database}"];
    let command = [["mariadb-dump"].as_slice(), &PLACE, &own].concat();
    Session { installed: &["mariadb-dump", "--version"], command: &command, hits: 0, compared: ALL }.same(kind, SCHEMA)
}

fn sysbench(kind: Kind, mode: &str) -> Result<()> {
    let options = format!(
        "--db-driver=mysql --mysql-host={{host}} --mysql-port={{port}} --mysql-user={{user}} --mysql-password={{password}} \
         --mysql-db={{database}} --db-ps-mode={mode} --tables=2 --table-size=100 --threads=4 --mysql-ssl=off --range-size=5 \
         --events=200 --time=20"
    );
    let session = format!(
        "set -e; o='{options}'; sysbench oltp_read_write $o prepare; sysbench oltp_read_write $o run; \
         sysbench oltp_read_only $o run; sysbench oltp_read_only $o --skip-trx=on run; sysbench oltp_read_write $o cleanup"
    );
    let command = ["sh", "-c", &session];
    Session { installed: &["sysbench", "--version"], command: &command, hits: 5, compared: NONE }.same(kind, "")
}

fn sysbench_prepared(kind: Kind) -> Result<()> {
    sysbench(kind, "auto")
}

fn sysbench_text(kind: Kind) -> Result<()> {
    sysbench(kind, "disable")
}

fn mariadb_slap(kind: Kind) -> Result<()> {
    let own = [
        "--silent",
        "--create-schema={database}",
        "--no-drop",
        "--concurrency=4",
        "--number-of-queries=400",
        "--query=SELECT title FROM film WHERE id = 7; SELECT COUNT(*) FROM role WHERE film_id < 50",
        "--delimiter=;",
    ];
    let command = [["mariadb-slap"].as_slice(), &PLACE, &own].concat();
    Session { installed: &["mariadb-slap", "--version"], command: &command, hits: 50, compared: NONE }
        .same(kind, SCHEMA)
}

/// The tables of a blog, and what is asked for a page of it, a search, a comment, a change of settings.
fn wordpress(kind: Kind) -> Result<()> {
    let page = include_str!("wordpress_page.sql").repeat(10);
    mariadb(kind, &["--table", "{database}", "-e", &page], (20, include_str!("wordpress.sql")))
}
