//! MySQL and MariaDB: whether a statement might reveal that commits are tracked (see [`crate::mysql::session::track`]).

use freshet_sql::Effect;

/// Whether the server reports the session's commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracking {
    #[default]
    Off,
    On,
    Theirs,
}

/// If a statement might reveal that commits are tracked, or run others that do: the setting of tracking while it runs.
pub(super) fn betrayal(query: &str, effect: Effect) -> Option<Tracking> {
    let starts = |word: &str, with: &str| word.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    // MariaDB reports several variables in an order that depends on all variables in the list.
    let sets_several = effect >= Effect::Settings && (query.contains(',') || query.contains(';'));
    let mut found = sets_several.then_some(Tracking::Off);
    for word in query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        // With another domain or number, MariaDB's `last_gtid` may not count as changed.
        if starts(word, "session_track") || starts(word, "gtid_") {
            return Some(Tracking::Theirs);
        }
        let sets = effect >= Effect::Settings && (word.eq_ignore_ascii_case("names") || starts(word, "char"));
        let runs = ["call", "execute", "prepare", "atomic"].into_iter().any(|runs| word.eq_ignore_ascii_case(runs));
        let shows = word.len() >= 9 && word.to_ascii_lowercase().contains("variables");
        if sets || runs || shows {
            found = Some(Tracking::Off);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_show_that_commits_are_told() {
        for (text, effect, found) in [
            ("UPDATE t SET a = ?, names = ? WHERE b = ?", Effect::Write, None),
            ("SELECT recall, called FROM prepared", Effect::Pure, None),
            ("SET autocommit = ?", Effect::Settings, None),
            ("SET time_zone = ?, autocommit = ?", Effect::Settings, Some(Tracking::Off)),
            ("SET NAMES utf8mb4", Effect::Settings, Some(Tracking::Off)),
            ("set character set ?", Effect::Settings, Some(Tracking::Off)),
            ("select @@session.SESSION_track_gtids", Effect::Pure, Some(Tracking::Theirs)),
            ("SET GTID_next = ?", Effect::Settings, Some(Tracking::Theirs)),
            ("SHOW VARIABLES LIKE ?", Effect::Pure, Some(Tracking::Off)),
            ("SELECT * FROM performance_schema.session_variables", Effect::Pure, Some(Tracking::Off)),
            ("CALL p()", Effect::Definition, Some(Tracking::Off)),
            ("UPDATE t SET a = ?; call p(?)", Effect::Forgets, Some(Tracking::Off)),
            ("BEGIN NOT ATOMIC SELECT ?; END", Effect::Forgets, Some(Tracking::Off)),
        ] {
            assert_eq!(betrayal(text, effect), found, "{text}");
        }
    }
}
