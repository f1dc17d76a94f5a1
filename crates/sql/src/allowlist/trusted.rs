//! Calls of functions that somebody made and declared immutable, which the operator trusts (`freshet serve --trust-immutable`).
//!
//! The catalogue names them ([`Catalog::trusted`]): a name counts only if every function of that name is trusted, so it does not matter
//! which of them a call means. The bodies are not looked into. Each change of a function empties the cache.
//!
//! A text alone does not say that a call is trusted. So its effect stays that of an unknown function until a catalogue says more.

use freshet_types::{Catalog, Dialect, Reason};
use sqlparser::ast::{Function, ObjectName, Query};

use crate::allowlist::visitor::built_in_name;
use crate::analyze::clock::has_time;
use crate::analyze::{Outcome, Walk};
use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::statement::effect::Effect;
use crate::statement::template::{Parsed, Template, clock_text, parse_query};

/// The function's name without its schema, if it may be one that is not built in.
pub(crate) fn made_name(name: &ObjectName) -> Option<&str> {
    let ident = |at: usize| name.0.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match name.0.len() {
        1 => ident(0),
        2 if ident(0)? != "pg_catalog" => ident(1),
        _ => None,
    }
}

impl Parsed {
    pub(crate) fn of(query: Query, tokens: &[Token<'_>]) -> Box<Self> {
        let words = tokens.iter().filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted)).count();
        Box::new(Self { query, words, clock_text: tokens.iter().any(clock_text), time_text: has_time(tokens) })
    }
}

impl Template {
    /// PostgreSQL: the same as [`Self::parse`], but a query whose only obstacles are functions that are not built in may be cacheable.
    pub fn parse_trusting(dialect: Dialect, shape: &str) -> Self {
        let parsed = Self::parse(dialect, shape);
        if dialect.is_mysql_family() || parsed.survey.made.is_empty() || parsed.survey.is_refused {
            return parsed;
        }
        let tokens: Vec<Token<'_>> =
            Tokens::of(dialect, shape).filter(|token| token.kind != Kind::Symbol(b';')).collect();
        match parse_query(&tokens) {
            Some(query) => Self { verdict: Ok(Parsed::of(query, &tokens)), ..parsed },
            None => parsed,
        }
    }

    /// The same as a catalogue wants it.
    pub(crate) fn parse_for(dialect: Dialect, shape: &str, catalog: &Catalog) -> Self {
        if catalog.trusted.is_empty() { Self::parse(dialect, shape) } else { Self::parse_trusting(dialect, shape) }
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

impl Walk<'_> {
    /// Whether a function that is not built in may be called. It may take or make dates.
    pub(crate) fn trusted(&mut self, name: &ObjectName) -> Outcome {
        let trusted = !self.is_mysql() && made_name(name).is_some_and(|name| self.catalog.trusted.contains_key(name));
        self.date_time |= trusted;
        if trusted { Ok(()) } else { Err(Reason::Function(name.to_string().into())) }
    }

    /// Whether a call makes one value of those of several rows.
    pub(crate) fn aggregates(&self, function: &Function) -> bool {
        let made = || made_name(&function.name).and_then(|name| self.catalog.trusted.get(name)) == Some(&true);
        !function.within_group.is_empty()
            || built_in_name(self.dialect, &function.name).is_some_and(crate::allowlist::functions::is_aggregate)
            || made()
    }
}
