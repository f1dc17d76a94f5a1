//! Statements that are prepared by a name, in SQL: what EXECUTE runs is known where the text was written out.
//!
//! That is in `PREPARE name FROM 'text'`, and in `SET @x = 'text'` directly before `PREPARE name FROM @x`. Of all others it is not
//! known. Code that may prepare some in another way is taken to make any temporary table.

use std::sync::Arc;

use freshet_sql::{Code, LiteralKind, Modes, Quoting};

use crate::registry::Statement;

/// Statements remembered per session.
const NAMED_MAX: usize = 256;

/// Those of a session.
#[derive(Debug, Default)]
pub(crate) struct Named {
    statements: Vec<(Box<str>, Arc<Code>)>,
    /// The variable that the last statement has set to a text, and that text's code.
    variable: Option<(Box<str>, Arc<Code>)>,
}

impl Named {
    /// A statement was sent, and its texts are read so.
    pub(crate) fn sent(&mut self, statement: &Statement, quoting: Quoting) {
        let variable = self.variable.take();
        let begins =
            |word: &str| statement.shape.text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
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
            // Several in one text.
            _ if !self.statements.is_empty() && statement.shape.code().words().any(|word| word == "prepare") => {
                self.statements.clear();
            }
            _ => {}
        }
    }

    /// The code that EXECUTE runs, as far as it is known.
    pub(crate) fn executed(&self, statement: &Statement) -> Option<Arc<Code>> {
        let words = words(statement);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["execute", name] if is_name(name) => self.of(name),
            // Only variables: others may call functions.
            ["execute", name, "using", values @ ..]
                if is_name(name) && values.iter().all(|value| value.trim_end_matches(',').starts_with('@')) =>
            {
                self.of(name)
            }
            _ => None,
        }
    }

    fn of(&self, name: &str) -> Option<Arc<Code>> {
        self.statements.iter().find(|(other, _)| **other == *name).map(|(_, code)| code.clone())
    }
}

/// The words of a short statement without blanks in its names, in lower case.
fn words(statement: &Statement) -> Vec<String> {
    const BYTES_MAX: usize = 256;
    let shape = &*statement.shape.text;
    if shape.len() > BYTES_MAX
        || statement.own_params > 0
        || !shape.is_ascii()
        || shape.contains(['`', '\'', '"', '(', ';'])
    {
        return Vec::new();
    }
    let spaced = shape.to_ascii_lowercase().replace(":=", "=").replace('=', " = ").replace(',', ", ");
    spaced.split_ascii_whitespace().map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word != "immediate" && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_'))
}

/// The code that a statement's only constant is.
fn code(statement: &Statement, quoting: Quoting) -> Option<Arc<Code>> {
    let [literal] = statement.literals.as_slice() else { return None };
    // Under other modes it may be another text.
    let text = statement.text();
    let is_alike = statement.ascii && !text.contains(&b'"') && !text.contains(&b'\\');
    let is_plain = is_alike || (quoting == Quoting::STANDARD && statement.modes == Modes::NONE);
    (literal.kind == LiteralKind::String && is_plain).then(|| Arc::new(Code::of(&literal.text, Quoting::STANDARD)))
}
