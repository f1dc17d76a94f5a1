//! The meaning of a relation in FROM: the tables whose rows it contains, and the definitions that it depends on.
//!
//! A partitioned table has no rows of its own, and rows of inheritance children are read through their parent. The change stream sends each row under
//! the table that stores it. So a parent means its leaves, and an equality that restricts the parent's rows restricts those of each leaf: children
//! have their parents' columns, with the same names and types. The set of leaves can change without a change of rows, so the result also depends on
//! the definition of each parent.
//!
//! A view means its query (see [`crate::analyze::views`]); a materialised view means the rows of its last REFRESH.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use freshet_types::{Catalog, Reason, RelationKind, ReplicaIdentity, Table, ValueType};
use sqlparser::ast::{ObjectName, ObjectNamePart};

/// Limit of tables that one relation may mean.
const LEAVES_MAX: usize = 100;

/// The meaning of a relation.
#[derive(Debug, Default)]
pub(crate) struct Meant {
    /// Tables whose rows it contains.
    pub(crate) tables: Vec<Arc<Table>>,
    /// Relations whose definitions matter. The queries of views among them are still to be read.
    pub(crate) definitions: Vec<Arc<Table>>,
}

/// The meaning of a relation (`only`: without its children), or why results over it are not cached.
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
            // A redefinition invalidates by the tags of the table's own rows.
            RelationKind::Table | RelationKind::Parent => meant.tables.push(member),
            RelationKind::Partitioned | RelationKind::View => meant.definitions.push(member),
            // The stream shows its REFRESH only as a redefinition.
            RelationKind::MaterializedView if catalog.ddl_in_stream => meant.definitions.push(member),
            _ => return Err(Reason::TableKind(name(&member))),
        }
    }
    if meant.tables.len() > LEAVES_MAX {
        return Err(Reason::Construct("a table with more than 100 partitions or children"));
    }
    Ok(meant)
}

/// A relation with all its partitions and inheritance children; None if the catalogue lacks one of them.
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

pub(crate) fn name(table: &Table) -> Arc<str> {
    format!("{}.{}", table.schema, table.name).into()
}

/// Whether a literal compared with a column of the table may be read as a date; ranges and arrays of dates count.
pub(crate) fn holds_dates(table: &Table) -> bool {
    let may_be = |value_type: ValueType| value_type.is_date() || value_type == ValueType::Other;
    table.datetime || table.columns.iter().any(|column| may_be(column.value_type))
}

pub(crate) fn unknown(parts: &[ObjectNamePart]) -> Reason {
    Reason::UnknownTable(ObjectName(parts.to_vec()).to_string().into())
}

/// Precedes the name of a relation behind ONLY, which the parser does not know. A text with this first character in a name is not analysed, so no
/// other name is taken for it.
pub(crate) const ONLY: &str = "\u{1}only";

/// The parts of a relation's name, and whether ONLY preceded it: the relation without its children.
pub(crate) fn without_only(name: &ObjectName) -> (&[ObjectNamePart], bool) {
    match name.0.split_first() {
        Some((first, rest)) if first.as_ident().is_some_and(|ident| ident.value == ONLY) => (rest, true),
        _ => (&name.0, false),
    }
}

/// The relation of a name; None also for names of more than two parts.
pub(crate) fn table<'a>(catalog: &'a Catalog, schemas: &[Arc<str>], name: &ObjectName) -> Option<&'a Arc<Table>> {
    let (parts, _) = without_only(name);
    let ident = |at: usize| parts.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match parts.len() {
        1 => catalog.resolve(schemas.iter().map(|schema| &**schema), ident(0)?),
        2 => catalog.in_schema(ident(0)?, ident(1)?),
        _ => None,
    }
}
