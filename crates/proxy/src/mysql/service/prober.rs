//! Takes visibility proofs while commits wait for one.
//!
//! The binlog runs ahead of what new snapshots show: a commit is delivered when it is in the log, and visible a moment later. MariaDB reports the log
//! position that its snapshots reach, MySQL the set of commits in them. MariaDB collects all its status variables for each answer, so the queries use
//! a bounded share of the time.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Rows, ServerVersion};
use freshet_types::{GtidSet, Visible};

use crate::mysql::MySql;
use crate::mysql::service::connection::{Connection, ServiceError};
use crate::mysql::service::lease::position;
use crate::service::once::Once;

/// The pause between queries is this many times the duration of the last query, within these bounds.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(10);
const PAUSE_FACTOR: u32 = 4;
/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// Takes proofs; never returns.
pub(super) async fn prove_commits(mysql: Arc<MySql>) {
    let mut connection = Connection::new(mysql.clone());
    let mut once = Once::default();
    loop {
        if !mysql.cache.has_pending() {
            mysql.proof_wanted.notified().await;
            continue;
        }
        let asked_at = tokio::time::Instant::now();
        let pause = match prove(&mysql, &mut connection).await {
            Ok(()) => {
                once.clear();
                (asked_at.elapsed() * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX)
            }
            Err(error) => {
                once.warn_of("cannot read what is visible", &error);
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn prove(mysql: &MySql, connection: &mut Connection) -> Result<(), ServiceError> {
    let Some(epoch) = mysql.cache.epoch() else { return Ok(()) };
    let generation = mysql.ends.generation();
    let visible = read_visible(connection).await?;
    let visible = Arc::new(visible);
    // The order matters: once no commit is unproven, later fills have the proof.
    mysql.ends.proven(generation, visible.clone());
    mysql.cache.prove(epoch, &visible);
    Ok(())
}

/// The lower bound of what every later query sees.
pub(super) async fn read_visible(connection: &mut Connection) -> Result<Visible, ServiceError> {
    let rows = connection.query_for(question).await?;
    read(&rows).ok_or(ServiceError::UnexpectedAnswer("what is visible"))
}

fn question(server: &ServerVersion) -> &'static str {
    if server.is_mariadb { "SHOW STATUS LIKE 'binlog_snapshot_%'" } else { "SELECT @@GLOBAL.gtid_executed" }
}

/// MariaDB's two rows of name and value, or MySQL's one set.
fn read(rows: &Rows) -> Option<Visible> {
    if let [row] = rows.as_slice() {
        let [Some(set)] = row.as_slice() else { return None };
        return GtidSet::parse(set).map(Visible::Gtids);
    }
    let value = |wanted: &str| {
        rows.iter().find_map(|row| match row.as_slice() {
            [Some(name), Some(value)] if name.eq_ignore_ascii_case(wanted) => Some(value.as_str()),
            _ => None,
        })
    };
    position(value("Binlog_snapshot_file")?, value("Binlog_snapshot_position")?).map(Visible::UpTo)
}

#[cfg(test)]
mod tests {
    use freshet_types::Lsn;

    use super::*;

    #[test]
    fn what_is_visible_is_read() {
        let rows = |rows: &[&[&str]]| -> Rows {
            rows.iter().map(|row| row.iter().map(|cell| Some((*cell).to_owned())).collect()).collect()
        };
        let mariadb = rows(&[&["Binlog_snapshot_file", "binlog.000002"], &["Binlog_snapshot_position", "389"]]);
        assert_eq!(read(&mariadb), Lsn::in_binlog(2, 389).map(Visible::UpTo));
        assert_eq!(read(&rows(&[&["Binlog_snapshot_file", ""], &["Binlog_snapshot_position", "0"]])), None);
        assert_eq!(read(&Rows::new()), None);
        let mysql = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,\n3e11fa47-71ca-11e1-9e33-c80aa9429563:7";
        assert_eq!(read(&rows(&[&[mysql]])), GtidSet::parse(mysql).map(Visible::Gtids));
        assert_eq!(read(&rows(&[&[""]])), Some(Visible::Gtids(GtidSet::default())));
    }
}
