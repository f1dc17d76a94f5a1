//! Values of statement parameters.

use std::fmt::Write as _;
use std::sync::Arc;

/// A parameter of a statement. All types but integers are sent as text, which the server converts.
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
    /// Appends the value as an SQL literal. Both families accept a doubled quote. Only MySQL treats a backslash as an escape.
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
