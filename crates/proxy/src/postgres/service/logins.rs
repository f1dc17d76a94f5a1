//! Checks logins that are to be answered without the server: see [`crate::postgres::pooling::remembered`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshet_net::postgres::{Client, Error, Purpose};

use crate::postgres::Pg;
use crate::postgres::pooling::remembered::Check;
use crate::postgres::service::connection::ServiceError;
use crate::service::once::Once;

/// Checks that one round trip answers.
const CHECKS_MAX: usize = 64;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// So long none is checked after a failure that took as long: each would wait again.
const PAUSE: Duration = Duration::from_secs(3);

/// Everything that decides about a login of `$1` to the database `$2`, as far as the catalogue shows it: the role and the database, the right to connect,
/// settings of both, changed passwords (late, as statistics are), the configuration with `pg_hba.conf`, a restart, a promotion.
const DECIDES: &str = "\
WITH r AS MATERIALIZED (SELECT oid, r FROM pg_catalog.pg_roles r WHERE rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name),
d AS MATERIALIZED (SELECT oid, datname, datallowconn, datconnlimit FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) $2::pg_catalog.name)
SELECT pg_catalog.concat_ws(' ',
 (SELECT pg_catalog.concat_ws(' ', r.oid, (r.r).rolcanlogin, (r.r).rolsuper, (r.r).rolconnlimit, (r.r).rolvaliduntil,
   (r.r).rolvaliduntil OPERATOR(pg_catalog.<) pg_catalog.now()) FROM r),
 (SELECT pg_catalog.concat_ws(' ', d.oid, d.datallowconn, d.datconnlimit) FROM d),
 (SELECT pg_catalog.has_database_privilege(r.oid, d.oid, 'CONNECT') FROM r, d),
 (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', s.setdatabase, s.setrole, s.xmin, s.setconfig), ' ' ORDER BY s.setdatabase, s.setrole)
   FROM pg_catalog.pg_db_role_setting s
   WHERE (s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid OR s.setrole OPERATOR(pg_catalog.=) (SELECT oid FROM r))
   AND (s.setdatabase OPERATOR(pg_catalog.=) 0::pg_catalog.oid OR s.setdatabase OPERATOR(pg_catalog.=) (SELECT oid FROM d))),
 pg_catalog.pg_stat_get_tuples_updated('pg_catalog.pg_authid'::pg_catalog.regclass),
 pg_catalog.pg_is_in_recovery(), pg_catalog.pg_conf_load_time(), pg_catalog.pg_postmaster_start_time())";

/// Answers checks; never returns, unless no session shares connections.
pub async fn check_logins(shared: Arc<Pg>) {
    if !shared.settings.pool.may_share() {
        return;
    }
    let Some(mut checks) = shared.pooling.remembered.take_checks() else { return };
    let (mut client, mut once, mut batch) = (None, Once::default(), Vec::new());
    let (mut renewals, mut resumes) = (0, Instant::now());
    while checks.recv_many(&mut batch, CHECKS_MAX).await > 0 {
        // Those whose clients have gone, or do not wait any longer.
        batch.retain(|check: &Check| !check.answer.is_closed());
        if Instant::now() < resumes {
            batch.clear();
            continue;
        }
        let now = shared.pooling.remembered.renewals();
        if std::mem::replace(&mut renewals, now) != now {
            client = None;
        }
        let asked = Instant::now();
        match answers(&shared, &mut client, &batch).await {
            Ok(answers) => {
                once.clear();
                for (check, answer) in batch.drain(..).zip(answers) {
                    let _ = check.answer.send(answer);
                }
            }
            Err(error) => {
                once.warn("cannot check logins: each is one at the database", &error);
                if asked.elapsed() >= PAUSE {
                    resumes = Instant::now() + PAUSE;
                }
            }
        }
        batch.clear();
        if client.as_ref().is_some_and(Client::is_dead) {
            client = None;
        }
    }
}

async fn answers(shared: &Pg, client: &mut Option<Client>, batch: &[Check]) -> Result<Vec<String>, ServiceError> {
    let statements: Vec<_> =
        batch.iter().map(|check| (DECIDES, vec![check.user.as_str(), check.database.as_str()])).collect();
    // A connection that was closed meanwhile fails only at the query, so the query is repeated once.
    for again in [true, false] {
        if client.is_none() {
            *client = Some(Client::connect(&shared.own.upstream, Purpose::Sql).await?);
        }
        let Some(connected) = client else { break };
        match connected.query_prepared(&statements, ANSWER_TIMEOUT).await {
            Ok(all) => {
                let text = |mut rows: Vec<Vec<Option<String>>>| rows.pop()?.pop()?;
                return all
                    .into_iter()
                    .map(|rows| text(rows).ok_or(ServiceError::UnexpectedAnswer("a check of a login")))
                    .collect();
            }
            Err(error) if again && connected.is_dead() && !matches!(error, Error::Timeout(_)) => *client = None,
            Err(error) => return Err(error.into()),
        }
    }
    Err(ServiceError::UnexpectedAnswer("a check of a login"))
}
