//! Statements that a rule refuses.
//!
//! An error within a transaction block must fail the block, and the errors of a pipeline come in its order. So the server itself raises the
//! error, for a statement that is sent in the place of the refused one.

use std::fmt::Write as _;
use std::sync::Arc;

use freshet_types::Reason;
use freshet_wire::postgres::frontend::{self, Bind, Parse};

use crate::postgres::session::Session;
use crate::postgres::session::batch::Group;
use crate::postgres::session::client::{Nature, Step};
use crate::statement::registry::Statement;

impl Session {
    pub(crate) fn is_refused(&self, statement: &Statement) -> bool {
        self.shared.rules.refuses(statement.query.subject(), &self.server.who())
    }

    /// What becomes of a batch that passes, if a rule refuses one of its statements. `leading`: what it closes before.
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

    /// Sends a `Query` that raises the error, in the place of a `Query` or of a batch up to its `Sync`; None: no rule refuses the statement. To the
    /// session it is the statement, which fails.
    pub(crate) fn refuse_by_rule(&mut self, statement: &Arc<Statement>) -> Option<Step> {
        let message = self.shared.rules.refusal(statement.query.subject(), &self.server.who())?;
        let mut query = Vec::with_capacity(2 * message.len() + 256);
        frontend::put_query(&mut query, raising(&message).as_bytes());
        let nature = Nature { refusal: Some(Reason::Refused), ..self.nature(Some(statement)) };
        Some(self.pass_query(&query, Some(statement), &nature, &Reason::Refused))
    }

    /// A `Parse` that fails, in the place of a message of a batch that is forwarded message by message; None: no rule refuses its statement.
    pub(crate) fn refusal_in_batch(&self, tag: u8, message: &[u8]) -> Option<Vec<u8>> {
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
        let message = self.shared.rules.refusal(statement.query.subject(), &self.server.who())?;
        let mut parse = Vec::with_capacity(message.len() + 64);
        frontend::put_parse(&mut parse, b"", failing(&message).as_bytes());
        Some(parse)
    }
}

/// A statement that raises an error with this message.
fn raising(message: &str) -> String {
    // No quote or backslash of the message ends the texts that it is in, whatever the settings are.
    let mut bytes = String::with_capacity(2 * message.len());
    for byte in message.bytes() {
        _ = write!(bytes, "{byte:02x}");
    }
    format!(
        "DO LANGUAGE plpgsql 'BEGIN RAISE EXCEPTION USING ERRCODE = ''42501'', MESSAGE = \
         pg_catalog.convert_from(pg_catalog.decode(''{bytes}'', ''hex''), ''UTF8''); END'"
    )
}

/// A statement that the server cannot prepare, for a reason that names the message.
fn failing(message: &str) -> String {
    format!("SELECT pg_catalog.int4 '{}'", message.replace('\\', "/").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_within_their_texts() {
        assert!(raising("it's").contains("decode(''69742773'', ''hex'')"));
        assert_eq!(failing("it's \\"), "SELECT pg_catalog.int4 'it''s /'");
    }
}
