//! User-defined code that a statement may run: functions, operators, and types with effects.

use std::sync::Arc;

use freshet_types::{Catalog, Columns, Reason, Table, TypeEffect};

use crate::allowlist::type_effects::MADE_FROM;
use crate::allowlist::visitor::Findings;
use crate::statement::effect::Effect;
use crate::statement::template::Template;

impl Template {
    /// Whether its functions, operators and types may run user-defined code, whatever the search path.
    pub fn may_run_code(&self, catalog: &Catalog) -> bool {
        user_defined(catalog, &self.findings).is_err() || runs_code(catalog, &self.findings, &[])
    }

    /// Whether code may run when its constants are read, at `Parse`, whatever the search path is: it names a type of such code, or something
    /// that gives its type to a constant. The text of any statement but a query may do so: a column that it writes to, an argument of CALL, a query
    /// that it explains.
    pub fn may_read_by_code(&self, catalog: &Catalog) -> bool {
        if self.findings.handled.names_new_type(catalog) {
            return true;
        }
        let mut effects = catalog.type_effects.iter().filter(|effect| !effect.names.is_empty()).peekable();
        effects.peek().is_some() && {
            let handled = self.findings.handled();
            let is_no_query = matches!(self.effect, Effect::Write | Effect::Definition | Effect::Forgets);
            is_no_query || handled.may_give_type() || effects.any(|effect| handled.names_code(effect))
        }
    }

    /// An error if reading a parameter of a declared type may run code, whatever the statement does. `types`: four bytes each, as in `Parse`.
    pub fn refuse_declared(&self, catalog: &Catalog, types: &[u8]) -> Result<(), Reason> {
        let (declared, _) = types.as_chunks();
        for oid in declared.iter().map(|oid| u32::from_be_bytes(*oid)).filter(|oid| *oid >= MADE_FROM) {
            if !catalog.types.is_empty() && !catalog.types.contains(&oid) {
                return Err(NOT_KNOWN);
            }
            let runs = |effect: &&Arc<TypeEffect>| !effect.names.is_empty() && effect.types.contains(&oid);
            if let Some(effect) = catalog.type_effects.iter().find(runs) {
                return Err(effect.reason.clone());
            }
        }
        Ok(())
    }
}

const NOT_KNOWN: Reason = Reason::Construct(
    "a parameter of a type that is not known, as those of tables' rows and those that have just been made",
);

/// Whether a statement over these relations may run user-defined code of a type.
pub(crate) fn runs_code(catalog: &Catalog, findings: &Findings, relations: &[Arc<Table>]) -> bool {
    if findings.handled.calls_by_row(catalog, relations) || findings.handled.names_new_type(catalog) {
        return true;
    }
    let mut effects = catalog.type_effects.iter().filter(|effect| effect.runs_code).peekable();
    if effects.peek().is_none() {
        return false;
    }
    let handled = findings.handled();
    let read = |effect: &TypeEffect| relations.iter().any(|relation| handled.reads(effect, relation, &Columns::All));
    effects.any(|effect| handled.asks_for(effect) && (handled.makes(effect) || read(effect)))
}

/// An error if a function or operator in the text may be user-defined.
pub(crate) fn user_defined(catalog: &Catalog, findings: &Findings) -> Result<(), Reason> {
    let function = findings.functions.iter().find(|name| catalog.user_functions.contains(name.as_str()));
    let operator = || findings.operators.iter().find(|symbol| catalog.user_operators.contains(symbol.as_str()));
    match function.or_else(operator) {
        Some(name) => Err(Reason::UserDefined(name.as_str().into())),
        None => Ok(()),
    }
}
