//! Whether a server is the primary: it can be written, and is no secondary of a group (MySQL's Group Replication).

use super::version::ServerVersion;

/// The question for the one value that [`is_off`] understands. `super_read_only` and MariaDB's stricter values imply it.
pub const READ_ONLY: &str = "SELECT @@GLOBAL.read_only";

/// The question for the row that [`is_secondary`] understands. MySQL only.
pub(super) const GROUP: &str = "SELECT MEMBER_ROLE, MEMBER_STATE FROM performance_schema.replication_group_members \
                                WHERE MEMBER_ID = @@GLOBAL.server_uuid";

/// The columns of `SHOW REPLICA STATUS` that are read: whether the threads run that receive and apply, and the lag.
const RECEIVES: usize = 10;
const APPLIES: usize = 11;
const SECONDS_BEHIND: usize = 32;

/// The question for the rows that [`source`] understands, one for each server from which this one receives.
pub fn source_question(server: &ServerVersion) -> &'static str {
    if !server.is_mariadb && server.is_at_least(8, 0, 22) { "SHOW REPLICA STATUS" } else { "SHOW SLAVE STATUS" }
}

/// The question for the rows that [`are_running`] understands. MariaDB only.
pub(super) const REPLICAS_RUNNING: &str = "SHOW GLOBAL STATUS LIKE 'Slaves_running'";

/// Whether the server receives from another one, and how many seconds it is behind it.
pub(super) fn source(rows: &[Vec<Option<String>>]) -> (bool, String) {
    let value = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten();
    let runs = |row: &[Option<String>], at| value(row, at).is_some_and(|runs| runs != "No");
    let receives = rows.iter().any(|row| runs(row, RECEIVES) || runs(row, APPLIES));
    let lag = rows.iter().find_map(|row| value(row, SECONDS_BEHIND));
    (receives, lag.unwrap_or_default())
}

/// Whether the server receives from another one.
pub(super) fn are_running(rows: &[Vec<Option<String>>]) -> bool {
    rows.iter().any(|row| !matches!(row.as_slice(), [_, Some(count)] if count == "0"))
}

/// Whether a value of `read_only` means that it is off.
pub fn is_off(value: &str) -> bool {
    value == "0" || value.eq_ignore_ascii_case("off")
}

/// Whether the server is a member of a group, and not its primary.
pub(super) fn is_secondary(member: &[Option<String>]) -> bool {
    let [Some(role), Some(state)] = member else { return false };
    // A server that has the plug-in but is in no group is OFFLINE.
    state != "OFFLINE" && (role != "PRIMARY" || state != "ONLINE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_read_only() {
        assert!(["0", "OFF"].into_iter().all(is_off));
        assert!(!["1", "ON", "NO_LOCK", ""].into_iter().any(is_off));
    }

    #[test]
    fn members_of_groups() {
        let is = |role: &str, state: &str| is_secondary(&[Some(role.to_owned()), Some(state.to_owned())]);
        assert!(is("SECONDARY", "ONLINE") && is("PRIMARY", "ERROR") && is("", "RECOVERING"));
        assert!(!is("PRIMARY", "ONLINE") && !is("", "OFFLINE") && !is_secondary(&[]));
    }
}
