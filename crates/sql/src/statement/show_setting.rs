//! `SHOW name` reads one setting of the session, so its answer can be cached if the setting is part of the key.

use freshet_types::Dialect;

use crate::lex::postgres::{Kind, Token};
use crate::statement::template::Template;

/// Settings of which the key contains the text that `SHOW` prints, in lower case.
pub const SHOWN: &[&str] = &[
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "default_text_search_config",
    "extra_float_digits",
    "intervalstyle",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "row_security",
    "search_path",
    "server_version",
    "server_version_num",
    "standard_conforming_strings",
    "timezone",
    "xmlbinary",
    "xmloption",
];

/// The template of `SHOW` for these settings: a query that reads no table. But it takes no snapshot.
pub(crate) fn template(tokens: &[Token<'_>]) -> Option<Template> {
    let words: Option<Vec<&str>> =
        tokens.iter().map(|token| (token.kind == Kind::Word).then_some(token.text)).collect();
    let shown = match words?.as_slice() {
        ["show", name] => SHOWN.contains(name),
        words => words == ["show", "time", "zone"],
    };
    shown.then(|| Template::parse(Dialect::Postgres, QUERY))
}

/// Any query that depends on the key alone.
const QUERY: &str = "select 1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::tokens::Tokens;

    #[test]
    fn only_settings_of_the_key_are_shown() {
        let kept = |text: &str| {
            let tokens: Vec<Token<'_>> = Tokens::of(Dialect::Postgres, text).collect();
            template(&tokens).is_some()
        };
        for text in ["show timezone", "show time zone", "show server_version"] {
            assert!(kept(text), "{text}");
        }
        for text in [
            "show",
            "show all",
            "show work_mem",
            "show \"timezone\"",
            "show transaction isolation level",
            "show session authorization",
            "show a.timezone",
            "show timezone timezone",
        ] {
            assert!(!kept(text), "{text}");
        }
    }
}
