//! Functions of texts, and patterns.

use freshet_types::{Comparison, Formula, TextFunction, Value, ValueType};
use sqlparser::ast::Expr;

use super::Kind::Of;
use super::{Reading, Typed, number};
use crate::predicate::operand;

/// The LIKE pattern that is equivalent to a regular expression of plain characters.
fn like_of_regex(regex: &str) -> Option<String> {
    let (begin, rest) = regex.strip_prefix('^').map_or(("%", regex), |rest| ("", rest));
    let (rest, end) = rest.strip_suffix('$').map_or((rest, "%"), |rest| (rest, ""));
    let plain = rest.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_' | '/' | ':' | '@'));
    plain.then(|| format!("{begin}{}{end}", rest.replace('_', "\\_")))
}

impl Reading<'_> {
    /// A text expression, which may be a constant.
    pub(super) fn text(&self, expr: &Expr) -> Option<Typed> {
        match operand(expr) {
            Some(_) if self.params.is_none() => Some((number(0), Of(ValueType::Text))),
            Some(_) => Some((Formula::Constant(Value::Text(self.plain_text(expr)?)), Of(ValueType::Text))),
            None => self.typed(expr).filter(|(_, kind)| kind.is_text()),
        }
    }

    /// `…::text`
    pub(super) fn as_text(&self, (of, kind): Typed) -> Option<Typed> {
        match kind {
            _ if self.is_mysql() => None,
            kind if kind.is_text() => Some((of, kind)),
            kind if kind.is_integer() => Some((Formula::Text(TextFunction::Digits, [of].into()), Of(ValueType::Text))),
            _ => None,
        }
    }

    /// In MySQL bytes are not texts.
    pub(super) fn of_text(&self, function: TextFunction, text: &Expr) -> Option<Typed> {
        let (text, kind) =
            self.text(text).filter(|(_, kind)| !matches!(kind, Of(ValueType::Bytes | ValueType::ExactText)))?;
        Some((Formula::Text(function, [text].into()), kind))
    }

    pub(super) fn substring(&self, text: &Expr, [from, length]: [Formula; 2]) -> Option<Typed> {
        let (text, kind) =
            self.text(text).filter(|(_, kind)| !matches!(kind, Of(ValueType::Bytes | ValueType::ExactText)))?;
        Some((Formula::Text(TextFunction::Substring, [text, from, length].into()), kind))
    }

    pub(super) fn integer(&self, expr: &Expr) -> Option<Formula> {
        self.literal_number(expr).filter(|value| matches!(value, Formula::Constant(Value::Int(_))))
    }

    pub(super) fn concat(&self, sides: &[&Expr]) -> Option<Typed> {
        let texts: Vec<Typed> = sides.iter().map(|side| self.text(side)).collect::<Option<_>>()?;
        // The stream omits trailing zero bytes.
        if texts.iter().any(|(_, kind)| *kind == Of(ValueType::Bytes)) {
            return None;
        }
        let kind = texts.iter().map(|(_, kind)| *kind).find(|kind| *kind != Of(ValueType::Text));
        let texts: Vec<Formula> = texts.into_iter().map(|(text, _)| text).collect();
        Some((Formula::Text(TextFunction::Concat, texts.into()), kind.unwrap_or(Of(ValueType::Text))))
    }

    /// A regular expression of plain characters, with or without anchors, is a LIKE pattern. Of any other one it is known that NULL does not match.
    pub(super) fn regex(&self, text: &Expr, pattern: &Expr) -> Option<Formula> {
        let (text, _) = self.typed(text).filter(|(_, kind)| kind.is_text() && !self.is_mysql())?;
        let plain = self.plain_text(pattern).and_then(|pattern| like_of_regex(std::str::from_utf8(&pattern).ok()?));
        Some(match plain {
            Some(like) => {
                let like = Formula::Constant(Value::Text(like.into_bytes().into()));
                Formula::Like(Box::new([text, like]))
            }
            None => Formula::Compare(Comparison::Equal, ValueType::Text, Box::new([text, Formula::Unknown])),
        })
    }

    pub(super) fn like(&self, text: &Expr, pattern: &Expr) -> Option<Formula> {
        if self.is_mysql() || operand(text).is_some() {
            return None;
        }
        let ((text, _), (pattern, _)) = (self.text(text)?, self.text(pattern)?);
        Some(Formula::Like(Box::new([text, pattern])))
    }
}
