//! Calls of user-defined immutable functions that the operator trusts (`freshet serve --trust-immutable`).
//!
//! The catalogue has their names ([`Catalog::trusted`]). A name is in it only if every function of that name is trusted, so it does not matter which
//! of them a call means. The bodies are not read. Each change of a function empties the cache.
//!
//! A text alone does not show that a call is trusted. So its effect is that of an unknown function until it is combined with a catalogue.

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
    /// PostgreSQL: as [`Self::parse`], but a query may be cacheable whose only obstacles are user-defined functions.
    pub fn parse_trusting(dialect: Dialect, normalized: &str) -> Self {
        let parsed = Self::parse(dialect, normalized);
        if dialect.is_mysql_family() || parsed.findings.made.is_empty() || parsed.findings.refusals.is_refused {
            return parsed;
        }
        let tokens: Vec<Token<'_>> =
            Tokens::of(dialect, normalized).filter(|token| token.kind != Kind::Symbol(b';')).collect();
        match parse_query(&tokens) {
            Some(query) => Self { verdict: Ok(Parsed::of(query, &tokens)), ..parsed },
            None => parsed,
        }
    }

    /// The template that this catalogue needs.
    pub(crate) fn parse_for(dialect: Dialect, normalized: &str, catalog: &Catalog) -> Self {
        if catalog.trusted.is_empty() {
            Self::parse(dialect, normalized)
        } else {
            Self::parse_trusting(dialect, normalized)
        }
    }

    /// The effect of the statement, as far as its text and the trusted functions say.
    pub fn effect_under(&self, catalog: &Catalog) -> Effect {
        let made = &self.findings.made;
        let trusted = !made.is_empty() && made.iter().all(|name| catalog.trusted.contains_key(name.as_str()));
        if trusted { self.findings.effect_but_made } else { self.effect }
    }

    /// Whether the catalogue decides if it only reads.
    pub fn may_be_trusted(&self) -> bool {
        !self.findings.made.is_empty() && self.verdict.is_ok() && self.findings.effect_but_made == Effect::Pure
    }
}
