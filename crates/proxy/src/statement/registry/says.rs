//! PostgreSQL: what the text of a statement says, beside its analysis, of what it leaves behind in the server process.

use std::sync::{LazyLock, OnceLock};

use regex::Regex;

use super::{Statement, first_word};
use crate::postgres::pooling::application_settings::{NAMES_MAX, names_in};
use crate::postgres::pooling::rest_question::UNASKABLE;

/// What a text says of prepared statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OfPrepared {
    #[default]
    Nothing,
    /// It may name some, as EXECUTE does.
    Names,
    /// It reads the list of them.
    Lists,
}

impl OfPrepared {
    pub(super) fn of(text: &str) -> Self {
        if lists_prepared(text) {
            return Self::Lists;
        }
        let mut words = text.split(|c: char| !c.is_ascii_alphabetic());
        let is_naming =
            |word: &str| ["execute", "prepare", "deallocate"].iter().any(|name| word.eq_ignore_ascii_case(name));
        if words.any(is_naming) { Self::Names } else { Self::Nothing }
    }
}

/// Whether a text names `pg_prepared_statements`, or the function behind that view.
pub(super) fn lists_prepared(text: &str) -> bool {
    const NAME: &[u8] = b"pg_prepared_statement";
    let is_at = |start: usize| {
        let word = text.as_bytes().get(start..start + NAME.len());
        word.is_some_and(|word| word.eq_ignore_ascii_case(NAME))
    };
    // All texts are searched, and few have underscores.
    text.match_indices('_').any(|(at, _)| at.checked_sub("pg".len()).is_some_and(is_at))
}

/// What a text says. Only sessions that share server connections need more than the first, so that is found when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Says {
    pub(crate) of_prepared: OfPrepared,
    unaskable: OnceLock<Option<&'static str>>,
    of_listening: OnceLock<bool>,
    application_settings: OnceLock<Option<Vec<Box<str>>>>,
}

impl Says {
    pub(super) fn of(text: &str) -> Self {
        Self { of_prepared: OfPrepared::of(text), ..Self::default() }
    }
}

impl Statement {
    /// What it names of the server process that executes it and that cannot be asked for.
    pub(crate) fn unaskable(&self) -> Option<&'static str> {
        let find = || {
            let text = String::from_utf8_lossy(self.text());
            let loads = || first_word(&text).eq_ignore_ascii_case("load").then_some("load");
            unaskable(&text).or_else(loads)
        };
        *self.says.unaskable.get_or_init(find)
    }

    /// Whether its text may end the session's listening to channels, or show it.
    pub(crate) fn is_of_listening(&self) -> bool {
        const WORDS: [&str; 3] = ["unlisten", "discard", "listening_channels"];
        let find = || {
            let text = String::from_utf8_lossy(self.text()).to_ascii_lowercase();
            WORDS.iter().any(|word| text.contains(word))
        };
        *self.says.of_listening.get_or_init(find)
    }

    /// See [`names_in`]. None also if there are more names than a session may have.
    pub(crate) fn application_settings(&self) -> Option<&[Box<str>]> {
        let find = || {
            let mut names = names_in(&String::from_utf8_lossy(self.text()))?;
            names.sort_unstable();
            names.dedup();
            (names.len() <= NAMES_MAX).then_some(names)
        };
        self.says.application_settings.get_or_init(find).as_deref()
    }
}

/// What of [`UNASKABLE`] is in a text, the state of sequences before all else; and LOAD, which changes the server process itself.
pub(crate) fn unaskable(text: &str) -> Option<&'static str> {
    static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let names = UNASKABLE.join("|");
        Regex::new(&format!("(?i-u){names}")).ok()
    });
    // Without the expression nothing could be known.
    let Some(named) = NAMED.as_ref() else { return Some("unknown") };
    let mut first = None;
    for found in named.find_iter(text) {
        let Some(name) = UNASKABLE.iter().find(|name| found.as_str().eq_ignore_ascii_case(name)).copied() else {
            continue;
        };
        if reads_sequence(name) {
            return Some(name);
        }
        first.get_or_insert(name);
    }
    first.or_else(|| may_load(text).then_some("load"))
}

/// Whether LOAD stands before the constant that it takes: behind space or comments, or, where a statement begins, at once.
fn may_load(text: &str) -> bool {
    static LOADS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let gap = r"(?:\s|--(?u:[^\r\n])*[\r\n]|/\*(?su:.)*?\*/)";
        let begins = r"(?:^|[;\x00]|\b(?:begin|then|else|loop)\b)";
        Regex::new(&format!(r"(?i-u)\bload{gap}+(?:e|u&)?['$]|{begins}{gap}*load'")).ok()
    });
    LOADS.as_ref().is_none_or(|loads| loads.is_match(text))
}

/// Whether one of [`UNASKABLE`] reads the state of sequences.
pub(crate) fn reads_sequence(name: &str) -> bool {
    matches!(name, "currval" | "lastval")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_cannot_be_asked_for_is_found() {
        for (text, found) in [
            ("select SetSeed(0.5)", Some("setseed")),
            ("select setseed(0.5), currval('s')", Some("currval")),
            ("select 1;load 'auto_explain'", Some("load")),
            ("do $$ begin LOAD  'auto_explain'; end $$", Some("load")),
            ("/* a */ load /* b */ 'auto_explain'", Some("load")),
            ("select 1; /* */load'auto_explain'", Some("load")),
            ("/* a /* b */ */ load--\n/* c /* d */ */ E'auto_explain'", Some("load")),
            ("select cpu, load -- note", None),
            ("select load /* of the 'last' minute */ from t", None),
            ("select 1;load", None),
            ("select load from t where kind = 'load' or kind = 'work load'", None),
            ("insert into t (load) values ('download it'); select 'unload'", None),
        ] {
            assert_eq!(unaskable(text), found, "{text}");
        }
    }
}
