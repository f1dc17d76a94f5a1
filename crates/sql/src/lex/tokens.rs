//! The tokens of a text, in either dialect.

use freshet_types::Dialect;

use crate::lex::mysql::{self, Modes};
use crate::lex::postgres::{Scanner, Token};

/// Splits a text into tokens.
pub(crate) enum Tokens<'a> {
    Postgres(Scanner<'a>),
    MySql(mysql::Scanner<'a>),
}

impl<'a> Tokens<'a> {
    pub(crate) fn of(dialect: Dialect, text: &'a str) -> Self {
        Self::under(dialect, Modes::NONE, text)
    }

    /// `modes` apply to MySQL and MariaDB.
    pub(crate) fn under(dialect: Dialect, modes: Modes, text: &'a str) -> Self {
        if dialect.is_mysql_family() {
            Self::MySql(mysql::Scanner::under(modes, text))
        } else {
            Self::Postgres(Scanner::new(text))
        }
    }

    /// The text that is not yet split.
    pub(crate) fn rest(&self) -> &'a str {
        match self {
            Self::Postgres(scanner) => scanner.rest(),
            Self::MySql(scanner) => scanner.rest(),
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        match self {
            Self::Postgres(scanner) => scanner.next(),
            Self::MySql(scanner) => scanner.next(),
        }
    }
}
