//! Facts about a statement of MySQL's dialect that a session needs besides its effect.
//!
//! A session cannot query which temporary tables it has. FOUND_ROWS, ROW_COUNT and the warnings are those of the last statement that the server saw,
//! not of a hit. So the facts say whether a statement may run stored code, which may do all that: from its text as far as possible, and from the
//! catalogue for the relations that it names.

use std::sync::Arc;

use freshet_types::{Catalog, RelationKind, Table, TableId};

use crate::allowlist::FunctionClass;
use crate::allowlist::mysql_functions::{counts_sequence, function_class};
use crate::lex::mysql::is_placeholder;
use crate::lex::mysql_words::{is_reserved, takes_brackets};
use crate::lex::postgres::{Kind, Token};

/// Limit of names stored for one statement; with more it is assumed to run anything.
const NAMES_MAX: usize = 200;

/// A name in the text: with its database, if there is one.
pub type Name = (Option<Box<str>>, Box<str>);

/// The access to a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    Read,
    Write,
}

/// When a statement certainly takes its transaction's snapshot.
#[derive(Debug, Default)]
pub(crate) enum Snapshot {
    /// Unknown.
    #[default]
    Unknown,
    /// `START TRANSACTION WITH CONSISTENT SNAPSHOT`
    AtOnce,
    /// If it returns a row and this is a base table: then it read the table.
    Reading(Name),
}

/// Facts about one statement, or about several in one text.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, each set in one place")]
pub(crate) struct Facts {
    pub(crate) hint: Option<Hint>,
    /// See [`crate::Template::reads_diagnostics`].
    pub(crate) reads_diagnostics: bool,
    /// `SQL_CALC_FOUND_ROWS`
    pub(crate) counts_found_rows: bool,
    pub(crate) snapshot: Snapshot,
    /// `CREATE TEMPORARY TABLE`
    pub(crate) temporary: bool,
    /// For a single statement: the temporary table that it creates.
    pub(crate) creates: Option<Name>,
    /// For a single statement: the tables that it drops, temporary ones before others.
    pub(crate) drops: Vec<Name>,
    /// It runs, or may run, stored code.
    pub(crate) stored_code: bool,
    /// Native functions that it calls: a stored function of the same name is called instead.
    pub(crate) calls: Vec<Box<str>>,
    /// Tables that it writes to.
    pub(crate) targets: Vec<Name>,
    /// Its access to the other tables that it names.
    pub(crate) access: Access,
    /// Names of relations that it reads, which may be views.
    pub(crate) names: Vec<Name>,
    /// See [`crate::Template::polled`].
    pub(crate) polled: Option<&'static str>,
}

/// What a statement of MySQL's dialect asks of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// `SQL_CACHE`
    Cache,
    /// `SQL_NO_CACHE`
    NoCache,
}

impl Facts {
    /// The facts from the tokens of any statement. `target`: the position of the name of the table that it writes to.
    pub(crate) fn scan(tokens: &[Token<'_>], target: Option<usize>) -> Self {
        let mut facts = Self::default();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let is_target = target == Some(at);
            match token.kind {
                Kind::Word | Kind::Quoted => at = facts.name(tokens, at, is_target),
                Kind::Variable => facts.reads_diagnostics |= reads_counts(token.text),
                // A quoted text may be a name.
                Kind::Text | Kind::OpaqueText => facts.stored_code |= is_called(tokens, at),
                Kind::Hopeless => (facts.stored_code, facts.reads_diagnostics) = (true, true),
                _ => {}
            }
            at += 1;
        }
        facts
    }

    /// The facts of a statement that runs stored code, whatever the catalogue says.
    pub(crate) fn stored_code() -> Self {
        Self { stored_code: true, ..Self::default() }
    }

    /// Adds the name that begins at `at`; returns the position of its last token.
    fn name(&mut self, tokens: &[Token<'_>], at: usize, target: bool) -> usize {
        let word = |at: usize| tokens.get(at).filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted));
        let symbol = |at: usize, byte: u8| tokens.get(at).is_some_and(|token| token.kind == Kind::Symbol(byte));
        let Some(first) = word(at) else { return at };
        let second = word(at + 2).filter(|_| symbol(at + 1, b'.'));
        let end = if second.is_some() { at + 2 } else { at };
        let lower = first.text.to_ascii_lowercase();
        let plain = first.kind == Kind::Word;
        if symbol(end + 1, b'(') && !target {
            match (plain && second.is_none()).then(|| function_class(&lower)) {
                Some(FunctionClass::Unknown) if takes_brackets(&lower) || is_reserved(&lower) => {}
                Some(FunctionClass::Unknown) if counts_sequence(&lower) => push(&mut self.calls, lower.into()),
                None | Some(FunctionClass::Unknown) => self.stored_code = true,
                Some(_) => {
                    self.reads_diagnostics |= matches!(lower.as_str(), "found_rows" | "row_count");
                    push(&mut self.calls, lower.into());
                    self.stored_code |= self.calls.len() > NAMES_MAX;
                }
            }
            return end;
        }
        if second.is_none() && plain && (is_reserved(&lower) || is_placeholder(&lower)) {
            return end;
        }
        let name: Name = match second {
            Some(second) => (Some(unquoted(first)), unquoted(second)),
            None => (None, unquoted(first)),
        };
        push(if target { &mut self.targets } else { &mut self.names }, name);
        self.stored_code |= self.names.len() > NAMES_MAX;
        end
    }

    /// The facts of two statements in one text, or of a statement's words and tokens.
    pub(crate) fn and(mut self, other: Self) -> Self {
        (self.creates, self.drops) = (None, Vec::new());
        self.reads_diagnostics |= other.reads_diagnostics;
        self.temporary |= other.temporary;
        self.stored_code |= other.stored_code;
        if other.access == Access::Write {
            self.access = Access::Write;
        }
        self.calls.extend(other.calls);
        self.targets.extend(other.targets);
        self.names.extend(other.names);
        self.stored_code |= self.names.len() + self.calls.len() + self.targets.len() > NAMES_MAX;
        self
    }

    /// Its size in bytes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        let snapshot = match &self.snapshot {
            Snapshot::Reading(name) => Some(name),
            Snapshot::Unknown | Snapshot::AtOnce => None,
        };
        let names = self.names.iter().chain(&self.targets).chain(snapshot).chain(&self.creates).chain(&self.drops);
        let names: usize = names.map(|(schema, name)| 96 + schema.as_ref().map_or(0, |s| s.len()) + name.len()).sum();
        // Lists grow to twice their length.
        2 * (names + self.calls.iter().map(|call| 64 + call.len()).sum::<usize>())
    }

    /// Whether it may run stored code: functions, procedures, triggers. `pure`: a view only reads.
    pub(crate) fn runs_stored_code(
        &self,
        catalog: &Catalog,
        schemas: &[Arc<str>],
        pure: impl Fn(&Arc<Table>) -> bool,
    ) -> bool {
        let plain = |table: &Table| matches!(table.kind, RelationKind::Table | RelationKind::NotLogged);
        let writable = |table: &Arc<Table>| plain(table) && !table.runs_code;
        // An unknown name is a column or an alias.
        let harmless = |name: &Name| {
            resolve(catalog, schemas, name).is_none_or(|table| match table.kind {
                _ if self.access == Access::Write => writable(table),
                RelationKind::View => pure(table),
                _ => true,
            })
        };
        let writable = |name: &Name| resolve(catalog, schemas, name).is_some_and(writable);
        self.stored_code
            || self.calls.iter().any(|name| catalog.user_functions.contains(name))
            || !self.targets.iter().all(writable)
            || !self.names.iter().all(harmless)
    }

    /// The table that it writes to, and those that foreign keys change with it. None if it may write to other tables that it names.
    pub(crate) fn written(&self, catalog: &Catalog, schemas: &[Arc<str>]) -> Option<Vec<TableId>> {
        let [target] = self.targets.as_slice() else { return None };
        let table = resolve(catalog, schemas, target).filter(|_| self.access == Access::Read)?;
        // Other engines may write to tables of another server, or of this one over another connection.
        if table.kind != RelationKind::Table {
            return None;
        }
        let cascade = catalog.cascades.get(&table.id);
        let changed = cascade.into_iter().flat_map(|cascade| &cascade.tables).copied();
        Some(std::iter::once(table.id).chain(changed).collect())
    }
}

/// Whether an opening parenthesis follows.
fn is_called(tokens: &[Token<'_>], at: usize) -> bool {
    tokens.get(at + 1).is_some_and(|token| token.kind == Kind::Symbol(b'('))
}

/// The relation of a name.
pub(crate) fn resolve<'a>(catalog: &'a Catalog, schemas: &[Arc<str>], (schema, name): &Name) -> Option<&'a Arc<Table>> {
    match schema {
        Some(schema) => catalog.in_schema(schema, name),
        None => catalog.resolve(schemas.iter().map(|schema| &**schema), name),
    }
}

fn push<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if list.len() <= NAMES_MAX && !list.contains(&item) {
        list.push(item);
    }
}

/// The name of a token.
pub(crate) fn unquoted(token: &Token<'_>) -> Box<str> {
    match token.text.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
        Some(name) => name.replace("``", "`").into(),
        None => token.text.into(),
    }
}

/// `@@warning_count` and the like.
fn reads_counts(variable: &str) -> bool {
    let lower = variable.to_ascii_lowercase();
    lower.ends_with("warning_count") || lower.ends_with("error_count")
}
