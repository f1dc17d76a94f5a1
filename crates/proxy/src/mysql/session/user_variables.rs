//! The user variables of a session that shares connections, as statements that set them again on another connection.
//!
//! Only a SET of user variables to constants is one. Sessions share connections with those that have set variables of the same names, so that none
//! sees a variable that it has never set. The values go with the session: where a connection has others, they are set in the same network packet as
//! the next command. Anything else that sets a variable keeps the session on its connection.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mysql::session::label::assignments;

/// Limit of statements; a session with more keeps its connection.
const ENTRIES_MAX: usize = 32;
/// Limit of a statement's length.
const BYTES_MAX: usize = 1024;

/// A SET that can be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    names: Vec<Box<str>>,
    text: Arc<[u8]>,
}

/// The variables that a session has set, or a connection has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserVariables {
    entries: Vec<Entry>,
}

impl UserVariables {
    pub(super) fn are_none(&self) -> bool {
        self.entries.is_empty()
    }

    /// The statements that set them, in order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| &*entry.text)
    }

    /// A SET of user variables has succeeded. `normalized`: without its constants. False: what it has set is not known.
    pub(super) fn set(&mut self, normalized: &str, text: &[u8]) -> bool {
        let normalized = normalized.to_ascii_lowercase();
        let names = assignments(&normalized).and_then(|all| all.map(assigned).collect::<Option<Vec<_>>>());
        // How a backslash is read depends on the settings.
        let Some(names) = names.filter(|_| text.len() <= BYTES_MAX && !text.contains(&b'\\')) else { return false };
        self.entries.retain(|entry| !entry.names.iter().all(|name| names.contains(name)));
        let has_room = self.entries.len() < ENTRIES_MAX;
        if has_room {
            self.entries.push(Entry { names, text: text.into() });
        }
        has_room
    }

    /// Appends what connections have in common that sessions with these variables share.
    pub(super) fn write_key(&self, key: &mut Vec<u8>) {
        let names: BTreeSet<&str> = self.entries.iter().flat_map(|entry| &entry.names).map(|name| &**name).collect();
        for name in names {
            key.extend_from_slice(&(name.len() as u32).to_le_bytes());
            key.extend_from_slice(name.as_bytes());
        }
    }
}

/// The name of the variable that an assignment sets to a constant.
fn assigned(assignment: &str) -> Option<Box<str>> {
    let (name, value) = assignment.strip_prefix('@')?.split_once('=')?;
    let (name, value) = (name.strip_suffix(':').unwrap_or(name).trim(), value.trim());
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let value = value.strip_prefix('-').unwrap_or(value).trim_start();
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_constant = value.strip_prefix('$').is_some_and(is_number) || ["null", "true", "false"].contains(&value);
    (is_plain && is_constant).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(texts: &[(&str, &str)]) -> (UserVariables, Vec<bool>) {
        let mut all = UserVariables::default();
        let known = texts.iter().map(|(normalized, text)| all.set(normalized, text.as_bytes())).collect();
        (all, known)
    }

    fn key(of: &UserVariables) -> Vec<u8> {
        let mut key = Vec::new();
        of.write_key(&mut key);
        key
    }

    #[test]
    fn only_constants_are_known() {
        for (normalized, known) in [
            ("SET @a = $1", true),
            ("set @A:=$1, @b_2 = - $2 , @c=NULL", true),
            ("SET @a = now()", false),
            ("SET @a = current_user", false),
            ("SET @a = @b", false),
            ("SET @a = $1 + $2", false),
            ("SET @a = @b = $1", false),
            ("SET @a = $1, sql_mode = $2", false),
            ("SET @@a = $1", false),
            ("SET @`a` = $1", false),
            ("SET @a = (SELECT $1)", false),
            ("SET @a", false),
        ] {
            assert_eq!(after(&[(normalized, "SET @a = 1")]).1, [known], "{normalized}");
        }
        assert_eq!(after(&[("SET @a = $1", r"SET @a = '\n'")]).1, [false]);
        assert_eq!(after(&[("SET @a = $1", &format!("SET @a = '{}'", "x".repeat(BYTES_MAX)))]).1, [false]);
    }

    #[test]
    fn the_last_value_counts_and_names_are_shared() {
        let (both, _) = after(&[("SET @a = $1", "SET @a = 1"), ("SET @B = $1", "SET @B = 2")]);
        let (same, _) = after(&[("SET @b = $1, @a = $2", "SET @b = 3, @a = 4")]);
        let (one, _) = after(&[("SET @a = $1", "SET @a = 1"), ("SET @a = $1", "SET @a = 5")]);
        assert!(key(&both) == key(&same) && both != same && key(&one) != key(&same));
        assert_eq!(one.texts().collect::<Vec<_>>(), [b"SET @a = 5"]);
        assert!(key(&UserVariables::default()).is_empty() && UserVariables::default().are_none());
        let many: Vec<_> = (0..=ENTRIES_MAX).map(|at| format!("SET @v{at} = $1")).collect();
        let texts: Vec<_> = many.iter().map(|text| (text.as_str(), text.as_str())).collect();
        assert_eq!(after(&texts).1.iter().filter(|known| !**known).count(), 1);
    }
}
