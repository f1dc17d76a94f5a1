//! Values of statement parameters.

use std::fmt::Write as _;
use std::sync::Arc;

/// A parameter of a statement. Whatever is not an integer travels as text; the server turns it into its own type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// NULL.
    Null,
    /// An integer of any width.
    Int(i64),
    /// A text, or any other type in its text form.
    Text(Arc<str>),
}

impl Value {
    /// Appends it as a literal of SQL. Both families read a doubled quote; a backslash is an escape to MySQL alone.
    pub fn write_literal(&self, family: crate::target::Family, text: &mut String) {
        match self {
            Self::Null => text.push_str("NULL"),
            Self::Int(number) => {
                let _ = write!(text, "{number}");
            }
            Self::Text(value) => {
                text.push('\'');
                for letter in value.chars() {
                    let doubled = letter == '\'' || (letter == '\\' && family == crate::target::Family::Mysql);
                    if doubled {
                        text.push(letter);
                    }
                    text.push(letter);
                }
                text.push('\'');
            }
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}
