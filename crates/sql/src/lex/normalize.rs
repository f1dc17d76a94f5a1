//! From statement text to normalized query and literals, in one pass.
//!
//! If an application writes values into the text, every value would be a statement of its own. In the normalized query parameters replace the
//! literals, so that it is parsed and analysed once. The normalized query and the literals together have exactly the meaning of the text, so a result
//! may be cached under both (see [`Lexed::write_key`]).
//!
//! A literal becomes a parameter only if its value is certain and a parameter is allowed in its place. Everything unusual (the column number behind
//! `ORDER BY`, PostgreSQL's escapes and dollar quotes, odd numbers, type modifiers, `date '…'`) stays in the normalized query as written.
//!
//! In MySQL's dialect the normalized query has the text's *meaning* only. The names of a result's columns follow the text exactly, so the cache key
//! there is the text itself.

use std::borrow::Cow;

use freshet_types::Dialect;

use crate::lex::literal::{Literal, LiteralKind};
use crate::lex::mysql::{self, Modes};
use crate::lex::mysql_words;
use crate::lex::postgres::{Kind, Token, is_word_part};
use crate::lex::tokens::Tokens;

/// Limit of literals replaced in one text; further ones stay in the normalized query.
const LITERALS_MAX: usize = 10_000;

/// The constants of views have numbers from here on; a statement's own numbers have 16 bits.
pub(crate) const VIEWS_BASE: u32 = 1 << 16;

/// The result of [`lex`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lexed {
    /// The text with its literals replaced by `$n`, without comments, trailing semicolons and repeated blanks, its unquoted words in lower case
    /// (MySQL: its reserved words; and `?` becomes `$n`, too).
    pub normalized: String,
    /// A hash of the normalized query, the same in every process.
    pub digest: u64,
    /// The highest `$n` in the text itself, or the number of `?`. Literal i (from 0) is `$(own_params + i + 1)` in the normalized query.
    pub own_params: u16,
    /// The literals, in the order of the text.
    pub literals: Vec<Literal>,
    /// The start and end of each literal in the text, with its quotes.
    pub places: Vec<(u32, u32)>,
}

impl Lexed {
    /// Appends to a key what distinguishes this text from every text of another meaning: the normalized query, the number of its own parameters, and
    /// kind and value of each literal, each with its length before it.
    ///
    /// The normalized query and the parameter values alone do not suffice: `SELECT 1`, `SELECT '1'` and `SELECT $1` have the same normalized query
    /// and differ in the type of their result.
    pub fn write_key(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(&(self.normalized.len() as u32).to_be_bytes());
        key.extend_from_slice(self.normalized.as_bytes());
        key.extend_from_slice(&self.own_params.to_be_bytes());
        key.extend_from_slice(&(self.literals.len() as u32).to_be_bytes());
        for literal in &self.literals {
            key.push(match literal.kind {
                LiteralKind::String => b'\'',
                LiteralKind::Number => b'1',
                LiteralKind::Bytes => b'x',
                LiteralKind::Bits => b'b',
            });
            key.extend_from_slice(&(literal.text.len() as u32).to_be_bytes());
            key.extend_from_slice(&literal.text);
        }
    }
}

/// Splits a text into its normalized query and its literals. Never fails: malformed text stays in the normalized query as it is.
pub fn lex(dialect: Dialect, text: &str) -> Lexed {
    lex_under(dialect, Modes::NONE, text)
}

/// The same for a session of MySQL or MariaDB with these quoting modes. The normalized query is quoted as if no mode were set.
pub fn lex_under(dialect: Dialect, modes: Modes, text: &str) -> Lexed {
    let shaper = |base| Shaper { modes, ..Shaper::new(dialect, text, base) };
    let mut shaped = shaper(0);
    shaped.run(text);
    let own_params = shaped.own_params;
    if own_params > 0 && !shaped.lexed.literals.is_empty() {
        // The literals' numbers follow the highest number in the text, which is known only now.
        shaped = shaper(own_params);
        shaped.run(text);
    }
    shaped.lexed(own_params)
}

/// The same for a view's text: its literals are numbered from `base` on, which no number of a statement reaches.
pub(crate) fn lex_view(dialect: Dialect, text: &str, base: u32) -> Lexed {
    let mut shaper = Shaper { in_view: true, ..Shaper::new(dialect, text, base) };
    shaper.run(text);
    let own_params = shaper.own_params;
    shaper.lexed(own_params)
}

/// The token before a literal, as far as it decides whether the literal may become a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Start,
    /// A keyword that an expression follows.
    ExpressionWord,
    /// `BY`: a number behind it is a column's number in the result, and stays.
    By,
    /// A type name that takes modifiers in parentheses.
    TypeWord,
    Word,
    /// A placeholder that replaces other text.
    Placeholder,
    /// Any other number, parameter, string or quoted identifier.
    Value,
    /// `)` or `]`
    Close,
    Symbol,
}

struct Shaper {
    dialect: Dialect,
    modes: Modes,
    /// The address of the text's first byte.
    start: usize,
    lexed: Lexed,
    /// The number of the parameter before the first literal.
    base: u32,
    in_view: bool,
    own_params: u32,
    before: Before,
    /// Inside the parentheses of a type such as `numeric(10,2)`.
    in_modifier: bool,
    /// The last token, semicolons apart, was a minus sign.
    behind_minus: bool,
    /// The end of a `|` that may begin `||`.
    pipe_end: Option<usize>,
    /// The end of the normalized query if only semicolons follow.
    end: Option<usize>,
}

impl Shaper {
    fn new(dialect: Dialect, text: &str, base: u32) -> Self {
        let normalized = String::with_capacity(text.len() + 8);
        Self {
            dialect,
            modes: Modes::NONE,
            start: text.as_ptr().addr(),
            lexed: Lexed { normalized, ..Lexed::default() },
            base,
            in_view: false,
            own_params: 0,
            before: Before::Start,
            in_modifier: false,
            behind_minus: false,
            pipe_end: None,
            end: None,
        }
    }

    fn lexed(self, own_params: u32) -> Lexed {
        let mut lexed = self.lexed;
        lexed.own_params = u16::try_from(own_params).unwrap_or(u16::MAX);
        lexed.digest = rapidhash::v3::rapidhash_v3(lexed.normalized.as_bytes());
        lexed
    }

    fn run(&mut self, text: &str) {
        for token in Tokens::under(self.dialect, self.modes, text) {
            self.push(token);
        }
        if let Some(end) = self.end {
            self.lexed.normalized.truncate(end);
        }
        if self.begins_comment() {
            self.lexed.normalized.push_str("/**/");
        }
    }

    fn push(&mut self, token: Token<'_>) {
        if token.kind == Kind::Symbol(b';') {
            self.end.get_or_insert(self.lexed.normalized.len());
        } else {
            self.end = None;
        }
        let behind_minus = token.kind == Kind::Symbol(b'-') || (token.kind == Kind::Symbol(b';') && self.behind_minus);
        if token.spaced && self.begins_comment() {
            self.lexed.normalized.push_str("/**/");
        } else if token.spaced && !self.lexed.normalized.is_empty() && !self.lexed.normalized.ends_with(' ') {
            self.lexed.normalized.push(' ');
        }
        self.behind_minus = behind_minus;
        let is_pipe = token.kind == Kind::Symbol(b'|') && self.dialect.is_mysql_family();
        let end = self.lexed.normalized.len();
        let is_second = is_pipe && self.pipe_end.take() == Some(end);
        self.pipe_end = (is_pipe && !is_second).then_some(end + 1);
        if is_second {
            return self.join_pipes();
        }
        if let Some(kind) = self.literal_kind(token) {
            self.push_literal(kind, token.text);
            return;
        }
        if token.kind == Kind::Param(0) && self.dialect.is_mysql_family() {
            self.own_params += 1; // bounded by the text
            self.push_placeholder(self.own_params);
            return;
        }
        self.separate_from_placeholder(token);
        self.before = match token.kind {
            Kind::Word => return self.push_word(token.text),
            _ => self.push_other(token),
        };
    }

    /// MySQL: with a blank or the end behind it, two minus signs would begin a comment (`1--/**/1` in the text).
    fn begins_comment(&self) -> bool {
        self.dialect.is_mysql_family() && self.behind_minus && self.lexed.normalized.ends_with("--")
    }

    fn push_word(&mut self, word: &str) {
        let mysql = self.dialect.is_mysql_family();
        if mysql && mysql::is_placeholder(word) {
            // The same name in another spelling, so that a word of the text is never taken for a placeholder.
            self.separate_quotes("`");
            self.lexed.normalized.extend(["`", word, "`"]);
            self.before = Before::Value;
            return;
        }
        let normalized = &mut self.lexed.normalized;
        let (start, behind_point, behind_like) =
            (normalized.len(), normalized.ends_with('.'), normalized.ends_with(" like "));
        let behind_execute = normalized.eq_ignore_ascii_case("execute ");
        normalized.push_str(word);
        let (_, lower) = normalized.split_at_mut(start);
        lower.make_ascii_lowercase();
        // `LIKE BINARY 'x'`, `EXECUTE IMMEDIATE 'x'`
        let operator = mysql && (lower == "binary" && behind_like || lower == "immediate" && behind_execute);
        self.before = if operator { Before::ExpressionWord } else { class_of(lower, mysql) };
        // Names of tables and aliases are case-sensitive there, including names behind a point that are spelled like a reserved word.
        if mysql && (behind_point || !mysql_words::is_reserved(lower)) {
            normalized.truncate(start);
            normalized.push_str(word);
        }
    }

    /// MySQL: two adjacent quotes would be one quote in a name.
    fn separate_quotes(&mut self, text: &str) {
        if self.dialect.is_mysql_family() && text.starts_with('`') && self.lexed.normalized.ends_with('`') {
            self.lexed.normalized.push(' ');
        }
    }

    fn push_other(&mut self, token: Token<'_>) -> Before {
        let text = self.as_without_modes(token);
        self.separate_quotes(&text);
        self.lexed.normalized.push_str(&text);
        match token.kind {
            Kind::Param(number) => {
                self.own_params = self.own_params.max(number);
                Before::Value
            }
            Kind::Symbol(b')' | b']') => {
                self.in_modifier = false;
                Before::Close
            }
            // No literal can follow these, and a placeholder directly behind them would change their meaning.
            Kind::Symbol(b'.' | b'$') => Before::Value,
            Kind::Symbol(byte) => {
                self.in_modifier |= byte == b'(' && self.before == Before::TypeWord;
                Before::Symbol
            }
            _ => Before::Value,
        }
    }

    /// The token in a form that has the same meaning without the session's modes.
    fn as_without_modes<'t>(&self, token: Token<'t>) -> Cow<'t, str> {
        let Modes { ansi_quotes, plain_backslash, .. } = self.modes;
        let has_backslash = plain_backslash && token.text.contains('\\');
        match token.kind {
            Kind::Quoted if ansi_quotes && token.text.starts_with('"') => {
                let name = token.text.get(1..token.text.len() - 1).unwrap_or_default().replace("\"\"", "\"");
                format!("`{}`", name.replace('`', "``")).into()
            }
            Kind::Text if has_backslash => token.text.replace('\\', "\\\\").into(),
            // This ends the analysis if the version is unknown; a zero byte ends it without modes, too.
            Kind::Hopeless if self.modes.quotes() == Modes::NONE && self.is_versioned(token) => {
                format!("/*M!*/{}", token.text).into()
            }
            Kind::Hopeless if self.modes != Modes::NONE => format!("\0{}", token.text).into(),
            Kind::OpaqueText if has_backslash => format!("\0{}", token.text).into(),
            _ => token.text.into(),
        }
    }

    /// MySQL: the second half of `||`, which is written as what it means: `or`, or `||` for CONCAT. If that is unknown, `|||`, which has no meaning.
    fn join_pipes(&mut self) {
        let normalized = &mut self.lexed.normalized;
        match self.modes.pipes_concat {
            Some(true) => normalized.push('|'),
            Some(false) => {
                normalized.pop();
                normalized.push_str(if normalized.ends_with(' ') { "or " } else { " or " });
            }
            None => normalized.push_str("||"),
        }
        self.before = Before::Symbol;
    }

    /// MySQL: whether text that is not understood depends on the version: it has executable comments, or may be the rest of one.
    fn is_versioned(&self, token: Token<'_>) -> bool {
        let in_comment = token.text.is_empty() || token.text.contains("*/");
        self.modes.version.is_some() || self.dialect.is_mysql_family() && in_comment
    }

    fn literal_kind(&self, token: Token<'_>) -> Option<LiteralKind> {
        let number = self.base as usize + self.lexed.literals.len() + 1;
        let is_free = self.in_view || u16::try_from(number).is_ok();
        if self.in_modifier || self.lexed.literals.len() >= LITERALS_MAX || !is_free {
            return None;
        }
        match (token.kind, self.before) {
            (Kind::Text, Before::ExpressionWord | Before::By | Before::Symbol) => Some(LiteralKind::String),
            (Kind::OpaqueText, Before::ExpressionWord | Before::Symbol) if self.dialect.is_mysql_family() => {
                mysql::bytes(self.modes, token.text).map(|(kind, _)| kind)
            }
            // Behind `u&`, a text without `E` would be a constant of another kind.
            (Kind::OpaqueText, Before::ExpressionWord | Before::By | Before::Symbol)
                if !self.lexed.normalized.ends_with('&') =>
            {
                escaped(token.text).map(|_| LiteralKind::String)
            }
            (Kind::Number, Before::ExpressionWord | Before::Symbol | Before::Close) => Some(LiteralKind::Number),
            (Kind::Number, Before::Word | Before::TypeWord) if token.spaced => Some(LiteralKind::Number),
            _ => None,
        }
    }

    fn push_literal(&mut self, kind: LiteralKind, text: &str) {
        let value = match kind {
            LiteralKind::Number => text.as_bytes().to_vec(),
            LiteralKind::Bytes | LiteralKind::Bits => {
                mysql::bytes(self.modes, text).map(|(_, bytes)| bytes).unwrap_or_default()
            }
            LiteralKind::String if self.dialect.is_mysql_family() => mysql::string_bytes(self.modes, text),
            LiteralKind::String if let Some(text) = escaped(text) => text,
            LiteralKind::String => text.get(1..text.len() - 1).unwrap_or_default().replace("''", "'").into_bytes(),
        };
        // Tokens are parts of the text.
        let start = text.as_ptr().addr().saturating_sub(self.start);
        self.lexed.places.push((start as u32, (start + text.len()) as u32));
        self.lexed.literals.push(Literal { kind, text: value.into() });
        let number = self.lexed.literals.len() as u32;
        self.push_placeholder(self.base + number);
    }

    fn push_placeholder(&mut self, number: u32) {
        // `select'a'` must not become the identifier `select$1`, MySQL's `1@?` not the variable `@$1`, and `1.?` not a number.
        let goes_on = |byte| matches!(byte, b'@' | b'.') && self.dialect.is_mysql_family();
        if self.lexed.normalized.bytes().last().is_some_and(|byte| is_word_part(byte) || goes_on(byte)) {
            self.lexed.normalized.push(' ');
        }
        self.lexed.normalized.push('$');
        match char::from_digit(number, 10) {
            Some(digit) => self.lexed.normalized.push(digit),
            None => self.lexed.normalized.push_str(&number.to_string()),
        }
        self.before = Before::Placeholder;
    }

    /// `'a'b` must not become the parameter `$1b`, nor `'a'.5` the text `$1.5`.
    fn separate_from_placeholder(&mut self, token: Token<'_>) {
        let glued = !token.spaced && self.before == Before::Placeholder;
        let first = token.text.bytes().next().unwrap_or_default();
        if glued && (is_word_part(first) || first == b'.') {
            self.lexed.normalized.push(' ');
        }
    }
}

/// The text that PostgreSQL reads in `E'…'`, if each backslash stands for itself or for a character that no setting changes.
fn escaped(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(['e', 'E'])?.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut unescaped = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        unescaped.push(match byte {
            b'\\' => rest.next().filter(|byte| byte.is_ascii_punctuation() && *byte != b'\'')?,
            // A single quote ends the constant, which continues on another line.
            b'\'' => rest.next().filter(|byte| *byte == b'\'')?,
            byte => byte,
        });
    }
    Some(unescaped)
}

/// The class of a word, in lower case, for the token behind it.
fn class_of(word: &str, mysql: bool) -> Before {
    match word {
        "regexp" | "rlike" | "xor" | "div" if mysql => Before::ExpressionWord,
        "binary" | "varbinary" | "datetime" if mysql => Before::TypeWord,
        "select" | "where" | "and" | "or" | "not" | "in" | "like" | "ilike" | "to" | "between" | "symmetric"
        | "then" | "else" | "when" | "case" | "on" | "having" | "limit" | "offset" | "distinct" | "all" | "from"
        | "for" | "escape" | "both" | "leading" | "trailing" => Before::ExpressionWord,
        "by" => Before::By,
        "varchar" | "char" | "character" | "varying" | "bpchar" | "nchar" | "numeric" | "decimal" | "dec" | "bit"
        | "varbit" | "float" | "time" | "timestamp" | "timestamptz" | "timetz" | "interval" | "second" => {
            Before::TypeWord
        }
        _ => Before::Word,
    }
}
