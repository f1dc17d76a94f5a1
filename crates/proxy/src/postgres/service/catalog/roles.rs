//! New roles, which flush nothing by themselves.
//!
//! Roles are created all the time where each tenant or each short-lived credential has one. An answer may depend on a role in these ways only:
//!
//! - Sessions of the role read it. Then the role has a context ([`Contexts`]).
//! - The role owns an object, has a right to one, or is named by a policy. Then `pg_shdepend` has a row of it.
//! - The role is a member of another one, whose rights it has. The memberships of roles that are known before are part of the fingerprint.
//!
//! If none of this is true of a role that was not there at the last reading, it is in no answer. All later changes of it are found as those of other
//! roles are. Ids are given in ascending order; when they have started again from the lowest, a new role counts as a change of the known ones.

use crate::session::context::Contexts;

/// In place of the id of the newest role: all are known.
pub(super) const NONE_IS_NEW: &str = "4294967295";

/// The last columns of the fingerprint: the names of the roles above its parameter, in hexadecimal, and whether one of them has a part in an object.
pub(super) const NEW: &str = "
 (SELECT string_agg(encode(convert_to(rolname, 'SQL_ASCII'), 'hex'), ',') FROM pg_roles WHERE oid > $1::oid),
 EXISTS (SELECT FROM pg_roles r WHERE oid > $1::oid AND EXISTS (SELECT FROM pg_shdepend d
  WHERE refclassid = 'pg_authid'::regclass AND refobjid = r.oid
   AND dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))))::text";

/// The roles that were not there when the catalogue was loaded before.
pub(super) struct NewRoles {
    /// The fingerprint of the rest without them.
    pub(super) rest: String,
    /// The highest id of a role.
    pub(super) newest: String,
    /// Their names, in hexadecimal; None: there are none.
    pub(super) names: Option<String>,
    /// One of them owns an object, or has a right to one.
    pub(super) have_part: bool,
}

impl NewRoles {
    /// Whether cached results may depend on them.
    pub(super) fn matter(&self, contexts: &Contexts) -> bool {
        let names: Option<Vec<String>> = self.names.as_deref().unwrap_or_default().split(',').map(ascii).collect();
        // Sessions may have another name in another encoding.
        let Some(names) = names else { return true };
        self.have_part || contexts.have_user(|user| names.iter().any(|name| name == user))
    }
}

/// The name with these bytes; None: it has others than those of ASCII.
fn ascii(hexadecimal: &str) -> Option<String> {
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(u8::is_ascii);
    hexadecimal.as_bytes().chunks(2).map(|digits| byte(digits).map(char::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ascii() {
        assert_eq!((ascii("616c6963650a"), ascii("")), (Some("alice\n".to_owned()), Some(String::new())));
        assert_eq!((ascii("61c3a9"), ascii("6x")), (None, None));
    }
}
