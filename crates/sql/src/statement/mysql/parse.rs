//! Gives a statement's tokens to the SQL parser.
//!
//! The parser gets tokens instead of text, so it cannot split the text differently from the servers. Names and numbers pass unchanged, each
//! placeholder becomes a parameter, and each constant that stayed in the normalized query becomes some text.
//!
//! A dialect of Freshet corrects the parser's precedence of operators where it differs from the servers' (XOR, BINARY). Otherwise a condition could
//! seem to be an operand of AND at the top of WHERE when it is not.

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, CastKind, DataType, Expr, Query, Statement};
use sqlparser::dialect::{Dialect, MySqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token as Parsed;

use crate::allowlist::FunctionClass;
use crate::allowlist::mysql_functions::{function_class, is_bare};
use crate::lex::mysql::is_placeholder;
use crate::lex::mysql_words::is_reserved;
use crate::lex::postgres::{Kind, Token};
use crate::statement::parser_bounds::NESTING_MAX;

/// Stands for a user or system variable: statements with one are not analysed further.
const VARIABLE: &str = "@";

/// The query of the tokens; None if the parser does not understand them.
pub(crate) fn query(tokens: &[Token<'_>]) -> Option<Query> {
    let tokens = parsed(tokens)?;
    let mut parser = Parser::new(&Family).with_recursion_limit(NESTING_MAX).with_tokens(tokens);
    let mut statements = parser.parse_statements().ok()?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Statement::Query(query)), true) => Some(*query),
        _ => None,
    }
}

fn parsed(tokens: &[Token<'_>]) -> Option<Vec<Parsed>> {
    let mut found = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let parsed = match token.kind {
            Kind::Word if is_placeholder(token.text) => Parsed::Placeholder(token.text.to_owned()),
            Kind::Word if is_modifier(token.text) && follows_select(&found) => continue,
            Kind::Word if names_charset(tokens.get(at - 1..).unwrap_or_default()) => {
                at += if token.text.eq_ignore_ascii_case("charset") { 1 } else { 2 };
                continue;
            }
            Kind::Word => word(token.text, tokens.get(at), &found),
            Kind::Quoted => quoted(token.text)?,
            Kind::Number => Parsed::Number(token.text.to_owned(), false),
            Kind::Text if follows_type_of_dates(&found) => Parsed::SingleQuotedString(plain(token.text).to_owned()),
            Kind::Text | Kind::OpaqueText => Parsed::SingleQuotedString("?".to_owned()),
            Kind::Variable => Parsed::make_word(VARIABLE, Some('`')),
            // MariaDB takes it for a comment, and it never changes the statement's meaning.
            Kind::Hint => continue,
            Kind::Symbol(_) => {
                let (symbol, length) = symbol(tokens.get(at - 1..).unwrap_or_default())?;
                at += length - 1;
                symbol
            }
            Kind::Param(_) | Kind::OddNumber | Kind::Hopeless => return None,
        };
        found.push(parsed);
    }
    Some(found)
}

fn follows_type_of_dates(found: &[Parsed]) -> bool {
    let word = |word: &str| ["date", "timestamp", "interval"].iter().any(|name| word.eq_ignore_ascii_case(name));
    matches!(found.last(), Some(Parsed::Word(last)) if last.quote_style.is_none() && word(&last.value))
}

/// The text in quotation marks, if it is certainly a date or a number.
fn plain(text: &str) -> &str {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    if inner.bytes().all(|byte| byte.is_ascii_digit() || b"-: .".contains(&byte)) { inner } else { "?" }
}

/// Whether this is the end of `CAST(x AS CHAR CHARACTER SET utf8mb4)` or `CHARSET utf8mb4)`, which the parser does not know.
fn names_charset(tokens: &[Token<'_>]) -> bool {
    let is = |token: &Token<'_>, word: &str| token.kind == Kind::Word && token.text.eq_ignore_ascii_case(word);
    match tokens {
        [charset, name, end, ..] if is(charset, "charset") => name.kind == Kind::Word && end.kind == Kind::Symbol(b')'),
        [character, set, name, end, ..] if is(character, "character") && is(set, "set") => {
            name.kind == Kind::Word && end.kind == Kind::Symbol(b')')
        }
        _ => false,
    }
}

/// Words that do not affect the rows: `SQL_CACHE`, `SQL_NO_CACHE`, `SQL_CALC_FOUND_ROWS`.
fn is_modifier(word: &str) -> bool {
    ["sql_cache", "sql_no_cache", "sql_calc_found_rows"].iter().any(|modifier| word.eq_ignore_ascii_case(modifier))
}

/// Whether only SELECT and its modifiers precede directly.
fn follows_select(found: &[Parsed]) -> bool {
    found.last().is_some_and(|last| match last {
        Parsed::Word(word) => matches!(
            word.keyword,
            Keyword::SELECT
                | Keyword::ALL
                | Keyword::DISTINCT
                | Keyword::DISTINCTROW
                | Keyword::HIGH_PRIORITY
                | Keyword::STRAIGHT_JOIN
                | Keyword::SQL_SMALL_RESULT
                | Keyword::SQL_BIG_RESULT
                | Keyword::SQL_BUFFER_RESULT
        ),
        _ => false,
    })
}

fn word(text: &str, next: Option<&Token<'_>>, before: &[Parsed]) -> Parsed {
    let lower = text.to_ascii_lowercase();
    let called = next.is_some_and(|next| next.kind == Kind::Symbol(b'('));
    let behind_value = || match before.last() {
        Some(Parsed::Word(word)) => word.quote_style.is_some() || !is_reserved(&word.value.to_ascii_lowercase()),
        Some(before) => matches!(
            before,
            Parsed::RParen | Parsed::Number(..) | Parsed::Placeholder(_) | Parsed::SingleQuotedString(_)
        ),
        None => false,
    };
    let behind_point = matches!(before.last(), Some(Parsed::Period));
    if behind_point {
        // Here it is a name, even if it is spelled like a keyword.
        Parsed::make_word(text, Some('`'))
    } else if lower == "mod" && behind_value() {
        Parsed::Mod
    } else if (called && function_class(&lower) != FunctionClass::Unknown) || is_bare(&lower) {
        Parsed::make_word(&lower, None)
    } else {
        Parsed::make_word(text, None)
    }
}

/// An identifier in backquotes; None if it is empty.
fn quoted(text: &str) -> Option<Parsed> {
    let name = text.strip_prefix('`')?.strip_suffix('`')?.replace("``", "`");
    // Names with a special meaning here are not read.
    (!name.is_empty() && name != VARIABLE && !name.contains('\u{1}')).then(|| Parsed::make_word(&name, Some('`')))
}

/// The operator or punctuation that begins with the first token, and its number of tokens: those that the server's scanner takes for one symbol.
fn symbol(tokens: &[Token<'_>]) -> Option<(Parsed, usize)> {
    let byte = |at: usize| match tokens.get(at) {
        Some(Token { kind: Kind::Symbol(byte), spaced, .. }) if at == 0 || !spaced => Some(*byte),
        _ => None,
    };
    let compares = |byte: u8| matches!(byte, b'<' | b'>' | b'=' | b'!');
    let run = (0..tokens.len()).take_while(|at| byte(*at).is_some_and(compares)).count();
    let (symbol, length) = match (byte(0)?, byte(1), byte(2)) {
        (b'<', Some(b'='), Some(b'>')) => (Parsed::Spaceship, 3),
        (b'<', Some(b'='), _) => (Parsed::LtEq, 2),
        (b'>', Some(b'='), _) => (Parsed::GtEq, 2),
        (b'<', Some(b'>'), _) | (b'!', Some(b'='), _) => (Parsed::Neq, 2),
        (b'<', Some(b'<'), _) => (Parsed::ShiftLeft, 2),
        (b'>', Some(b'>'), _) => (Parsed::ShiftRight, 2),
        (b'-', Some(b'>'), Some(b'>')) => (Parsed::LongArrow, 3),
        (b'-', Some(b'>'), _) => (Parsed::Arrow, 2),
        // See `join_pipes` of the lexer.
        (b'|', Some(b'|'), Some(b'|')) => return None,
        (b'|', Some(b'|'), _) => (Parsed::StringConcat, 2),
        (b'&', Some(b'&'), _) => (Parsed::make_word("and", None), 2),
        (b'<', ..) => (Parsed::Lt, 1),
        (b'>', ..) => (Parsed::Gt, 1),
        (b'=', ..) => (Parsed::Eq, 1),
        (b'+', ..) => (Parsed::Plus, 1),
        (b'-', ..) => (Parsed::Minus, 1),
        (b'*', ..) => (Parsed::Mul, 1),
        (b'/', ..) => (Parsed::Div, 1),
        (b'%', ..) => (Parsed::Mod, 1),
        (b'&', ..) => (Parsed::Ampersand, 1),
        (b'|', ..) => (Parsed::Pipe, 1),
        (b'^', ..) => (Parsed::Caret, 1),
        (b'~', ..) => (Parsed::Tilde, 1),
        (b'(', ..) => (Parsed::LParen, 1),
        (b')', ..) => (Parsed::RParen, 1),
        (b',', ..) => (Parsed::Comma, 1),
        (b'.', ..) => (Parsed::Period, 1),
        _ => return None,
    };
    // `=!`, `<<=` and the like: the server's scanner has special rules for them.
    (run <= length).then_some((symbol, length))
}

/// The parser's MySQL with the servers' precedence.
#[derive(Debug)]
struct Family;

impl Dialect for Family {
    fn dialect(&self) -> TypeId {
        TypeId::of::<MySqlDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        MySqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        MySqlDialect {}.is_identifier_part(ch)
    }

    fn identifier_quote_style(&self, _: &str) -> Option<char> {
        Some('`')
    }

    /// XOR binds between AND and OR, not closer than a comparison.
    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Xor => 7,
            other => MySqlDialect {}.prec_value(other),
        }
    }

    /// `||` joins texts, and binds closer than `*`.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        let is_concat = parser.peek_token_ref().token == Parsed::StringConcat;
        is_concat.then(|| Ok(self.prec_value(Precedence::MulDivModOp) + 1))
    }

    /// BINARY binds closer than any other operator; the parser would apply it to all that follows.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if !parser.parse_keyword(Keyword::BINARY) {
            return None;
        }
        let closest = self.prec_value(Precedence::DoubleColon);
        Some(parser.parse_subexpr(closest).map(|expr| Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expr),
            data_type: DataType::Binary(None),
            format: None,
        }))
    }

    fn parse_infix(&self, parser: &mut Parser<'_>, expr: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        if !parser.parse_keyword(Keyword::DIV) {
            return None;
        }
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| Expr::BinaryOp {
            left: Box::new(expr.clone()),
            op: BinaryOperator::MyIntegerDivide,
            right: Box::new(right),
        }))
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    fn supports_limit_comma(&self) -> bool {
        true
    }

    fn is_table_factor_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        MySqlDialect {}.is_table_factor_alias(explicit, keyword, parser)
    }

    fn supports_table_hints(&self) -> bool {
        true
    }

    fn supports_match_against(&self) -> bool {
        true
    }

    fn supports_select_modifiers(&self) -> bool {
        true
    }

    fn supports_data_type_signed_suffix(&self) -> bool {
        true
    }

    fn supports_cross_join_constraint(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_left_associative_joins_without_parens(&self) -> bool {
        false
    }
}
