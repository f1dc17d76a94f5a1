//! What views add to a statement that reads them: the tables and functions of their queries.
//!
//! A view in FROM is walked in the place of its name, as the derived table `(SELECT …) AS name` is, so that conditions on its
//! columns bound the tables behind it (`derived.rs`), and keys lead through it. Its text is the catalogue's, which is read under
//! a search path of `pg_catalog` alone. Nothing of the statement is seen in there, no block around it and no common table
//! expression; and its constants have numbers of their own, behind all that a statement may have. They were read when the
//! view was made, so they do not depend on settings of the session. A reference to a view that is named twice is walked twice.
//!
//! Some are not opened in this way: those that read themselves, deep ones, what is beyond a number, texts with a backslash,
//! whose meaning is for settings to say. Such a view's query is analysed like a statement of its own, and so are the views in
//! it, in a loop and each once, so that neither depth nor a view that reads itself matters. Then the result depends on any row of
//! the tables behind.
//!
//! In either way it depends on what each view is.

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

/// Views in views that are opened. Each is a walk within a walk.
const DEPTH_MAX: usize = 3;

/// The views of a statement whose queries are walked where their names stand, and the others.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Otherwise none is.
    pub(crate) are_opened: bool,
    /// Those around the current place.
    around: Vec<TableId>,
    /// How many were opened.
    count: usize,
    /// A reason has the name of its view.
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

    /// The text of a view if it is to be opened here.
    fn text<'v>(&self, view: &'v Table) -> Option<&'v str> {
        let bounded = self.count < VIEWS_MAX && self.around.len() < DEPTH_MAX && !self.around.contains(&view.id);
        view.definition.as_deref().filter(|text| self.are_opened && bounded && !text.contains('\\'))
    }
}

impl Walk<'_> {
    /// Walks the query of a view that stands in FROM; what it shows.
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
        user_defined(self.context.catalog, &template.survey)?;
        self.handled.add(&template.survey.handled, &template.survey.functions, &template.survey.operators);

        absent(self.counts == template.survey.counts, "a construct that is not analysed")?;
        let is_date = |number: u32| self.usages.get(&number).is_none_or(|usage| usage.may_be_date);
        let reads_clock = |(literal, number): (&Literal, u32)| names_clock(&literal.text) && is_date(number);
        let in_text = !self.is_mysql() && lexed.literals.iter().zip(first..).any(reads_clock);
        if self.date_time && (parsed.clock_text || in_text) {
            return Err(Reason::ClockLiteral);
        }
        (self.context.schemas, self.scope.ctes, self.scope.blocks, self.scope.told, self.counts) =
            (schemas, ctes, blocks, told, counts);
        self.context.splits = splits;
        // What of it is a date outside, its columns tell; but MySQL converts by the current date in here, too.
        self.date_time = date_time || (self.is_mysql() && self.date_time);
        self.times |= times;
        Ok(())
    }
}

pub(crate) fn qualified(view: &Table) -> Arc<str> {
    format!("{}.{}", view.schema, view.name).into()
}

/// The reason with the view's name, where it names what the view's text holds.
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
