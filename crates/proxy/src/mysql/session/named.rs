//! Statements that are prepared by name, in SQL: what EXECUTE runs is known if its text was a constant.
//!
//! That is the case in `PREPARE name FROM 'text'`, and in `SET @x = 'text'` directly before `PREPARE name FROM @x`; likewise in EXECUTE IMMEDIATE.
//! Other statements are unknown. Code that may prepare a statement in another way counts as making any temporary table.

use std::sync::Arc;

use freshet_sql::{Code, LiteralKind, Modes, Quoting};

use crate::statement::registry::Statement;

/// Limit of statements remembered for a session.
const NAMED_MAX: usize = 256;

/// The statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Named {
    statements: Vec<(Box<str>, Arc<Code>)>,
    /// The variable that the last statement has set to a string constant, and the code in that string.
    variable: Option<(Box<str>, Arc<Code>)>,
    /// The code that the last statement has run, if it is an EXECUTE and the code is known.
    run: Option<Arc<Code>>,
}

impl Named {
    /// A statement was answered, whose texts are read in this way.
    pub(crate) fn sent(&mut self, statement: &Statement, quoting: Quoting) {
        self.run = self.executed(statement, quoting);
        let variable = self.variable.take();
        let begins =
            |word: &str| statement.query.text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let words = if begins("set") || begins("prepare") { words(statement) } else { Vec::new() };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["set", variable, "=", "$1"] if variable.starts_with('@') && !variable.starts_with("@@") => {
                self.variable = code(statement, quoting).map(|code| ((*variable).into(), code));
            }
            ["prepare", name, "from", source] if is_name(name) => {
                let known = if *source == "$1" {
                    code(statement, quoting)
                } else {
                    variable.filter(|(variable, _)| **variable == **source).map(|(_, code)| code)
                };
                self.statements.retain(|(other, _)| **other != **name);
                let known = known.filter(|_| self.statements.len() < NAMED_MAX);
                self.statements.extend(known.map(|code| ((*name).into(), code)));
            }
            // Several statements in one text.
            _ if !self.statements.is_empty() && statement.query.code().words().any(|word| word == "prepare") => {
                self.statements.clear();
            }
            _ => {}
        }
    }

    /// The code that EXECUTE runs, as far as it is known.
    pub(crate) fn executed(&self, statement: &Statement, quoting: Quoting) -> Option<Arc<Code>> {
        if !statement.query.text.get(..8).is_some_and(|word| word.eq_ignore_ascii_case("execute ")) {
            return None;
        }
        let words = words(statement);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["execute", "immediate", source, using @ ..] if takes_variables(using) => {
                let variable = self.variable.as_ref().filter(|(variable, _)| **variable == **source);
                if *source == "$1" { code(statement, quoting) } else { variable.map(|(_, code)| code.clone()) }
            }
            ["execute", name, using @ ..] if is_name(name) && takes_variables(using) => self.of(name),
            _ => None,
        }
    }

    /// The code that the last statement has run, if it is an EXECUTE and the code is known.
    pub(crate) fn run(&self) -> Option<&Arc<Code>> {
        self.run.as_ref()
    }

    fn of(&self, name: &str) -> Option<Arc<Code>> {
        self.statements.iter().find(|(other, _)| **other == *name).map(|(_, code)| code.clone())
    }
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
