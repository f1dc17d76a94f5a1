//! Executions that read settings by name: see [`crate::postgres::named`].

use freshet_sql::{Literal, LiteralKind, Parameter, ParameterValue};
use freshet_types::Reason;

use crate::postgres::question::is_keyed;
use crate::postgres::session::execution::{Execution, parameters, write_key};
use crate::postgres::session::unit::Ask;
use crate::postgres::session::{Known, Session};
use crate::statement::registry::Statement;

impl Session {
    /// The key of an execution of a known statement. If the statement reads settings by name, the key has another tag, and ends with a hash of their
    /// values and the number of bytes before it.
    pub(crate) fn write_key(&mut self, context: u32, statement: &Statement, execution: Execution<'_>) {
        write_key(&mut self.key, context, execution);
        if statement.query.template.settings().is_empty() {
            return;
        }
        if let Some(tag) = self.key.get_mut(size_of::<u32>()) {
            tag.make_ascii_lowercase();
        }
        let before = self.key.len();
        let params = parameters(statement, execution).unwrap_or_default();
        for number in statement.query.template.settings() {
            let place = name_of(&params, *number).and_then(|name| self.shared.named.find(name));
            let value =
                place.and_then(|place| self.server.settings.named.as_deref()?.split(|byte| *byte == b' ').nth(place));
            // Without it nothing is filled.
            self.key.extend_from_slice(value.unwrap_or(b"?"));
            self.key.push(b' ');
        }
        let bytes = (self.key.len() - before) as u64;
        self.key.extend_from_slice(&bytes.to_le_bytes());
    }

    /// The query for the context has failed, perhaps because of these settings.
    pub(super) fn note_named_failed(&self, ask: Ask) {
        if self.server.own.named > 0 && matches!(ask, Ask::Context | Ask::EndAndContext { .. }) {
            self.shared.named.failed();
        }
    }

    /// Err if the session has not read the settings that a statement reads by name: it reads them next.
    pub(crate) fn need_named(&mut self, statement: &Statement, execution: Execution<'_>) -> Result<(), Reason> {
        if statement.query.template.settings().is_empty() || self.knows_named(statement, execution)? {
            return Ok(());
        }
        self.settings_may_change();
        Err(Reason::SettingsUnknown)
    }

    /// Whether the session has read the settings that a statement reads by name. Err if it never does.
    fn knows_named(&self, statement: &Statement, execution: Execution<'_>) -> Result<bool, Reason> {
        let known = self.server.settings.named.as_deref().map_or(0, |named| named.split(|byte| *byte == b' ').count());
        let params = parameters(statement, execution)?;
        let mut all = true;
        for number in statement.query.template.settings() {
            let name = name_of(&params, *number).ok_or(NO_CONSTANT)?;
            if !is_keyed(name) {
                all &= self.shared.named.place(name).ok_or(NOT_ASKED_FOR)? < known;
            } else if !matches!(&self.server.settings.known, Known::Context(context, _) if context.client.utf8) {
                return Err(NOT_ASKED_FOR); // the key has characters, not bytes
            }
        }
        Ok(all)
    }
}

/// The setting's name, if a constant of the text gives it.
fn name_of<'v>(params: &[Parameter<'v>], number: u32) -> Option<&'v str> {
    match params.get((number as usize).wrapping_sub(1))?.value {
        ParameterValue::Literal(Literal { kind: LiteralKind::String, text }) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

const NO_CONSTANT: Reason = Reason::Construct("current_setting() of a name that is not a constant of the text");
const NOT_ASKED_FOR: Reason = Reason::Construct(
    "current_setting() of a setting that is not part of the key (one with a dot in its name is, the first 16 of them)",
);
