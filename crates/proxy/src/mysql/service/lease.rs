//! The lease, and the log ends that results wait for.
//!
//! Every [`TICK`], and at once when something waits, the log end is read from the server. Once the stream has passed it, the lease is renewed to the
//! time of the query. All results that were complete before the query are installed with it: everything that their queries saw was in the binlog by
//! then. One query serves all waiting results. Later ones wait for the next query.
//!
//! The stream contains every commit: the server sends all its events, so an idle stream is at the log end.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Rows, ServerVersion};
use freshet_types::{End, Lsn};

use crate::mysql::MySql;
use crate::mysql::service::connection::{Connection, ServiceError};
use crate::service::once::Once;

/// Interval of log-end probes when nothing waits.
const TICK: Duration = Duration::from_millis(50);
/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// Renews the lease; never returns.
pub(super) async fn keep_lease(mysql: Arc<MySql>) {
    let mut lease = Lease { connection: Connection::new(mysql.clone()), last: None, mysql: mysql.clone() };
    let mut once = Once::default();
    loop {
        match lease.read().await {
            Ok(()) => {
                once.clear();
                tokio::select! {
                    () = tokio::time::sleep(TICK) => {}
                    () = mysql.log_end_wanted() => {}
                }
            }
            Err(error) => {
                once.warn_of("cannot read the position of the binlog", &error);
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// The query for the log end.
pub(super) fn end_question(server: &ServerVersion) -> &'static str {
    // MySQL 8.2 introduced the new keywords, and 8.4 removed the old ones.
    if !server.is_mariadb && server.is_at_least(8, 2, 0) { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" }
}

/// The answer to [`end_question`].
pub(super) fn read_end(rows: &Rows) -> Result<Lsn, ServiceError> {
    let row =
        rows.first().ok_or(ServiceError::UnexpectedAnswer("the end of the binlog: there is none (log_bin is OFF)"))?;
    let position = || position(row.first()?.as_deref()?, row.get(1)?.as_deref()?);
    position().ok_or(ServiceError::UnexpectedAnswer("the end of the binlog"))
}

/// A file of the binlog, such as `binlog.000012`, and an offset in it.
pub(super) fn position(file: &str, offset: &str) -> Option<Lsn> {
    let (_, number) = file.rsplit_once('.')?;
    Lsn::in_binlog(number.parse().ok()?, offset.parse().ok()?)
}

struct Lease {
    mysql: Arc<MySql>,
    connection: Connection,
    /// The last log-end probe.
    last: Option<End>,
}

impl Lease {
    async fn read(&mut self) -> Result<(), ServiceError> {
        let mysql = &self.mysql;
        let complete = mysql.take_awaiting_end();
        let Some(epoch) = mysql.cache.epoch() else { return Ok(()) };
        let asked_at = mysql.clock.now();
        let end = End { epoch, lsn: read_end(&self.connection.query_for(end_question).await?)? };
        mysql.probe_ends(asked_at);
        if self.last.is_some_and(|last| last.epoch == epoch && end.lsn < last.lsn) {
            // Earlier deliveries are no lower bound of anything now.
            mysql.restart_stream.notify_one();
            return Err(ServiceError::LogReset);
        }
        self.last = Some(end);
        mysql.log_lag.note_end(end.lsn);
        for result in complete {
            mysql.install(result, end);
        }
        mysql.cache.offer_log_end(end, asked_at);
        mysql.verifier.decide(&mysql.cache);
        mysql.waits.passed(Lsn(0), mysql.cache.current_as_of()); // it may have been passed already
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read() {
        let row = |cells: &[&str]| vec![cells.iter().map(|cell| Some((*cell).to_owned())).collect::<Vec<_>>()];
        let end = |cells: &[&str]| read_end(&row(cells)).ok();
        assert_eq!(end(&["binlog.000012", "345", "", ""]), Lsn::in_binlog(12, 345));
        assert_eq!(end(&["a.b-bin.1000000", "4"]), Lsn::in_binlog(1_000_000, 4));
        for wrong in [["binlog", "4"], ["binlog.x", "4"], ["binlog.000001", "-4"], ["", ""]] {
            assert_eq!(end(&wrong), None, "{wrong:?}");
        }
        assert!(read_end(&Vec::new()).is_err());
    }

    #[test]
    fn every_release_is_asked_in_its_own_words() {
        let words = |version: &str| end_question(&ServerVersion::parse(version.as_bytes()));
        assert_eq!(words("8.0.15"), "SHOW MASTER STATUS");
        assert_eq!(words("8.4.0"), "SHOW BINARY LOG STATUS");
        assert_eq!(words("11.4.2-MariaDB"), "SHOW MASTER STATUS");
    }
}
