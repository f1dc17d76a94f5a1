//! Whether code sets user variables. It may as well only read them, as a trigger does that notes who has changed a row.

/// What the tokens so far say.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(super) struct Variables {
    /// There are some.
    are_named: bool,
    /// One is certainly set.
    is_set: bool,
    /// One stands behind a comma, as in lists behind INTO.
    is_listed: bool,
    /// INTO is that of a query.
    has_into: bool,
    /// The last token.
    behind: Behind,
    /// In a variable, or directly behind it.
    at: At,
}

/// The last token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behind {
    #[default]
    Other,
    /// SET, or INTO. No table begins with `@`.
    Target,
    /// What may be followed by INTO and a table.
    Insert,
    Comma,
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Elsewhere,
    /// Behind `@`; whether a comma was before it.
    Sign { listed: bool },
    /// Behind the name.
    Name { listed: bool },
    /// Behind a point in the name.
    Point { listed: bool },
}

impl Variables {
    /// A byte that is no part of a word.
    pub(super) fn symbol(&mut self, byte: u8) {
        match (byte, self.at) {
            (b'.', At::Sign { listed } | At::Name { listed } | At::Point { listed }) => {
                self.at = At::Point { listed };
                return;
            }
            // Blanks and comments; a second `@`, that of a setting.
            (b' ' | 0x09..=0x0d | b'/' | b'-' | b'#', _) | (b'@', At::Sign { .. }) => return,
            (b'@', _) => {
                let listed = self.behind == Behind::Comma;
                self.is_set |= self.behind == Behind::Target;
                self.are_named = true;
                self.is_listed |= listed;
                self.at = At::Sign { listed };
            }
            // A name in quotes may be set behind any word.
            (b'`' | b'"' | b'\'', At::Sign { .. } | At::Point { .. })
            | (b':', At::Name { .. })
            | (b'=', At::Name { listed: true }) => self.is_set = true,
            _ => self.at = At::Elsewhere,
        }
        self.behind = if byte == b',' { Behind::Comma } else { Behind::Other };
    }

    /// A word, in lower case.
    pub(super) fn word(&mut self, word: &str) {
        self.at = match self.at {
            At::Sign { listed } | At::Point { listed } => At::Name { listed },
            At::Name { .. } | At::Elsewhere => At::Elsewhere,
        };
        let is_query = word == "into" && self.behind != Behind::Insert;
        self.has_into |= is_query;
        self.behind = match word {
            "set" | "into" => Behind::Target,
            "insert" | "replace" | "ignore" | "low_priority" | "high_priority" | "delayed" => Behind::Insert,
            _ => Behind::Other,
        };
    }

    /// Whether one may be set. `by_name`: there are words by which those may be that stand anywhere.
    pub(super) fn may_be_set(&self, by_name: bool) -> bool {
        self.is_set || self.are_named && by_name || self.is_listed && self.has_into
    }
}
