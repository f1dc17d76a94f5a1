//! Whether a server is the primary: it can be written, and is no secondary of a group (MySQL's Group Replication).

/// The question for the one value that [`is_off`] understands. `super_read_only` and MariaDB's stricter values imply it.
pub const READ_ONLY: &str = "SELECT @@GLOBAL.read_only";

/// The question for the row that [`is_secondary`] understands. MySQL only.
pub(super) const GROUP: &str = "SELECT MEMBER_ROLE, MEMBER_STATE FROM performance_schema.replication_group_members \
                                WHERE MEMBER_ID = @@GLOBAL.server_uuid";

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
