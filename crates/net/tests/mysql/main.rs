//! Logins and answers of real servers: MariaDB and MySQL 8.0.

mod answers;
mod logins;
mod raw;

use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a check against both servers, each with these lines in its option file.
fn with_both(config: &[&str], check: impl Fn(&Mysqld) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let settings = config.iter().fold(MysqlSettings::default(), |settings, line| settings.with(*line));
    let mariadb = Mariadb::start(&settings)?;
    check(&mariadb)?;
    let mysql = Mysql::start(&settings)?;
    check(&mysql)
}
