//! What a relation of a FROM clause stands for: the tables whose rows it shows, and what it is itself.
//!
//! A partitioned table holds no rows, and rows of inheritance children are read through their parent; the change stream
//! sends all of them under the table that holds them. So a parent stands for its leaves, and an equality that bounds the
//! parent's rows bounds those of each leaf: children have their parents' columns, under the same names and types. Which
//! tables those are can change without any row: the result depends on the definition of each parent as well.
//!
//! A view stands for its query (see [`crate::analyze::views`]); a materialised view for what its last REFRESH put there.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use freshet_types::{Catalog, Reason, RelationKind, ReplicaIdentity, Table, ValueType};
use sqlparser::ast::{ObjectName, ObjectNamePart};

/// Tables that one relation may stand for.
const LEAVES_MAX: usize = 100;

/// What a relation stands for.
#[derive(Debug, Default)]
pub(crate) struct Meant {
    /// Tables whose rows it shows.
    pub(crate) tables: Vec<Arc<Table>>,
    /// Relations of which it matters what they are. The queries of views among them are still to be read.
    pub(crate) definitions: Vec<Arc<Table>>,
}

/// What a relation stands for (`only`: without its children), or why results over it are not cached.
pub(crate) fn meant(catalog: &Catalog, table: &Arc<Table>, only: bool) -> Result<Meant, Reason> {
    let mut meant = Meant::default();
    let family = if only { Some(vec![table.clone()]) } else { family(catalog, table) };
    for member in family.ok_or_else(|| Reason::TableKind(name(table)))? {
        if member.row_security {
            return Err(Reason::RowSecurity(name(&member)));
        }
        if member.user_types {
            return Err(Reason::UserType(name(&member)));
        }
        match member.kind {
            RelationKind::Table | RelationKind::Parent if member.identity == ReplicaIdentity::Missing => {
                let generated = member.columns.iter().any(|column| column.generated);
                let reason = if generated { Reason::GeneratedIdentity } else { Reason::NoReplicaIdentity };
                return Err(reason(name(&member)));
            }
            // Whatever redefines it meets the tags of its own rows.
            RelationKind::Table | RelationKind::Parent => meant.tables.push(member),
            RelationKind::Partitioned | RelationKind::View => meant.definitions.push(member),
            // Its REFRESH is seen as a redefinition only.
            RelationKind::MaterializedView if catalog.ddl_in_stream => meant.definitions.push(member),
            _ => return Err(Reason::TableKind(name(&member))),
        }
    }
    if meant.tables.len() > LEAVES_MAX {
        return Err(Reason::Construct("a table with more than 100 partitions or children"));
    }
    Ok(meant)
}

/// A relation with all its partitions and inheritance children; None if one of them is not in the catalogue.
pub(crate) fn family(catalog: &Catalog, table: &Arc<Table>) -> Option<Vec<Arc<Table>>> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([table.id]);
    let mut open = VecDeque::from([table]);
    while let Some(member) = open.pop_front() {
        found.push(member.clone());
        for child in &member.children {
            if seen.insert(*child) {
                open.push_back(catalog.table(*child)?);
            }
        }
    }
    Some(found)
}

fn name(table: &Table) -> Arc<str> {
    format!("{}.{}", table.schema, table.name).into()
}

/// Whether a literal compared with a column of the table may be read as a date: ranges and arrays of dates count.
pub(crate) fn holds_dates(table: &Table) -> bool {
    let may_be = |value_type: ValueType| value_type.is_date() || value_type == ValueType::Other;
    table.datetime || table.columns.iter().any(|column| may_be(column.value_type))
}

pub(crate) fn unknown(parts: &[ObjectNamePart]) -> Reason {
    Reason::UnknownTable(ObjectName(parts.to_vec()).to_string().into())
}

/// Stands in front of the name of a relation behind ONLY, which the parser does not know. A text that has its first
/// character in a name is not analysed, so nothing else is taken for it.
pub(crate) const ONLY: &str = "\u{1}only";

/// The parts of a relation's name, and whether ONLY stood before it: the relation without its children.
pub(crate) fn without_only(name: &ObjectName) -> (&[ObjectNamePart], bool) {
    match name.0.split_first() {
        Some((first, rest)) if first.as_ident().is_some_and(|ident| ident.value == ONLY) => (rest, true),
        _ => (&name.0, false),
    }
}

/// The relation that a name means; None also for names of more than two parts.
pub(crate) fn table<'a>(catalog: &'a Catalog, schemas: &[Arc<str>], name: &ObjectName) -> Option<&'a Arc<Table>> {
    let (parts, _) = without_only(name);
    let ident = |at: usize| parts.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match parts.len() {
        1 => catalog.resolve(schemas.iter().map(|schema| &**schema), ident(0)?),
        2 => catalog.in_schema(ident(0)?, ident(1)?),
        _ => None,
    }
}
