//! What views add to a statement that reads them: the tables and functions of their queries.
//!
//! A view's query is analysed like a statement of its own, under a search path of `pg_catalog` alone, as the catalogue's
//! text of it was written. The views in it are analysed in turn: in a loop and each once, so that neither depth nor a
//! view that reads itself matters. The result depends on any row of the tables behind, and on what each view is.

use std::collections::HashSet;
use std::sync::Arc;

use freshet_model::{Catalog, Dialect, Reason, RelationKind, Table, TableId};

use crate::{Effect, Footprint, Parameter, ParameterValue, Template, lex};

/// Views that one statement may read, directly and through others.
const VIEWS_MAX: usize = 32;

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

/// Adds what the views of a footprint read.
pub(crate) fn add_views(dialect: Dialect, footprint: &mut Footprint, catalog: &Catalog) -> Result<(), Reason> {
    let mut queue = Queue::default();
    queue.extend(&footprint.definitions);
    while let Some(view) = queue.next()? {
        let body = body(dialect, &view, catalog).map_err(|reason| named(reason, &view))?;
        queue.extend(&body.definitions);
        footprint.add_any_row(body);
    }
    Ok(())
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
        let template = Template::parse(dialect, &lex(dialect, text).shape);
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
    let footprint = Template::parse(dialect, &lexed.shape).resolve_but_views(catalog, &search_path())?;
    let literals =
        lexed.literals.iter().map(|literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 });
    if footprint.reads_clock(&literals.collect::<Vec<_>>()) { Err(Reason::ClockLiteral) } else { Ok(footprint) }
}

fn search_path() -> [Arc<str>; 1] {
    ["pg_catalog".into()]
}

fn qualified(view: &Table) -> Box<str> {
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
