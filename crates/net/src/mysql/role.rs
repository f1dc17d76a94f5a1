//! Whether a server is the primary: it can be written, and is no secondary of a group (MySQL's Group Replication).

use std::time::Duration;

use super::client::Client;
use super::error::Error;

const READ_ONLY: &str = "SELECT @@GLOBAL.read_only";
const GROUP: &str = "SELECT MEMBER_ROLE, MEMBER_STATE FROM performance_schema.replication_group_members \
                     WHERE MEMBER_ID = @@GLOBAL.server_uuid";

/// Asks the server. `super_read_only` and MariaDB's stricter values imply `read_only`.
pub async fn is_primary(client: &mut Client, limit: Duration) -> Result<bool, Error> {
    let rows = client.query_timeout(READ_ONLY, limit).await?;
    let is_writable = matches!(rows.first().map(Vec::as_slice), Some([Some(value)]) if is_off(value));
    Ok(is_writable && !is_secondary(client, limit).await?)
}

/// Whether a value of `read_only` means that it is off.
pub fn is_off(value: &str) -> bool {
    value == "0" || value.eq_ignore_ascii_case("off")
}

/// Whether the server is a member of a group, and not its primary. An account that may not know it takes the server for no member: secondaries are
/// read-only, too.
pub async fn is_secondary(client: &mut Client, limit: Duration) -> Result<bool, Error> {
    if client.server().is_mariadb {
        return Ok(false);
    }
    let rows = match client.query_timeout(GROUP, limit).await {
        Err(Error::Server(_)) => return Ok(false),
        rows => rows?,
    };
    let [Some(role), Some(state)] = rows.first().map(Vec::as_slice).unwrap_or_default() else { return Ok(false) };
    // A server that has the plug-in but is in no group is OFFLINE.
    Ok(state != "OFFLINE" && (role != "PRIMARY" || state != "ONLINE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_read_only() {
        assert!(["0", "OFF"].into_iter().all(is_off));
        assert!(!["1", "ON", "NO_LOCK", ""].into_iter().any(is_off));
    }
}
