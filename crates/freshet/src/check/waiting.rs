//! Transactions that prevent the set-up of a change stream.
//!
//! The creation of a slot waits for every transaction with a transaction id that is open at that moment, in any
//! database. One that stays open for hours keeps everything uncached for hours. Not every role may see how long
//! another role's transaction has been open, so the check looks twice.

use std::time::Duration;

use anyhow::Result;

use super::database::Database;
use super::report::Report;

/// Time between the two looks.
const PAUSE: Duration = Duration::from_secs(2);

const WRITERS: &str = "SELECT a.pid, a.backend_xid, format('%s%s in %s%s%s', a.usename, \
    CASE WHEN a.application_name <> '' THEN format(' (%s)', a.application_name) END, a.datname, \
    ', ' || a.state, ', since ' || date_trunc('second', a.xact_start)) \
    FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL ORDER BY a.xact_start NULLS LAST, a.pid";

const PREPARED: &str = "SELECT gid, format('%s in %s, since %s', owner, database, date_trunc('second', prepared)), \
    regexp_replace(format('-- in database %s: COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', database, gid, gid), \
      '[[:cntrl:]]', '?', 'g') \
    FROM pg_prepared_xacts ORDER BY prepared";

pub(super) async fn writers(database: &mut Database, report: &mut Report) -> Result<()> {
    let before: Vec<[String; 3]> = database.rows(WRITERS).await?;
    if !before.is_empty() {
        tokio::time::sleep(PAUSE).await;
        let after: Vec<[String; 3]> = database.rows(WRITERS).await?;
        for [pid, xid, who] in after {
            if !before.iter().any(|[p, x, _]| (p, x) == (&pid, &xid)) {
                continue;
            }
            let text = format!(
                "an open write transaction (process {pid}: {who}) keeps a new change stream from starting until it ends"
            );
            let mend = format!("-- if nobody needs it: SELECT pg_catalog.pg_terminate_backend({pid});");
            report.warning(text, vec![mend]);
        }
    }
    for [gid, who, mend] in database.rows(PREPARED).await? {
        let text = format!("prepared transaction {gid} ({who}) keeps a new change stream from starting until it ends");
        report.warning(text, vec![mend]);
    }
    Ok(())
}
