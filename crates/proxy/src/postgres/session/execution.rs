//! One execution of a statement: its key and its parameters.

use std::sync::Arc;

use freshet_cache::Entry;
use freshet_sql::{Parameter, ParameterValue};
use freshet_types::Reason;
use freshet_wire::postgres::frontend::{Bind, Parse};

use crate::postgres::session::batch::Describe;
use crate::session::body::Body;
use crate::session::lookup::Decision;
use crate::statement::registry::Statement;

/// What a look-up comes to.
pub(crate) type Found = Decision<Arc<Entry<Body>>, (), ()>;

/// One execution: all that its key and its parameters are made of.
#[derive(Clone, Copy)]
pub(crate) enum Execution<'a> {
    /// A `Query` with this text.
    Query(&'a [u8]),
    /// A bound statement.
    Bound {
        /// The statement.
        statement: &'a Statement,
        /// `Bind` behind the names.
        tail: &'a [u8],
        /// What describes it.
        describe: Describe,
        /// The most rows; 0 for all.
        rows_max: u32,
    },
}

/// Writes the full key: all that decides the answer's bytes. Entries are compared by it, never by a hash alone.
pub(crate) fn write_key(key: &mut Vec<u8>, context: u32, execution: Execution<'_>) {
    key.clear();
    key.extend_from_slice(&context.to_le_bytes());
    match execution {
        Execution::Query(text) => {
            key.push(b'Q');
            key.extend_from_slice(text);
        }
        Execution::Bound { statement, tail, describe, rows_max } => {
            key.push(match describe {
                Describe::Nothing => b'E',
                Describe::Portal => b'D',
                Describe::Statement => b'S',
            });
            key.extend_from_slice(&statement.id.to_le_bytes());
            key.extend_from_slice(&rows_max.to_le_bytes());
            key.extend_from_slice(tail);
        }
    }
}

/// The statement's own parameters, then the literals of its text.
pub(crate) fn parameters<'a>(statement: &'a Statement, execution: Execution<'a>) -> Result<Vec<Parameter<'a>>, Reason> {
    let bound = match execution {
        Execution::Query(_) => Vec::new(),
        Execution::Bound { tail, .. } => Bind::parameters(tail).map_err(|_| Reason::MessageShape)?,
    };
    let own_params = usize::from(statement.own_params);
    if bound.len() < own_params {
        return Err(Reason::MessageShape); // the server will complain
    }
    let own = bound.into_iter().take(own_params).enumerate().map(|(at, value)| Parameter {
        value: match value {
            None => ParameterValue::Null,
            Some(bound) if bound.binary => ParameterValue::Binary(bound.bytes),
            Some(bound) => ParameterValue::Text(bound.bytes),
        },
        declared_type: Parse::type_oid(&statement.types, at),
    });
    let literals = statement
        .literals
        .iter()
        .map(|literal| Parameter { value: ParameterValue::Literal(literal), declared_type: 0 });
    Ok(own.chain(literals).collect())
}
