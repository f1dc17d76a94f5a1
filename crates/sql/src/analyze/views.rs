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

use std::collections::HashSet;
use std::sync::Arc;

use freshet_types::{Catalog, Dialect, Reason, RelationKind, Table, TableId};

use crate::allowlist::types::user_defined;
use crate::analyze::clock::names_clock;
use crate::analyze::derived::Shown;
use crate::analyze::{Outcome, Walk, absent};
use crate::lex::normalize::{VIEWS_BASE, lex_view};
use crate::{Effect, Footprint, Lexed, Literal, Parameter, ParameterValue, Template, lex};

/// Views that one statement may read, directly and through others; and references to views that are opened.
const VIEWS_MAX: usize = 32;
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
    /// See [`Footprint::unopened`].
    pub(crate) unopened: Vec<Arc<Table>>,
    /// See [`Footprint::constants`].
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
        let lexed = self.views.text(view).map(|text| lex_view(self.dialect, text, base));
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
        Ok(std::mem::take(&mut self.shown).of_view(&view.columns))
    }

    fn open(&mut self, lexed: &Lexed) -> Outcome {
        let template = Template::parse_for(self.dialect, &lexed.shape, self.catalog);
        let parsed = template.verdict.as_ref().map_err(Clone::clone)?;
        let first = VIEWS_BASE + 1 + self.views.constants.len() as u32;
        self.views.constants.extend_from_slice(&lexed.literals);
        let schemas = std::mem::replace(&mut self.schemas, search_path().into());
        let ctes = std::mem::take(&mut self.ctes);
        let blocks = std::mem::take(&mut self.blocks);
        let told = std::mem::take(&mut self.told);
        let counts = std::mem::take(&mut self.counts);
        let splits = std::mem::take(&mut self.splits);
        let (date_time, times) = (std::mem::take(&mut self.date_time), std::mem::take(&mut self.times));

        self.query(&parsed.query)?;
        user_defined(self.catalog, &template.survey)?;
        self.handled.add(&template.survey);

        absent(self.counts == template.survey.counts, "a construct that is not analysed")?;
        let is_date = |number: u32| self.usages.get(&number).is_none_or(|usage| usage.may_be_date);
        let reads_clock = |(literal, number): (&Literal, u32)| names_clock(&literal.text) && is_date(number);
        let in_text = !self.is_mysql() && lexed.literals.iter().zip(first..).any(reads_clock);
        if self.date_time && (parsed.clock_text || in_text) {
            return Err(Reason::ClockLiteral);
        }
        (self.schemas, self.ctes, self.blocks, self.told, self.counts) = (schemas, ctes, blocks, told, counts);
        self.splits = splits;
        // What of it is a date outside, its columns tell; but MySQL converts by the current date in here, too.
        self.date_time = date_time || (self.is_mysql() && self.date_time);
        self.times |= times;
        Ok(())
    }
}

/// Views to be analysed, each once.
#[derive(Default)]
struct Queue {
    open: Vec<Arc<Table>>,
    seen: HashSet<TableId>,
}

impl Queue {
    fn extend<'a>(&mut self, relations: impl IntoIterator<Item = &'a Arc<Table>>) {
        for relation in relations {
            if relation.kind == RelationKind::View && self.seen.insert(relation.id) {
                self.open.push(relation.clone());
            }
        }
    }

    /// The next one; an error beyond so many that statement and catalogue would keep a session busy.
    fn next(&mut self) -> Result<Option<Arc<Table>>, Reason> {
        if self.seen.len() > VIEWS_MAX {
            return Err(Reason::Construct("a statement over more than 32 views"));
        }
        Ok(self.open.pop())
    }
}

/// Adds what those views of a footprint read that were not opened.
pub(crate) fn add_views(dialect: Dialect, footprint: &mut Footprint, catalog: &Catalog) -> Result<(), Reason> {
    let mut queue = Queue::default();
    queue.extend(&std::mem::take(&mut footprint.unopened));
    while let Some(view) = queue.next()? {
        let body = body(dialect, &view, catalog).map_err(|reason| named(reason, &view))?;
        queue.extend(&body.definitions);
        footprint.add_any_row(body);
    }
    // Among them those that were.
    queue.extend(&footprint.definitions);
    queue.next().map(|_| ())
}

/// What a statement over these relations may do besides what its own text says.
pub(crate) fn effect_of_views(dialect: Dialect, relations: &[Arc<Table>], catalog: &Catalog) -> Effect {
    let mut queue = Queue::default();
    queue.extend(relations);
    loop {
        let view = match queue.next() {
            Ok(Some(view)) => view,
            Ok(None) => return Effect::Pure,
            Err(_) => return Effect::Write,
        };
        let Some(text) = &view.definition else { return Effect::Write };
        let template = Template::parse_for(dialect, &lex(dialect, text).shape, catalog);
        match template.harmless_relations(catalog, &search_path()) {
            Some(relations) => queue.extend(&relations),
            None => return Effect::Write,
        }
    }
}

/// What one view's query depends on, the views in it not looked into.
fn body(dialect: Dialect, view: &Table, catalog: &Catalog) -> Result<Footprint, Reason> {
    let text = view.definition.as_ref().ok_or_else(|| Reason::TableKind(qualified(view)))?;
    let lexed = lex(dialect, text);
    let template = Template::parse_for(dialect, &lexed.shape, catalog);
    if !template.settings().is_empty() {
        return Err(Reason::Function("current_setting".into()));
    }
    let footprint = template.resolve_but_views(catalog, &search_path(), false)?;
    let literals =
        lexed.literals.iter().map(|literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 });
    let literals: Vec<Parameter<'_>> = literals.collect();
    footprint.refuse_types(&literals)?;
    if footprint.reads_clock(&literals) { Err(Reason::ClockLiteral) } else { Ok(footprint) }
}

fn search_path() -> [Arc<str>; 1] {
    ["pg_catalog".into()]
}

fn qualified(view: &Table) -> Arc<str> {
    format!("{}.{}", view.schema, view.name).into()
}

/// The reason with the view's name, where it names what the view's text holds.
fn named(reason: Reason, view: &Table) -> Reason {
    let within = |what: &str| format!("{what} in view {}.{}", view.schema, view.name).into();
    match reason {
        Reason::Function(what) => Reason::Function(within(&what)),
        Reason::Operator(what) => Reason::Operator(within(&what)),
        Reason::UserDefined(what) => Reason::UserDefined(within(&what)),
        Reason::UnknownTable(what) => Reason::UnknownTable(within(&what)),
        other => other,
    }
}
