//! Statements that a rule refuses, and sessions that get no connection.
//!
//! An error within a transaction block must fail the block, and the errors of a pipeline come in its order. So the server itself raises the
//! error, for a statement that is sent in the place of the refused one. A `Parse` can fail by errors of the server's choice only, so the one that
//! comes of it is replaced on its way to the client.

use std::fmt::Write as _;
use std::sync::Arc;

use freshet_net::postgres::ConnectError;
use freshet_types::Reason;
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frontend::{self, Bind, Parse};

use crate::postgres::pooling::NotObtained;
use crate::postgres::session::Session;
use crate::postgres::session::batch::Group;
use crate::postgres::session::client::{Nature, Step};
use crate::postgres::session::unit::Unit;
use crate::statement::registry::Statement;

impl Session {
    /// The client is told why it gets no connection.
    pub(super) fn refuse(&mut self, error: &NotObtained) {
        let out = self.client.output();
        match error {
            NotObtained::WaitTimeout => backend::put_error(out, "FATAL", "08P01", "query_wait_timeout"),
            NotObtained::Connect(ConnectError::Refused(error)) => {
                backend::put_message(out, backend::ERROR, &error.body);
            }
            error @ (NotObtained::OtherSettings | NotObtained::NameRefused | NotObtained::SettingRefused) => {
                backend::put_error(out, "FATAL", "57P01", &error.to_string());
            }
            error => {
                tracing::debug!(%error, "a session gets no server connection");
                backend::put_error(out, "FATAL", "08006", "Freshet cannot reach the database");
            }
        }
    }

    pub(crate) fn is_refused(&self, statement: &Statement) -> bool {
        self.shared.rules.refuses(statement.subject(), &self.server.who())
    }

    /// Why a batch that is to be filled is not sent, if it is not: a rule refuses a statement, or there is no server connection yet, or its names
    /// are not known.
    pub(crate) fn holds_back(&mut self, statements: &[Arc<Statement>]) -> Option<Result<Step, Reason>> {
        if statements.iter().any(|statement| self.is_refused(statement)) {
            return Some(Err(Reason::Refused));
        }
        if let [statement] = statements
            && self.may_read_ahead(statement)
            && let Some(reason) = self.misses_ahead(statement)
        {
            return Some(Err(reason)); // a replica may answer it
        }
        (!self.get_connection() || self.awaits_names(false)).then_some(Ok(Step::Wait))
    }

    /// Handles a batch that passes, if a rule refuses one of its statements. `leading`: the statements that it closes before.
    pub(crate) fn refuse_batch(&mut self, groups: &[Group<'_>], leading: Option<&[u8]>) -> Option<Step> {
        if self.shared.rules.generation() == 0 {
            return None;
        }
        let statement = |group: &Group<'_>| match &group.parse {
            Some((parse, _)) => self.statement(parse.query, parse.types).ok(),
            None => self.server.statements.remembered(group.bind.statement).map(|prepared| prepared.statement.clone()),
        };
        let statements: Vec<Arc<Statement>> = groups.iter().filter_map(statement).collect();
        let statement = statements.iter().find(|statement| self.is_refused(statement))?;
        match leading {
            Some(leading) => Some(self.send_lead(leading)),
            None => self.refuse_by_rule(statement),
        }
    }

    /// Sends a `Query` that raises the error, in place of a `Query` or of a batch up to its `Sync`; None: no rule refuses the statement. The session
    /// treats it as the statement, which fails.
    pub(crate) fn refuse_by_rule(&mut self, statement: &Arc<Statement>) -> Option<Step> {
        let message = self.shared.rules.refusal(statement.subject(), &self.server.who())?;
        let mut query = Vec::with_capacity(2 * message.len() + 256);
        frontend::put_query(&mut query, raising(&message).as_bytes());
        let nature = Nature { refusal: Some(Reason::Refused), ..self.nature(Some(statement)) };
        Some(self.pass_query(&query, Some(statement), &nature, &Reason::Refused))
    }

    /// The message of the rule that refuses the statement of a message of a batch that is forwarded message by message.
    pub(crate) fn refusal_in_batch(&self, tag: u8, message: &[u8]) -> Option<String> {
        let statement = match tag {
            frontend::PARSE => {
                let parse = Parse::read(message).ok()?;
                self.statement(parse.query, parse.types).ok()?
            }
            frontend::BIND => {
                let name = Bind::read(message).ok()?.statement;
                self.server.statements.remembered(name)?.statement.clone()
            }
            _ => return None,
        };
        self.shared.rules.refusal(statement.subject(), &self.server.who())
    }

    /// Sends a `Parse` that fails in the place of such a message. As without the rule, only a `Parse` of the unnamed statement drops the one before.
    pub(crate) fn send_refused(&mut self, message: String, drops_unnamed: bool) {
        let unit = self.last_unit();
        unit.response.owe(1);
        unit.sent.begun = true;
        unit.refusal.get_or_insert_with(|| message.into()); // behind the first, the server skips the rest
        let name: &[u8] = if drops_unnamed { b"" } else { NAME };
        frontend::put_parse(self.server.output(), name, FAILS.as_bytes());
    }

    /// Whether the error that comes next may be that of [`Self::send_refused`].
    pub(crate) fn may_be_refused(&self) -> bool {
        matches!(self.pipeline.front(), Some(Unit::Client(unit)) if unit.refusal.is_some())
    }

    /// Answers an error of the server by the refusal that caused it; false: something else did.
    pub(crate) fn answer_refused(&mut self, error: &[u8]) -> bool {
        let Some(unit) = self.pipeline.front_mut().and_then(Unit::as_client) else { return false };
        let Some(message) = unit.refusal.take_if(|_| tells_refusal(error)) else { return false };
        backend::put_error(self.client.output(), "ERROR", "42501", &message);
        true
    }
}

/// The name of a statement that never exists.
const NAME: &[u8] = b"_freshet_refused";

/// A statement that the server cannot prepare. Its error has the constant.
const FAILS: &str = "SELECT pg_catalog.int4 'freshet: refused'";

/// Whether an error is that of [`FAILS`], in any language.
fn tells_refusal(error: &[u8]) -> bool {
    error.windows(TOLD.len()).any(|bytes| bytes == TOLD)
}

const TOLD: &[u8] = b"freshet: refused";

/// A statement that raises an error with this message.
fn raising(message: &str) -> String {
    // No quote or backslash of the message ends the string constants that contain it, whatever the settings are.
    let mut bytes = String::with_capacity(2 * message.len());
    for byte in message.bytes() {
        _ = write!(bytes, "{byte:02x}");
    }
    format!(
        "DO LANGUAGE plpgsql 'BEGIN RAISE EXCEPTION USING ERRCODE = ''42501'', MESSAGE = \
         pg_catalog.convert_from(pg_catalog.decode(''{bytes}'', ''hex''), ''UTF8''); END'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_within_their_texts() {
        assert!(raising("it's").contains("decode(''69742773'', ''hex'')"));
    }

    #[test]
    fn the_error_of_the_failing_statement_is_known() {
        assert!(FAILS.contains("freshet: refused"));
        assert!(tells_refusal(b"E...C22P02\0Minvalid input syntax for type integer: \"freshet: refused\"\0"));
        assert!(!tells_refusal(b"E...C22P02\0Minvalid input syntax for type integer: \"a\"\0"));
    }
}
