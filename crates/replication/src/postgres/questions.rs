//! Queries that both the stream and its slot need.

use std::time::Duration;

use freshet_net::postgres::{Client, Rows};

use crate::error::Fault;

/// Time limit of a catalogue query.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The run of the server that a connection leads to: [`Identity::run`].
const RUN_OF_SERVER: &str = "SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()), \
    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text";

/// The server run, in the form of [`Identity::run`].
pub(crate) async fn run_of_server(client: &mut Client) -> Result<(String, String), Fault> {
    let rows = client.query_timeout(RUN_OF_SERVER, QUERY_TIMEOUT).await?;
    let [Some(system_id), Some(start)] = one_row(&rows, "the server's identity")? else {
        return Err(Fault::Answer("the server's identity"));
    };
    Ok((system_id.clone(), start.clone()))
}

pub(crate) fn one_row<'a>(rows: &'a Rows, what: &'static str) -> Result<&'a [Option<String>], Fault> {
    match rows.as_slice() {
        [row] => Ok(row),
        _ => Err(Fault::Answer(what)),
    }
}
