//! The commands of the console: `WORD [WORD] [;]`, and `SET key = value`.

use freshet_wire::postgres::table::Column;

use super::Wrong;
use super::show::Show;

/// A command. Names of databases are as they were given, in lower case only if they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Show(Show),
    /// `SHOW HELP`
    Help,
    Set(String, String),
    Reload,
    /// Of this database, or of all.
    Pause(Option<String>),
    Resume(Option<String>),
    Reconnect(Option<String>),
    WaitClose(Option<String>),
    Kill(Option<String>),
    KillClient(String),
    Shutdown(Stop),
    /// PgBouncer has it, Freshet does not.
    Lacking(String),
}

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    AtOnce,
    AfterDrain,
}

impl Command {
    /// None: the text is empty.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, Wrong> {
        let wrong = || Wrong::new(format!("invalid command '{text}', use SHOW HELP;"));
        let body = text.trim_ascii();
        let body = body.strip_suffix(';').unwrap_or(body).trim_ascii();
        if body.is_empty() {
            return Ok(None);
        }
        let (verb, rest) = word(body).ok_or_else(wrong)?;
        if verb.eq_ignore_ascii_case("set") {
            return set(rest).map(Some).ok_or_else(wrong);
        }
        let argument = match rest.trim_ascii_start() {
            "" => None,
            more if more.len() == rest.len() => return Err(wrong()),
            more => match word(more) {
                Some((argument, "")) => Some(argument),
                _ => return Err(wrong()),
            },
        };
        let is = |wanted: &str| argument.as_deref().is_some_and(|given| given.eq_ignore_ascii_case(wanted));
        let command = match (verb.to_ascii_lowercase().as_str(), &argument) {
            ("show" | "select", _) if is("help") => Self::Help,
            ("show" | "select", Some(what)) => Self::Show(Show::of(what).ok_or_else(wrong)?),
            ("reload", None) => Self::Reload,
            ("pause", _) => Self::Pause(argument),
            ("resume", _) => Self::Resume(argument),
            ("reconnect", _) => Self::Reconnect(argument),
            ("wait_close", _) => Self::WaitClose(argument),
            ("kill", _) => Self::Kill(argument),
            ("kill_client", _) => Self::KillClient(argument.unwrap_or_default()),
            ("shutdown", None) => Self::Shutdown(Stop::AtOnce),
            ("shutdown", _) if is("wait_for_clients") || is("wait_for_servers") => Self::Shutdown(Stop::AfterDrain),
            ("suspend" | "disable" | "enable", _) => Self::Lacking(verb.to_ascii_uppercase()),
            _ => return Err(wrong()),
        };
        Ok(Some(command))
    }

    /// The columns of its answer, if it has rows.
    pub(super) fn columns(&self) -> Option<&'static [Column]> {
        if let Self::Show(show) = self { Some(show.columns()) } else { None }
    }
}

/// The word at the start, and what is behind it. In double quotes it may have any letters.
fn word(text: &str) -> Option<(String, &str)> {
    quoted(text, '"').or_else(|| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        (!word.is_empty()).then(|| (word.to_owned(), rest))
    })
}

fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix(quote)?;
    let mut word = String::new();
    loop {
        let (part, behind) = rest.split_once(quote)?;
        word.push_str(part);
        match behind.strip_prefix(quote) {
            Some(more) => {
                word.push(quote);
                rest = more;
            }
            None => return Some((word, behind)),
        }
    }
}

/// `key = value`, `key TO value`
fn set(rest: &str) -> Option<Command> {
    let rest = rest.strip_prefix(|c: char| c.is_ascii_whitespace())?.trim_ascii_start();
    let (key, rest) = quoted(rest, '"').or_else(|| {
        // As SHOW CONFIG writes the keys of a database.
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')?;
        let (key, rest) = rest.split_at(end);
        (!key.is_empty()).then(|| (key.to_owned(), rest))
    })?;
    let rest = rest.trim_ascii_start();
    let value = match rest.strip_prefix('=') {
        Some(value) => value,
        None => rest.get(..2).filter(|to| to.eq_ignore_ascii_case("to")).and(rest.get(2..))?,
    };
    let value = value.trim_ascii_start();
    let (value, behind) = quoted(value, '\'').or_else(|| word(value))?;
    behind.trim_ascii().is_empty().then_some(Command::Set(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Command {
        Command::parse(text).expect("a command").expect("not empty")
    }

    #[test]
    fn commands_are_read() {
        assert_eq!(parse("SHOW STATS;"), Command::Show(Show::Stats));
        assert_eq!(parse(" show\n\"stats\" ; "), Command::Show(Show::Stats));
        assert_eq!(parse("select version"), Command::Show(Show::Version));
        assert_eq!(parse("pause"), Command::Pause(None));
        assert_eq!(parse("PAUSE \"a \"\"b\""), Command::Pause(Some("a \"b".to_owned())));
        assert_eq!(parse("set a='it''s'"), Command::Set("a".to_owned(), "it's".to_owned()));
        assert_eq!(parse("SET a TO b;"), Command::Set("a".to_owned(), "b".to_owned()));
        assert_eq!(parse("shutdown wait_for_clients"), Command::Shutdown(Stop::AfterDrain));
        assert_eq!(Command::parse(" ; "), Ok(None));
    }

    #[test]
    fn others_are_refused_in_pgbouncers_words() {
        for text in [
            "begin",
            "show",
            "show what",
            "show stats; show pools",
            "reload x",
            "select 1",
            "\"",
            "set a",
            "set a =",
            "show stats x",
            "set\u{e9}",
            "pause \"a",
            "shutdown now",
            "set a to\u{e9}\u{e9}",
        ] {
            let wrong = Command::parse(text).expect_err(text);
            assert_eq!(wrong, Wrong::new(format!("invalid command '{text}', use SHOW HELP;")));
        }
    }
}
