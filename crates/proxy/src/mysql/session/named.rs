//! Statements that are prepared by name, in SQL: what EXECUTE runs is known if the text that was prepared is.
//!
//! That is a constant in `PREPARE name FROM 'text'`, and in `SET @x = 'text'` directly before `PREPARE name FROM @x`; likewise in EXECUTE IMMEDIATE.
//! For other variables the server is asked ([`super::source`]). Other statements are unknown. Code that may prepare a statement in another way counts
//! as unknown code: it may also give known names other texts.

use std::sync::Arc;

use freshet_sql::{Code, LiteralKind, Modes, Quoting};

use crate::mysql::session::source::Source;
use crate::statement::registry::Statement;

/// Limit of statements remembered for a session.
const NAMED_MAX: usize = 256;
/// The error that no statement has this name.
const UNKNOWN_STATEMENT: u16 = 1243;

/// The statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// None: its text is not known.
    statements: Vec<(Box<str>, Option<Arc<Code>>)>,
    /// There may be statements with other names.
    more: bool,
    /// The variable that the last statement has set to a string constant, and the code in that string.
    variable: Option<(Box<str>, Arc<Code>)>,
    /// The last statement has set something.
    behind_set: bool,
    /// The code that the last statement has run, if it is an EXECUTE and the code is known.
    run: Option<Arc<Code>>,
}

impl Named {
    /// Any name may stand for any text from now on, and any variable may have any value.
    pub(crate) fn forget(&mut self) {
        self.statements.clear();
        self.more = true;
        self.variable = None;
    }

    /// The text for which to ask before this statement, which prepares or executes it.
    pub(crate) fn source_of(&self, statement: &Statement) -> Option<Source> {
        if !begins(statement, "prepare ") && !begins(statement, "execute ") {
            return None;
        }
        let words = words(statement);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (variable, is_executed) = match words.as_slice() {
            ["prepare", name, "from", source] if is_name(name) => (*source, false),
            ["execute", "immediate", source, using @ ..] if takes_variables(using) && self.behind_set => {
                (*source, true)
            }
            _ => return None,
        };
        let letters = variable.strip_prefix('@').filter(|letters| !letters.is_empty() && is_name(letters));
        let is_known = self.variable.as_ref().is_some_and(|(known, _)| **known == *variable);
        letters.filter(|_| !is_known).map(|_| Source { variable: variable.into(), is_executed })
    }

    /// The server has executed something that is not the client's last statement.
    pub(crate) fn not_behind_set(&mut self) {
        self.behind_set = false;
    }

    /// An unknown statement was answered. `has_effect`: it may prepare others, and set variables.
    pub(crate) fn sent_unknown(&mut self, has_effect: bool) {
        (self.run, self.behind_set) = (None, false);
        if has_effect {
            self.forget();
        }
    }

    /// A statement was answered, whose texts are read in this way. `source`: the code for which the server was asked before it. `error`: it failed.
    pub(crate) fn sent(
        &mut self,
        statement: &Statement,
        quoting: Quoting,
        source: Option<Arc<Code>>,
        error: Option<u16>,
    ) {
        self.run = self.executed(statement, quoting, source.as_ref(), error);
        let variable = self.variable.take();
        let sets = begins(statement, "set ");
        let is_single = statement.query.code().single().is_some();
        self.behind_set = sets && is_single && error.is_none() && !begins(statement, "set statement ");
        let is_followed = sets || ["prepare ", "deallocate ", "drop "].iter().any(|word| begins(statement, word));
        let words = if is_followed { words(statement) } else { Vec::new() };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["set", variable, "=", "$1"] if variable.starts_with('@') && !variable.starts_with("@@") => {
                self.variable = code(statement, quoting).map(|code| ((*variable).into(), code));
            }
            ["deallocate" | "drop", "prepare", name] if is_name(name) => {
                self.statements.retain(|(other, _)| error.is_some() || **other != **name);
            }
            // No statement has the name now; the code of an earlier one does no harm.
            ["prepare", ..] if error.is_some() => {}
            ["prepare", name, "from", from] if is_name(name) => {
                let known = if *from == "$1" {
                    code(statement, quoting)
                } else {
                    source.or_else(|| variable.filter(|(variable, _)| **variable == **from).map(|(_, code)| code))
                };
                self.prepared(name, known);
            }
            // In another form, or one of several statements in one text.
            _ if statement.query.code().words().any(|word| word == "prepare") => self.forget(),
            _ => {}
        }
    }

    fn prepared(&mut self, name: &str, code: Option<Arc<Code>>) {
        self.statements.retain(|(other, _)| **other != *name);
        if self.statements.len() < NAMED_MAX {
            self.statements.push((name.into(), code));
        } else {
            self.more = true;
        }
    }

    /// The code that EXECUTE runs, as far as it is known. `source` and `error` as in [`Self::sent`].
    fn executed(
        &self,
        statement: &Statement,
        quoting: Quoting,
        source: Option<&Arc<Code>>,
        error: Option<u16>,
    ) -> Option<Arc<Code>> {
        if !begins(statement, "execute ") {
            return None;
        }
        let words = words(statement);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["execute", "immediate", "$1", using @ ..] if takes_variables(using) => code(statement, quoting),
            ["execute", "immediate", from, using @ ..] if takes_variables(using) => {
                let variable = self.variable.as_ref().filter(|(variable, _)| **variable == **from);
                source.or_else(|| variable.map(|(_, code)| code)).cloned()
            }
            ["execute", name, using @ ..] if is_name(name) && takes_variables(using) => self.of(name, error),
            _ => None,
        }
    }

    /// The code that the last statement has run, if it is an EXECUTE and the code is known.
    pub(crate) fn run(&self) -> Option<&Arc<Code>> {
        self.run.as_ref()
    }

    fn of(&self, name: &str, error: Option<u16>) -> Option<Arc<Code>> {
        match self.statements.iter().find(|(other, _)| **other == *name) {
            Some((_, code)) => code.clone(),
            // It has run nothing.
            None if !self.more && error == Some(UNKNOWN_STATEMENT) => Some(Arc::default()),
            None => None,
        }
    }
}

/// Whether a statement begins with this word.
pub(crate) fn begins(statement: &Statement, word: &str) -> bool {
    statement.query.text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// The words of a short statement whose names have no blanks, in lower case.
fn words(statement: &Statement) -> Vec<String> {
    const BYTES_MAX: usize = 256;
    let query = &*statement.query.text;
    if query.len() > BYTES_MAX
        || statement.own_params > 0
        || !query.is_ascii()
        || query.contains(['`', '\'', '"', '(', ';'])
    {
        return Vec::new();
    }
    let spaced = query.to_ascii_lowercase().replace(":=", "=").replace('=', " = ").replace(',', ", ");
    spaced.split_ascii_whitespace().map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word != "immediate" && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_'))
}

/// `USING` with variables only, or nothing: other values may call functions.
fn takes_variables(words: &[&str]) -> bool {
    match words {
        [] => true,
        ["using", values @ ..] => values.iter().all(|value| value.trim_end_matches(',').starts_with('@')),
        _ => false,
    }
}

/// The code in the only constant of a statement.
fn code(statement: &Statement, quoting: Quoting) -> Option<Arc<Code>> {
    let [literal] = statement.literals.as_slice() else { return None };
    let known = literal.kind == LiteralKind::String && is_read_alike(statement, quoting);
    known.then(|| Arc::new(Code::of(&literal.text, Quoting::STANDARD)))
}

/// With other SQL modes its constants may be other texts.
fn is_read_alike(statement: &Statement, quoting: Quoting) -> bool {
    let text = statement.text();
    let is_alike = statement.ascii && !text.contains(&b'"') && !text.contains(&b'\\');
    is_alike || (quoting == Quoting::STANDARD && statement.modes.quotes() == Modes::NONE)
}
