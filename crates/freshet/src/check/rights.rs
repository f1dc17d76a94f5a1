//! The rights on the functions that Freshet calls. It calls them in its own connections, and in each client's session
//! under the client's role.

use anyhow::Result;

use super::database::Database;
use super::report::Report;

/// For all roles: a session that cannot prove its server neither hits nor fills.
const FOR_ALL: &str = "'pg_control_system', 'pg_postmaster_start_time', 'pg_conf_load_time', 'pg_current_snapshot', \
                       'pg_current_wal_insert_lsn', 'pg_my_temp_schema', 'pg_current_xact_id_if_assigned'";
/// For Freshet alone: it has the log flushed while a session waits.
const FOR_SERVICES: &str = "'pg_logical_emit_message'";

pub(super) async fn look(database: &mut Database, report: &mut Report) -> Result<()> {
    let role = database.role.clone();
    let mut good = true;
    for (functions, who, grantee, meaning) in [
        (FOR_ALL, "'public'", "PUBLIC", "sessions of clients without it neither hit nor fill"),
        (FOR_SERVICES, "current_user", role.as_str(), "reads after writes wait longer for the change stream"),
    ] {
        // By name, since the arguments differ between versions.
        let sql = format!(
            "SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace \
             AND proname IN ({functions}) AND NOT has_function_privilege({who}, oid, 'EXECUTE') ORDER BY 1"
        );
        for function in database.column(&sql).await? {
            good = false;
            let text = format!("{grantee} may not execute {function}: {meaning}");
            report.problem(text, vec![format!("GRANT EXECUTE ON FUNCTION pg_catalog.{function} TO {grantee};")]);
        }
    }
    if good {
        report.ok("the functions that Freshet calls may be executed");
    }
    if !database.superuser {
        let text = format!(
            "{role} is no superuser, so it cannot become another role: invalidated results that other roles read are not \
             brought back in the background, but when somebody asks"
        );
        report.hint(text, Vec::new());
    }
    Ok(())
}
