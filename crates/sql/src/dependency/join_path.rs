//! Join paths: from references that constants restrict, over equalities between columns, to other references (`join_keys.rs`).

use crate::analysis::{Edge, ReferenceColumn};
use crate::dependency::key_conditions::AccessMethod;
use crate::predicate::bind::{self, Rows, is_never};

/// Limit of tables on a path.
const STEPS_MAX: usize = 8;

/// Limit of paths to the keys of one table.
const PATHS_MAX: usize = 4;

/// The edges of a join path, backwards from a reference to one with constants, each with the column on its other side.
pub(crate) type JoinPath<'f> = Vec<(&'f Edge, &'f ReferenceColumn)>;

/// Limit of keyed tables in one key query.
pub(crate) const KEYED_TABLES_MAX: usize = 12;

/// The join paths to each reference: those that together give all its keys. A reference with an access method has one path without edges.
pub(crate) struct JoinPaths<'f> {
    of: Vec<Option<Vec<JoinPath<'f>>>>,
    /// The places of the references that were reached.
    pub(crate) reached: Vec<usize>,
}

impl<'f> JoinPaths<'f> {
    /// The best access methods come first. Others are used only for references that these do not reach.
    pub(crate) fn from(rows: &[Rows], methods: &[Option<AccessMethod>], edges: &'f [Edge]) -> Self {
        let mut paths = Self { of: vec![None; rows.len()], reached: Vec::new() };
        for method in AccessMethod::ALL {
            for (path, own) in paths.of.iter_mut().zip(methods) {
                if path.is_none() && *own == Some(method) {
                    *path = Some(vec![Vec::new()]);
                }
            }
            paths.extend(rows, edges);
        }
        paths
    }

    fn extend(&mut self, rows: &[Rows], edges: &'f [Edge]) {
        for _ in 1..STEPS_MAX {
            let mut next = Vec::new();
            for edge in edges.iter().filter(|edge| !edge.by_keys).chain(edges.iter().filter(|edge| edge.by_keys)) {
                let wanted =
                    rows.get(edge.to).is_some_and(is_open) && self.of.get(edge.to).is_some_and(Option::is_none);
                if let Some(along) = self.along(rows, edge).filter(|_| wanted) {
                    next.push((edge.to, along));
                }
            }
            for (to, along) in next {
                let new = self.reached.len() < KEYED_TABLES_MAX && !self.reached.contains(&to);
                if let Some(of) = self.of.get_mut(to).filter(|_| new) {
                    *of = Some(along);
                    self.reached.push(to);
                }
            }
        }
    }

    /// The paths over an edge, if all references on its other side are reached.
    fn along(&self, rows: &[Rows], edge: &'f Edge) -> Option<Vec<JoinPath<'f>>> {
        let mut paths = Vec::new();
        let holds_keys = |key_column: &&ReferenceColumn| !rows.get(key_column.place).is_some_and(is_never);
        for key_column in edge.from.iter().filter(holds_keys) {
            for before in self.of.get(key_column.place)?.as_ref()? {
                paths.push(std::iter::once((edge, key_column)).chain(before.iter().copied()).collect());
            }
        }
        let short = paths.iter().all(|path: &JoinPath<'_>| path.len() < STEPS_MAX);
        (short && (1..=PATHS_MAX).contains(&paths.len())).then_some(paths)
    }

    /// Whether a join path leads into one of these references.
    pub(crate) fn lead_into(&self, inside: &[usize]) -> bool {
        let of_inside = self.reached().filter(|(place, _)| inside.contains(place));
        of_inside
            .flat_map(|(_, paths)| paths.iter().flatten())
            .any(|(_, key_column)| !inside.contains(&key_column.place))
    }

    pub(crate) fn reached(&self) -> impl Iterator<Item = (usize, &[JoinPath<'f>])> {
        self.reached.iter().filter_map(|place| Some((*place, self.of.get(*place)?.as_deref()?)))
    }
}

/// Whether no condition gives the values of the rows that matter; a range may be known.
pub(crate) fn is_open(rows: &Rows) -> bool {
    match rows.as_deref() {
        None => true,
        Some([]) => false,
        Some(conjunctions) => conjunctions.iter().flatten().all(|term| bind::is_open(&term.test)),
    }
}
