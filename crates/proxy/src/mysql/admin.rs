//! Answers to admin statements in this family's form, and the counters of the former query cache.
//!
//! Monitoring tools for MySQL's and MariaDB's own query cache read its counters and settings by name. They get Freshet's, under those names
//! (MariaDB's knowledge base, "Server Status Variables" and "Query Cache"), in the order of the servers. Every user may read them, as on the servers.

use std::str::Chars;
use std::sync::atomic::Ordering::Relaxed;

use freshet_sql::Admin;

use crate::admin::{self, Asker, Table};
use crate::mysql::MySql;
use crate::mysql::proxysql::{self, Answer};
use crate::rules::Who;
use crate::server::console::AdminError;
use crate::shared::Shared;

/// The smallest block of the query cache (`query_cache_min_res_unit`).
const UNIT_BYTES: u64 = 4096;

/// The answer, or an error.
pub(crate) fn answer(
    mysql: &MySql,
    asker: &Asker<'_>,
    admin: &Result<Admin, String>,
) -> Result<Answer, (u16, &'static str, String)> {
    if let Ok(Admin::Stats(statement)) = admin {
        return proxysql::answer(mysql, statement).map_err(|message| (1064, "42000", message));
    }
    let Table { columns, rows } = table(mysql, asker, admin)?;
    let names = columns.iter().map(|&name| name.to_owned()).collect();
    Ok((names, rows.into_iter().map(|row| row.into_iter().map(Some).collect()).collect()))
}

/// Whether Freshet answers it to this user. A statement on a table of statistics is the server's if the user is no admin, or the database has such
/// a table itself.
pub(crate) fn is_answered(mysql: &MySql, who: &Who<'_>, admin: &Result<Admin, String>) -> bool {
    let Ok(Admin::Stats(statement)) = admin else { return true };
    admin::is_admin(mysql, who.user) && !proxysql::is_in_database(mysql, who.database, statement)
}

fn table(
    shared: &MySql,
    asker: &Asker<'_>,
    admin: &Result<Admin, String>,
) -> Result<Table, (u16, &'static str, String)> {
    let pairs = match admin {
        Ok(Admin::QueryCacheStatus(pattern)) => Some((counters(shared), pattern)),
        Ok(Admin::QueryCacheVariables(pattern)) => Some((settings(shared), pattern)),
        _ => None,
    };
    if let (Some((pairs, pattern)), Ok(admin)) = (pairs, admin) {
        let rows = pairs.into_iter().filter(|(name, _)| is_like(pattern, name));
        let rows = rows.map(|(name, value)| vec![name.to_owned(), value]).collect();
        return Ok(Table { columns: admin::columns(admin), rows });
    }
    let answered = match admin {
        Ok(Admin::Pause(on)) => admin::check_admin(shared, asker).map(|()| pause(shared, asker, *on)),
        Ok(Admin::Reconnect) => admin::check_admin(shared, asker).map(|()| reconnect(shared, asker)),
        admin => admin::answer(shared, asker, admin),
    };
    answered.map_err(|AdminError { sqlstate, message }| match sqlstate {
        // ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_PARSE_ERROR
        "42501" => (1227, "42000", message),
        // ER_UNKNOWN_ERROR
        "F0000" | "54000" | "55000" => (1105, "HY000", message),
        // ER_SP_DOES_NOT_EXIST, ER_SP_ALREADY_EXISTS: there are no codes for other objects
        "42704" => (1305, "42000", message),
        "42710" => (1304, "42000", message),
        // ER_WRONG_VALUE_FOR_VAR
        "22023" => (1231, "42000", message),
        // ER_NOT_SUPPORTED_YET
        "0A000" => (1235, "42000", message),
        // ER_ERROR_ON_WRITE
        "58030" => (1026, "HY000", message),
        _ => (1064, "42000", message),
    })
}

/// PAUSE and RESUME of this server. The answer does not wait for the sessions to come to rest.
fn pause(mysql: &MySql, asker: &Asker<'_>, on: bool) -> Table {
    tracing::info!("user \"{}\": FRESHET {}", asker.who.user, if on { "PAUSE" } else { "RESUME" });
    if on {
        mysql.sessions.pauses.begin(None);
    } else {
        mysql.sessions.pauses.end(None);
    }
    mysql.sessions.follow_pauses(None);
    if on {
        mysql.pools.reconnect(None);
    }
    let word = if on { "on" } else { "off" };
    let unfinished = mysql.sessions.unfinished();
    admin::table_of_pairs(vec![("pause", word.to_owned()), ("sessions_not_at_rest", unfinished.to_string())])
}

/// Closes server connections that sessions share, each as soon as no session has it.
fn reconnect(mysql: &MySql, asker: &Asker<'_>) -> Table {
    tracing::info!("user \"{}\": FRESHET RECONNECT", asker.who.user);
    mysql.pools.reconnect(None);
    admin::table_of_pairs(vec![("reconnect", "on".to_owned())])
}

fn counters(shared: &Shared) -> Vec<(&'static str, String)> {
    let levels = shared.cache.levels(shared.clock.now());
    let (memory, counters) = (shared.cache.limits().memory_bytes, shared.cache.counters());
    let figures = [
        ("Qcache_free_blocks", 1),
        ("Qcache_free_memory", memory.saturating_sub(levels.bytes)),
        ("Qcache_hits", shared.metrics.hits()),
        ("Qcache_inserts", counters.installed.load(Relaxed)),
        ("Qcache_lowmem_prunes", counters.evicted.load(Relaxed)),
        ("Qcache_not_cached", shared.metrics.passed()),
        ("Qcache_queries_in_cache", levels.entries),
        ("Qcache_total_blocks", levels.entries + 1),
    ];
    figures.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let limits = shared.cache.limits();
    vec![
        ("query_cache_limit", limits.entry_bytes_max.to_string()),
        ("query_cache_min_res_unit", UNIT_BYTES.to_string()),
        ("query_cache_size", limits.memory_bytes.to_string()),
        ("query_cache_strip_comments", "OFF".to_owned()),
        ("query_cache_type", if shared.switches.bypass() { "OFF" } else { "ON" }.to_owned()),
        ("query_cache_wlock_invalidate", "OFF".to_owned()),
    ]
}

/// SQL's LIKE, with `\` as escape, case-insensitive.
///
/// Its time is bounded by the product of both lengths: only the last `%` is tried again.
pub(super) fn is_like(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut rest) = (pattern.chars(), name.chars());
    // What follows the last `%`, and where the name goes on if that does not match.
    let mut again: Option<(Chars<'_>, Chars<'_>)> = None;
    loop {
        let matches = match pattern.next() {
            Some('%') => {
                again = Some((pattern.clone(), rest.clone()));
                continue;
            }
            None if rest.as_str().is_empty() => return true,
            None => false,
            Some(wanted) => {
                let literal = if wanted == '\\' { pattern.next().unwrap_or('\\') } else { wanted };
                rest.next().is_some_and(|c| (wanted == '_') || c.eq_ignore_ascii_case(&literal))
            }
        };
        if !matches {
            let Some((behind, from)) = &mut again else { return false };
            if from.next().is_none() {
                return false;
            }
            (pattern, rest) = (behind.clone(), from.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_like() {
        for (pattern, name, like) in [
            ("Qcache%", "Qcache_hits", true),
            ("qcache\\_hits", "Qcache_hits", true),
            ("Qcache_hits", "Qcache_hits", true),
            ("Qcache_hit", "Qcache_hits", false),
            ("%", "", true),
            ("query_cache_%e", "query_cache_size", true),
            ("query_cache_%x", "query_cache_size", false),
            ("%ca%ch%e", "cache_of_caches", false),
            ("%ca%ch%s", "cache_of_caches", true),
            ("a%", "ba", false),
            ("%_", "", false),
            ("100\\%%é", "100% né", true),
        ] {
            assert_eq!(is_like(pattern, name), like, "{pattern} {name}");
        }
        // It ends.
        assert!(!is_like(&format!("q{}x", "%".repeat(100)), &"q".repeat(100)));
        assert!(!is_like(&"%q".repeat(50), &format!("{}x", "q".repeat(1000))));
    }
}
