//! MySQL and MariaDB: the state that a statement may leave in its session, as far as its text says (see [`crate::mysql::session::pooling`]).
//!
//! What a text does not show, stored code and temporary tables, is known from the catalogue ([`super::Marks`]). A statement that is not in one of the
//! lists below may leave anything.

use freshet_types::Reason;

use super::NormalizedQuery;

/// The state that a statement may leave in its session. Diagnostics, transactions, locked tables and temporary tables are known otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateLeft {
    Nothing,
    /// It is a SET.
    Setting,
    /// It is a USE.
    Database,
    /// User variables.
    Variable,
    /// `GET_LOCK`
    NamedLock,
    /// It ends all locks of `GET_LOCK`.
    NoNamedLocks,
    /// HANDLER
    Handler,
    /// XA
    Xa,
    /// PREPARE
    NamedStatement,
    /// What `LASTVAL` reads.
    Sequence,
    /// Nothing, but it may show the number of the connection.
    ConnectionNumber,
    Anything,
}

/// Statements that begin with these words leave nothing but what is known otherwise.
#[rustfmt::skip]
const PLAIN: [&str; 43] = [
    "alter", "analyze", "begin", "change", "check", "checksum", "commit", "create", "delete", "deallocate", "desc", "describe", "do",
    "drop", "explain", "flush", "grant", "help", "import", "insert", "install", "kill", "load", "lock", "optimize", "purge", "release",
    "rename", "repair", "replace", "reset", "revoke", "rollback", "savepoint", "select", "show", "start", "stop", "table", "truncate",
    "uninstall", "unlock", "update",
];

/// Functions and variables that show the number of the connection.
const NUMBERS: [&str; 5] =
    ["connection_id", "is_used_lock", "pseudo_thread_id", "ps_current_thread_id", "processlist_id"];

impl StateLeft {
    pub(super) fn by(query: &NormalizedQuery) -> Self {
        if query.template.refusal() == Some(&Reason::SeveralStatements) {
            return Self::Anything;
        }
        let text = query.text.to_ascii_lowercase();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$');
        let words: Vec<&str> = text.split(|letter| !is_part(letter)).filter(|word| !word.is_empty()).collect();
        let says = |word: &str| words.contains(&word);
        let first = words.first().copied().unwrap_or_default();
        let of_sequence = words.windows(3).any(|three| matches!(three, ["next" | "previous", "value", "for"]));
        match first {
            "set" => Self::Setting,
            "use" => Self::Database,
            "handler" => Self::Handler,
            "xa" => Self::Xa,
            "prepare" => Self::NamedStatement,
            _ if says("get_lock") => Self::NamedLock,
            "select" | "do" if words.get(1) == Some(&"release_all_locks") && words.len() == 2 => Self::NoNamedLocks,
            _ if of_sequence || says("nextval") || says("setval") || says("lastval") => Self::Sequence,
            _ if NUMBERS.into_iter().any(says) => Self::ConnectionNumber,
            "select" | "with" | "values" | "table" | "insert" | "replace" | "update" | "delete"
                if names_variable(&text) && (text.contains(":=") || says("into")) =>
            {
                Self::Variable
            }
            "with" | "values" | "select" | "insert" | "replace" | "update" | "delete" => Self::Nothing,
            // Not one that returns something in a variable.
            "call" if !names_variable(&text) => Self::Nothing,
            first if PLAIN.contains(&first) && !names_variable(&text) => Self::Nothing,
            _ => Self::Anything,
        }
    }
}

/// Whether a text names a user variable.
fn names_variable(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_at = |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b'@');
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'@' && !is_at(at.checked_sub(1)) && !is_at(at.checked_add(1)))
}
