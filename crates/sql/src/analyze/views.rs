//! Views: the tables and functions of their queries are dependencies of the statement.
//!
//! A view in FROM is walked in place, as the derived table `(SELECT …) AS name`, so that conditions on its columns bound the tables behind it
//! (`derived.rs`), and join paths lead through it. Its text comes from the catalogue, which reads it with a search path of `pg_catalog` alone.
//! Inside, no enclosing block and no common table expression of the statement is visible, and its constants have their own numbers, above all that a
//! statement may have. The constants were read when the view was created, so they do not depend on settings of the session. A view with two
//! references is walked twice.
//!
//! Some views are not expanded: those that read themselves, deeply nested ones, those beyond a limit, and texts with a backslash, whose meaning
//! depends on settings. The query of such a view is analysed like a statement of its own, and so are the views in it, in a loop and each once, so
//! that neither depth nor recursion matters. Then the result depends on any row of the tables behind it.
//!
//! In both cases the result depends on the definition of each view.

use std::sync::Arc;

use freshet_types::{Reason, Table, TableId};

use crate::analyze::shown::Shown;
use crate::analyze::{Outcome, Walk, absent};
use crate::lex::literal::Literal;
use crate::lex::normalize::{Lexed, VIEWS_BASE, lex_view};
use crate::statement::clock_text::names_clock;
use crate::statement::effect_in_catalog::{VIEWS_MAX, search_path};
use crate::statement::template::Template;
use crate::statement::user_code::user_defined;

/// Limit of nested views that are expanded. Each is a walk within a walk.
const DEPTH_MAX: usize = 3;

/// The views of a statement: those whose queries are walked in place, and the others.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// False if no view is expanded.
    pub(crate) are_opened: bool,
    /// The views that enclose the current place.
    around: Vec<TableId>,
    /// The number of expanded views.
    count: usize,
    /// The reason already has the name of its view.
    is_named: bool,
    /// See [`Read::unopened`](crate::analysis::Read).
    pub(crate) unopened: Vec<Arc<Table>>,
    /// See [`Read::constants`](crate::analysis::Read).
    pub(crate) constants: Vec<Literal>,
}

impl Views {
    /// Whether the current place is in the statement itself.
    pub(crate) fn is_outside(&self) -> bool {
        self.around.is_empty()
    }

    /// The text of a view if it is expanded here.
    fn text<'v>(&self, view: &'v Table) -> Option<&'v str> {
        let bounded = self.count < VIEWS_MAX && self.around.len() < DEPTH_MAX && !self.around.contains(&view.id);
        view.definition.as_deref().filter(|text| self.are_opened && bounded && !text.contains('\\'))
    }
}

impl Walk<'_> {
    /// Walks the query of a view in FROM; returns its columns.
    pub(crate) fn view(&mut self, view: &Arc<Table>) -> Result<Shown, Reason> {
        let base = VIEWS_BASE + self.views.constants.len() as u32;
        let lexed = self.views.text(view).map(|text| lex_view(self.context.dialect, text, base));
        let Some(lexed) = lexed.filter(|lexed| lexed.own_params == 0) else {
            self.views.unopened.push(view.clone());
            return Ok(Shown::default());
        };
        self.views.count += 1;
        self.views.around.push(view.id);
        self.open(&lexed).map_err(|reason| {
            let named = if self.views.is_named { reason } else { named(reason, view) };
            self.views.is_named = true;
            named
        })?;
        self.views.around.pop();
        Ok(std::mem::take(&mut self.scope.shown).of_view(&view.columns))
    }

    fn open(&mut self, lexed: &Lexed) -> Outcome {
        let template = Template::parse_for(self.context.dialect, &lexed.normalized, self.context.catalog);
        let parsed = template.verdict.as_ref().map_err(Clone::clone)?;
        let first = VIEWS_BASE + 1 + self.views.constants.len() as u32;
        self.views.constants.extend_from_slice(&lexed.literals);
        let schemas = std::mem::replace(&mut self.context.schemas, search_path().into());
        let ctes = std::mem::take(&mut self.scope.ctes);
        let blocks = std::mem::take(&mut self.scope.blocks);
        let told = std::mem::take(&mut self.scope.told);
        let counts = std::mem::take(&mut self.counts);
        let splits = std::mem::take(&mut self.context.splits);
        let (date_time, times) = (std::mem::take(&mut self.date_time), std::mem::take(&mut self.times));

        self.query(&parsed.query)?;
        user_defined(self.context.catalog, &template.findings)?;
        self.handled.add(&template.findings.handled, &template.findings.functions, &template.findings.operators);

        absent(self.counts == template.findings.counts, "a construct that is not analysed")?;
        let is_date = |number: u32| self.usages.get(&number).is_none_or(|usage| usage.may_be_date);
        let reads_clock = |(literal, number): (&Literal, u32)| names_clock(&literal.text) && is_date(number);
        let in_text = !self.is_mysql() && lexed.literals.iter().zip(first..).any(reads_clock);
        if self.date_time && (parsed.clock_text || in_text) {
            return Err(Reason::ClockLiteral);
        }
        (self.context.schemas, self.scope.ctes, self.scope.blocks, self.scope.told, self.counts) =
            (schemas, ctes, blocks, told, counts);
        self.context.splits = splits;
        // Its columns show which of its values are dates outside; but MySQL converts with the current date inside, too.
        self.date_time = date_time || (self.is_mysql() && self.date_time);
        self.times |= times;
        Ok(())
    }
}

pub(crate) fn qualified(view: &Table) -> Arc<str> {
    format!("{}.{}", view.schema, view.name).into()
}

/// The reason with the view's name, if it names something in the view's text.
pub(crate) fn named(reason: Reason, view: &Table) -> Reason {
    let within = |what: &str| format!("{what} in view {}.{}", view.schema, view.name).into();
    match reason {
        Reason::Function(what) => Reason::Function(within(&what)),
        Reason::Operator(what) => Reason::Operator(within(&what)),
        Reason::UserDefined(what) => Reason::UserDefined(within(&what)),
        Reason::UnknownTable(what) => Reason::UnknownTable(within(&what)),
        other => other,
    }
}
