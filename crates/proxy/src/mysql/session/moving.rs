//! Executions whose limits have moved: see [`crate::session::moving`].

use std::sync::Arc;

use freshet_sql::Client;
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::response::Kind;
use freshet_wire::mysql::result::Form;
use freshet_wire::mysql::rows::Rows;
use freshet_wire::mysql::statement::{Bound, Value};

use crate::mysql::session::Session;
use crate::mysql::session::execution::{Execution, Found, parameters};
use crate::mysql::session::known::{Allowed, Known};
use crate::mysql::session::shown::fields;
use crate::session::lookup::{self, Decision};
use crate::session::moving::{Limits, Reached, put_text};
use crate::statement::registry::Statement;

/// The moving limits of a fill, and how its answer will be written.
#[derive(Debug)]
pub(crate) struct Moving {
    limits: Limits,
    entry: Arc<[u8]>,
    form: Form,
}

impl Moving {
    /// `entry`: the key of the new entry.
    pub(crate) fn of(limits: Limits, execution: Execution<'_>, entry: &[u8]) -> Self {
        let form = if matches!(execution, Execution::Text(_)) { Form::Text } else { Form::Binary };
        Self { limits, entry: entry.into(), form }
    }

    /// The range of limits for which the whole answer is the same.
    pub(crate) fn reached(self, frames: &[u8], capabilities: Capabilities) -> Option<Box<Reached>> {
        let answer = Rows::of(frames, capabilities, self.form).ok()?;
        let rows = answer.packets().iter().map(|row| answer.values(row).ok()).collect::<Option<Vec<_>>>()?;
        self.limits.reached(self.entry, rows.iter(), |row| fields(row))
    }
}

/// Writes the part of the key that does not depend on the parameters with these numbers.
fn write_key(
    key: &mut Vec<u8>,
    numbers: &[u32],
    statement: &Statement,
    (execution, bound): (Execution<'_>, Option<&Bound<'_>>),
) -> Option<()> {
    if matches!(execution, Execution::Text(_)) {
        key.push(b'Q');
        return put_text(key, statement, numbers);
    }
    let bound = bound?;
    let is_own = |number: &u32| *number <= u32::from(statement.own_params);
    if numbers.iter().all(is_own) {
        key.push(b'n');
        key.extend_from_slice(&statement.id.to_le_bytes());
    } else {
        key.push(b't');
        put_text(key, statement, numbers)?;
    }
    let mut put = |kind: u8, bytes: &[u8]| {
        key.push(kind);
        key.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        key.extend_from_slice(bytes);
    };
    put(b'T', &bound.types);
    for (value, number) in bound.values.iter().zip(1..) {
        match value {
            _ if numbers.contains(&number) => put(b'M', &[]),
            Value::Null => put(b'0', &[]),
            Value::Integer(integer) => put(b'1', &integer.to_le_bytes()),
            Value::Text(text) => put(b'2', text),
            Value::Opaque(bytes) => put(b'3', bytes),
        }
    }
    Some(())
}

impl Session {
    /// Looks up an execution that has missed: there may be an entry that differs only in its moving limits.
    pub(crate) async fn find_moved(
        &mut self,
        statement: &Statement,
        execution: (Execution<'_>, Option<&Bound<'_>>),
        (packet, kind): (&[u8], Kind),
        missed: Found,
    ) -> Found {
        if !statement.query.moves() {
            return missed;
        }
        let (mut due, own) = (None, self.key.clone());
        loop {
            let generation = self.shared.waits.generation();
            match self.look_up_moved(statement, execution, &own) {
                Decision::Hit(entry) => return self.answer_found(&entry, packet, kind),
                Decision::Fill(()) => return missed,
                Decision::Pass(reason) => {
                    due = self.worth_waiting_until(&reason, due);
                    let Some(due) = due else { return Decision::Pass(reason) };
                    if !self.wait_for_position(generation, due).await {
                        return Decision::Pass(reason);
                    }
                }
            }
        }
    }

    /// `own`: the key that missed.
    fn look_up_moved(
        &mut self,
        statement: &Statement,
        execution: (Execution<'_>, Option<&Bound<'_>>),
        own: &[u8],
    ) -> lookup::Found {
        if !matches!(self.allowed(), Allowed::Cache(_)) {
            return Decision::Fill(());
        }
        match self.set_snapshot() {
            Err(reason) => return Decision::Pass(reason),
            Ok(false) => return Decision::Fill(()),
            Ok(true) => {}
        }
        let Some(Limits { key, at, .. }) = self.limits_of(statement, execution) else { return Decision::Fill(()) };
        let Some(entry) = self.shared.latest.entry(&key).filter(|entry| **entry != *own) else {
            return Decision::Fill(()); // or the entry was found and must not be used
        };
        self.key.clear();
        self.key.extend_from_slice(&entry);
        self.look_up_key(|body| body.reached.as_ref().is_some_and(|reached| reached.covers(&at)))
    }

    /// The moving limits of an execution, if its statement is known to have any.
    pub(crate) fn limits_of(
        &self,
        statement: &Statement,
        execution: (Execution<'_>, Option<&Bound<'_>>),
    ) -> Option<Limits> {
        if !statement.query.moves() {
            return None;
        }
        let Known::Context(context, known_under) = &self.server.settings.known else { return None };
        let catalog = self.shared.catalog.load();
        let Client { utf8, raw, .. } = context.client;
        if catalog.version != *known_under || !(utf8 || raw || statement.ascii) {
            return None;
        }
        let read_set = statement.query.moving(&catalog, context)?;
        let params = parameters(statement, execution.1).ok()?;
        Limits::of(&read_set, &params, context, |key, numbers| {
            key.push(self.server.shaping);
            write_key(key, numbers, statement, execution)
        })
    }
}
