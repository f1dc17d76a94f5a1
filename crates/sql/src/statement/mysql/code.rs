//! The temporary tables that a text may create: a statement that runs stored code, one that is not analysed, the body of a routine, a trigger or a
//! view. And whether it may leave anything else in its session ([`Temporaries::STATE`]).
//!
//! The servers do not show which temporary tables a session has, and a temporary table hides the table of its name. A text that creates one contains
//! TEMPORARY, or is prepared from a string that is known only when it runs. So only the words of a text are needed, and the code that these words
//! name: each word may call a routine, write to a table with triggers, or read a view. This is too much for most texts and never too little.
//!
//! Strings and comments are left out if the quoting rules are known ([`Quoting::Known`]); otherwise all text counts as words. The scanner takes
//! pieces of any length and stores only words, so that it can read statements of any length while they pass.

use std::collections::HashSet;
use std::hash::BuildHasher;

use freshet_types::{StoredCode, Temporaries};

use crate::lex::mysql::{Quoting, is_placeholder, is_word_part};
use crate::statement::mysql::code::assigned::Variables;

pub use stored::stored_code;

/// Longer words are not names: an identifier has at most 64 characters of at most four bytes.
const WORD_BYTES_MAX: usize = 256;
/// Stands for all names that could be taken for placeholders of a normalized query.
const PLACEHOLDER: &str = "$";
/// Limit of different words in one text; with more it may do anything.
const WORDS_MAX: usize = 4096;

/// What a text may create and run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The tables that it creates itself.
    own: Temporaries,
    /// Its words, in lower case.
    words: HashSet<Box<str>>,
    /// The words with non-ASCII letters.
    accented: HashSet<Box<str>>,
    /// It may use a name that needs quotes.
    has_odd_names: bool,
    /// Its first word, in lower case.
    first: Box<str>,
    /// A semicolon precedes its end.
    several: bool,
    /// It may leave something in its session by itself, besides settings by their names and temporary tables.
    leaves_state: bool,
}

impl Code {
    /// Reads a text.
    pub fn of(text: &[u8], quoting: Quoting) -> Self {
        let mut scanner = CodeScanner::new(quoting);
        scanner.feed(text);
        scanner.finish()
    }

    /// Code that may do anything.
    pub fn anything() -> Self {
        Self { own: Temporaries::Any, several: true, ..Self::default() }
    }

    /// The same code without the tables that the text itself names.
    #[must_use]
    pub fn without_named(mut self) -> Self {
        if matches!(self.own, Temporaries::Named(_)) {
            self.own = Temporaries::None;
        }
        self
    }

    /// Whether it may use names that are not in [`Self::words`].
    pub fn has_odd_names(&self) -> bool {
        self.has_odd_names
    }

    /// Whether it may change a setting for the next transaction only: `SET TRANSACTION`, `SET @@transaction_isolation`.
    pub fn sets_next_transaction(&self) -> bool {
        const OF_NEXT: [&str; 4] = ["transaction_isolation", "tx_isolation", "transaction_read_only", "tx_read_only"];
        let says = |word: &str| self.words.contains(word);
        says("set") && (says("transaction") && (says("isolation") || says("read")) || OF_NEXT.into_iter().any(says))
    }

    /// Code of which nothing is known but that it makes no tables.
    pub fn with_state() -> Self {
        Self { leaves_state: true, ..Self::default() }
    }

    /// Whether it may leave something in its session by itself, besides settings by their names and temporary tables.
    pub fn may_leave_state(&self) -> bool {
        self.leaves_state
    }

    fn has_words_of_state(&self) -> bool {
        #[rustfmt::skip]
        const LEAVING: [&str; 15] = [
            "get_lock", "service_get_read_locks", "service_get_write_locks", "version_tokens_lock_shared", "version_tokens_lock_exclusive",
            "connection_id", "is_used_lock", "pseudo_thread_id", "ps_current_thread_id", "processlist_id", "nextval", "setval", "lastval", "flush", "xa",
        ];
        const SET: [&str; 7] = ["names", "character", "charset", "role", "resource", "session", "local"];
        let says = |word: &str| self.words.contains(word);
        LEAVING.into_iter().any(says)
            || says("value") && (says("next") || says("previous"))
            || says("drop") && (says("database") || says("schema"))
            || self.may_set() && SET.into_iter().any(says)
    }

    /// Whether it may contain a SET: not if it is a single statement about rows.
    fn may_set(&self) -> bool {
        let is_of_rows = |word| ["select", "with", "insert", "replace", "update", "delete"].contains(&word);
        self.words.contains("set") && !self.single().is_some_and(is_of_rows)
    }

    /// Whether it may set one of these variables. A routine's own variable of the same name counts, too.
    fn sets_any(&self, variables: &HashSet<Box<str>, impl BuildHasher>) -> bool {
        self.may_set() && self.words.iter().any(|word| variables.contains(word))
    }

    /// Its words, in lower case.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| &**word)
    }

    /// Its first word in lower case, if it is a single statement.
    pub fn single(&self) -> Option<&str> {
        (!self.several).then_some(&*self.first)
    }

    /// The tables that it may create, with all code that it runs.
    pub fn temporaries(&self, stored: &StoredCode) -> Temporaries {
        if !stored.is_complete {
            return Temporaries::Any;
        }
        let mut made = self.own.clone();
        self.add_named(stored, &mut made);
        made
    }

    fn add_named(&self, stored: &StoredCode, made: &mut Temporaries) {
        if self.has_odd_names {
            made.add(&stored.odd);
        }
        let says =
            |name: &str| self.words.contains(name) || self.accented.iter().any(|word| is_without_accents(name, word));
        stored.by_name.iter().filter(|(name, _)| says(name)).for_each(|(_, other)| made.add(other));
    }
}

/// Whether the servers may take a word for this name: in names of routines they ignore accents.
fn is_without_accents(name: &str, word: &str) -> bool {
    let same = |(a, b): (char, char)| a == b || !b.is_ascii();
    name.len() == word.chars().count() && name.chars().zip(word.chars()).all(same)
}

/// Whether a name needs no quotes and has only one spelling.
fn is_plain(name: &str) -> bool {
    let starts = name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || matches!(first, b'_' | b'$'));
    starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
}

/// The state of the scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In words and symbols.
    Code,
    /// In a name, until this quote.
    Name(u8),
    /// In a string, until this quote.
    Text(u8),
    /// Behind a backslash in a string.
    Escape(u8),
    /// Behind `*` in an executable comment.
    Star,
    /// Behind `-` or `/`.
    Dash,
    Dashes,
    Slash,
    /// Behind the beginning of a comment; of an executable comment of MariaDB; of the version of an executable comment.
    Opening,
    OpeningM,
    Version(u8, u32),
    /// In a comment; true behind an asterisk.
    Comment(bool),
    /// In an executable comment that no server runs; with the previous byte.
    Skipped(u8),
    /// In a hint; true behind an asterisk. In a text of a hint, until this quote; with the previous byte.
    Hint(bool),
    HintText(u8, u8),
    Line,
}

/// The state of reading the name behind TEMPORARY.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Naming {
    Kind,
    Name,
    /// It may be the database's name.
    Point(Box<str>),
}

/// The last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Drop,
    Handler,
    Other,
}

/// What separates two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    Blank,
    Point,
    Other,
}

/// Whether it is in an executable comment, and which servers run that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executable {
    No,
    RunByAll,
    RunBySome,
}

/// Scans a text in pieces.
#[derive(Debug)]
pub struct CodeScanner {
    code: Code,
    quoting: Quoting,
    state: State,
    word: Vec<u8>,
    is_quoted: bool,
    /// The last word was a number.
    behind_number: bool,
    /// Directly behind a name that this quote ended.
    behind_name: Option<u8>,
    gap: Gap,
    naming: Option<Naming>,
    executable: Executable,
    behind: Behind,
    variables: Variables,
    /// The last token was a semicolon.
    ended: bool,
}

impl CodeScanner {
    /// At the beginning of a text.
    pub fn new(quoting: Quoting) -> Self {
        let has_odd_names = quoting == Quoting::Unknown;
        Self {
            code: Code { has_odd_names, ..Code::default() },
            quoting,
            state: State::Code,
            word: Vec::new(),
            is_quoted: false,
            behind_number: false,
            behind_name: None,
            gap: Gap::Blank,
            naming: None,
            executable: Executable::No,
            behind: Behind::Other,
            variables: Variables::default(),
            ended: false,
        }
    }

    /// The next piece.
    pub fn feed(&mut self, mut text: &[u8]) {
        while let Some((byte, rest)) = text.split_first() {
            // Most bytes of long texts are in strings.
            if let State::Text(quote) = self.state
                && self.executable != Executable::RunBySome
            {
                let end = text.iter().position(|byte| *byte == quote || *byte == b'\\').unwrap_or(text.len());
                if end > 0 {
                    text = text.get(end..).unwrap_or_default();
                    continue;
                }
            }
            self.byte(*byte);
            text = rest;
        }
    }

    /// The result of the scan.
    pub fn finish(mut self) -> Code {
        self.end_word();
        match self.naming.take() {
            Some(Naming::Point(name)) => self.code.own.name(&name),
            Some(Naming::Kind | Naming::Name) => self.code.own = Temporaries::Any,
            None => {}
        }
        if self.code.words.len().max(self.code.accented.len()) > WORDS_MAX {
            self.code.own = Temporaries::Any;
        }
        if self.code.sets_next_transaction() {
            self.code.own.name(Temporaries::NEXT_TRANSACTION);
        }
        let says = |word: &str| self.code.words.contains(word);
        let sets_variables = self.variables.may_be_set(says("call") || says("diagnostics"));
        self.code.leaves_state |= self.behind == Behind::Handler || sets_variables || self.code.has_words_of_state();
        self.code
    }

    fn byte(&mut self, byte: u8) {
        if self.executable == Executable::RunBySome && self.may_hide_end(byte) {
            self.code.own = Temporaries::Any;
        }
        match self.state {
            State::Code => self.symbol_or_word(byte),
            State::Name(quote) => self.in_name(byte, quote),
            State::Text(quote) if byte == b'\\' && self.quoting.escapes() => self.state = State::Escape(quote),
            State::Text(quote) if byte == quote => self.state = State::Code,
            State::Escape(quote) => self.state = State::Text(quote),
            State::Dash if byte == b'-' => self.state = State::Dashes,
            State::Dashes | State::Line if byte == b'\n' => self.state = State::Code,
            State::Dashes if byte == b' ' || byte.is_ascii_control() => self.state = State::Line,
            // Of three minus signs the first does not begin a comment.
            State::Dashes if byte == b'-' => self.gap = Gap::Other,
            State::Slash if byte == b'*' => self.state = State::Opening,
            State::Star if byte == b'/' => {
                self.state = State::Code;
                if std::mem::replace(&mut self.executable, Executable::No) == Executable::RunBySome {
                    self.at_unsure();
                }
            }
            State::Star | State::Dash | State::Dashes | State::Slash => {
                self.gap = Gap::Other;
                self.again(byte);
            }
            State::Text(_) | State::Line => {}
            _ => self.in_comment(byte),
        }
        if byte == 0 && !matches!(self.state, State::Text(_) | State::Escape(_)) {
            self.code.own = Temporaries::Any;
        }
    }

    /// The byte is scanned again as code.
    fn again(&mut self, byte: u8) {
        self.state = State::Code;
        self.symbol_or_word(byte);
    }

    fn symbol_or_word(&mut self, byte: u8) {
        let behind_name = std::mem::take(&mut self.behind_name);
        if is_word_part(byte) {
            return self.push(byte);
        }
        self.end_word();
        let is_known = self.quoting != Quoting::Unknown;
        self.variables.symbol(byte);
        match byte {
            b' ' | 0x09..=0x0d => {}
            quote if is_known && self.quoting.quotes_names(quote) => {
                if behind_name == Some(quote) {
                    self.code.own = Temporaries::Any; // a quote within a name
                }
                (self.state, self.is_quoted) = (State::Name(quote), true);
            }
            b'*' if self.executable != Executable::No => self.state = State::Star,
            b'-' if is_known => self.state = State::Dash,
            b'/' if is_known => self.state = State::Slash,
            b'#' if is_known => self.state = State::Line,
            b'\'' | b'"' => {
                if is_known {
                    self.state = State::Text(byte);
                }
                self.gap = Gap::Other;
            }
            b'.' if self.gap == Gap::Blank => self.gap = Gap::Point,
            b';' => (self.gap, self.ended) = (Gap::Other, true),
            _ => self.gap = Gap::Other,
        }
        self.code.several |= self.ended && !matches!(byte, b' ' | 0x09..=0x0d | b';' | b'-' | b'/' | b'#');
    }

    fn in_name(&mut self, byte: u8, quote: u8) {
        if is_word_part(byte) {
            return self.push(byte);
        }
        if byte != quote {
            // Its words count one by one, and none of them is the name.
            self.code.has_odd_names = true;
            if self.naming.is_some() {
                self.code.own = Temporaries::Any;
            }
        }
        self.end_word();
        if byte == quote {
            (self.state, self.behind_name) = (State::Code, Some(quote));
        }
        self.is_quoted = byte != quote;
    }

    fn push(&mut self, byte: u8) {
        if self.word.len() <= WORD_BYTES_MAX {
            self.word.push(byte);
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        self.code.several |= self.ended;
        let word = std::mem::take(&mut self.word);
        let text = String::from_utf8_lossy(&word);
        let lower: Box<str> = text.to_ascii_lowercase().into();
        if self.code.first.is_empty() {
            self.code.first.clone_from(&lower);
        }
        self.name(&text, &lower);
        let is_now = match &*lower {
            "drop" => Behind::Drop,
            "handler" => Behind::Handler,
            _ => Behind::Other,
        };
        let behind = std::mem::replace(&mut self.behind, is_now);
        self.code.leaves_state |= behind == Behind::Handler && &*lower != "for";
        self.variables.word(&lower);
        match &*lower {
            "temporary" if self.quoting == Quoting::Unknown => self.code.own = Temporaries::Any,
            "temporary" if behind != Behind::Drop => self.naming = Some(Naming::Kind),
            // These may give other names to the session's tables.
            "prepare" | "execute" | "rename" => self.code.own = Temporaries::Any,
            _ => {}
        }
        self.keep(&text, lower);
        self.gap = Gap::Blank;
        self.word = word;
        self.word.clear();
    }

    fn keep(&mut self, text: &str, lower: Box<str>) {
        let is_number = !self.is_quoted && is_number(text);
        // `a.1` is a name, and `1.5` is not.
        let behind_number = std::mem::replace(&mut self.behind_number, is_number);
        if is_number && (self.gap != Gap::Point || behind_number) {
            return;
        }
        if is_placeholder(&lower) {
            self.code.words.insert(PLACEHOLDER.into());
            return;
        }
        self.code.has_odd_names |= !is_plain(&lower) || lower.len() > WORD_BYTES_MAX;
        if lower.len() > WORD_BYTES_MAX || is_number {
            return;
        }
        let words = if lower.is_ascii() { &mut self.code.words } else { &mut self.code.accented };
        if words.len() <= WORDS_MAX {
            words.insert(lower);
        }
    }

    /// Reads the name behind TEMPORARY.
    fn name(&mut self, word: &str, lower: &str) {
        let Some(naming) = self.naming.take() else { return };
        let skipped = !self.is_quoted && matches!(lower, "if" | "not" | "exists");
        match (naming, self.gap) {
            (Naming::Point(_), Gap::Point) => self.named(word),
            (Naming::Point(name), _) => self.named(&name),
            (Naming::Kind, Gap::Blank) if matches!(lower, "table" | "sequence") => self.naming = Some(Naming::Name),
            (Naming::Name, Gap::Blank) if skipped => self.naming = Some(Naming::Name),
            (Naming::Name, Gap::Blank) if is_plain(lower) => self.naming = Some(Naming::Point(word.into())),
            _ => self.code.own = Temporaries::Any,
        }
    }

    fn named(&mut self, name: &str) {
        if is_plain(&name.to_ascii_lowercase()) {
            self.code.own.name(name);
        } else {
            self.code.own = Temporaries::Any;
        }
    }
}

/// Whether a word is a number, in a form that is not a name.
fn is_number(word: &str) -> bool {
    let all = |text: &str, wanted: fn(&u8) -> bool| !text.is_empty() && text.bytes().all(|byte| wanted(&byte));
    let decimal = |text: &str| all(text, u8::is_ascii_digit);
    decimal(word)
        || word.strip_prefix("0x").is_some_and(|digits| all(digits, u8::is_ascii_hexdigit))
        || word.strip_prefix("0b").is_some_and(|digits| all(digits, |byte| matches!(byte, b'0' | b'1')))
        || word.split_once(['e', 'E']).is_some_and(|(whole, exponent)| decimal(whole) && decimal(exponent))
}

mod assigned;
mod comments;
mod joined;
mod stored;
#[cfg(test)]
mod tests;
