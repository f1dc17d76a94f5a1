//! Calls of functions that somebody made and declared immutable, which the operator trusts (`freshet serve --trust-immutable`).
//!
//! The catalogue names them ([`Catalog::trusted`]): a name counts only if every function of that name is trusted, so it does not matter
//! which of them a call means. The bodies are not looked into. Each change of a function empties the cache.
//!
//! A text alone does not say that a call is trusted. So its effect stays that of an unknown function until a catalogue says more.

use freshet_types::{Catalog, Dialect};
use sqlparser::ast::Query;

use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::statement::clock_text::{clock_text, has_time};
use crate::statement::effect::Effect;
use crate::statement::parse::parse_query;
use crate::statement::template::{Parsed, Template};

impl Parsed {
    pub(crate) fn of(query: Query, tokens: &[Token<'_>]) -> Box<Self> {
        let words = tokens.iter().filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted)).count();
        Box::new(Self { query, words, clock_text: tokens.iter().any(clock_text), time_text: has_time(tokens) })
    }
}

impl Template {
    /// PostgreSQL: the same as [`Self::parse`], but a query whose only obstacles are functions that are not built in may be cacheable.
    pub fn parse_trusting(dialect: Dialect, normalized: &str) -> Self {
        let parsed = Self::parse(dialect, normalized);
        if dialect.is_mysql_family() || parsed.survey.made.is_empty() || parsed.survey.is_refused {
            return parsed;
        }
        let tokens: Vec<Token<'_>> =
            Tokens::of(dialect, normalized).filter(|token| token.kind != Kind::Symbol(b';')).collect();
        match parse_query(&tokens) {
            Some(query) => Self { verdict: Ok(Parsed::of(query, &tokens)), ..parsed },
            None => parsed,
        }
    }

    /// The same as a catalogue wants it.
    pub(crate) fn parse_for(dialect: Dialect, normalized: &str, catalog: &Catalog) -> Self {
        if catalog.trusted.is_empty() {
            Self::parse(dialect, normalized)
        } else {
            Self::parse_trusting(dialect, normalized)
        }
    }

    /// What the statement may do, as far as its text and the functions that are trusted say.
    pub fn effect_under(&self, catalog: &Catalog) -> Effect {
        let made = &self.survey.made;
        let trusted = !made.is_empty() && made.iter().all(|name| catalog.trusted.contains_key(name.as_str()));
        if trusted { self.survey.effect_but_made } else { self.effect }
    }

    /// Whether a catalogue decides if it only reads.
    pub fn may_be_trusted(&self) -> bool {
        !self.survey.made.is_empty() && self.verdict.is_ok() && self.survey.effect_but_made == Effect::Pure
    }
}
