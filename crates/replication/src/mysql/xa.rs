//! MariaDB: when the commit of a prepared transaction is visible.
//!
//! Everything in the binlog up to `binlog_snapshot_position` is visible, with one exception: XA COMMIT is logged in a group of its own, and the
//! storage engine commits after it, outside the order of the log. Measured on 10.11 with twelve writers: in 1 of 2,995 readings, a query sent after
//! the reading did not see a commit before it. (MySQL adds to `gtid_executed` after the engine's commit.)
//!
//! But XA RECOVER lists a transaction until the engine has committed it. So
//!
//! - a new stream waits until all transactions have ended that were listed directly after its start position was read: one of them may have been
//!   logged before the start, and become visible later. PostgreSQL's slots wait for prepared transactions as well;
//! - an XA COMMIT in the stream waits until its transaction is no longer listed. Then visibility proofs name it by a position behind the log end:
//!   earlier readings do not include it, and later ones are right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Client, Error, Upstream, identity};
use freshet_types::{CommitId, Lsn};
use tokio::time::{Instant, sleep, timeout};

use crate::Identity;
use crate::error::Fault;
use crate::mysql::QUERY_TIMEOUT;
use crate::mysql::position::Place;

/// Pause between two polls.
const POLL: Duration = Duration::from_millis(1);
/// Longest such pause.
const POLL_MAX: Duration = Duration::from_millis(250);
/// A longer wait is reported.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// The prepared transactions: their names in the form of the binlog, and in that of XA ROLLBACK.
type Prepared = BTreeMap<Vec<u8>, String>;

async fn listed(client: &mut Client) -> Result<Prepared, Fault> {
    let rows = client.query_timeout("XA RECOVER FORMAT='SQL'", QUERY_TIMEOUT).await?;
    let names = |row: &Vec<Option<String>>| match row.as_slice() {
        [Some(format), Some(global), Some(branch), Some(listed)] => {
            let name = name(format, global.parse().ok()?, branch.parse().ok()?, listed)?;
            Some((name.into_bytes(), listed.clone()))
        }
        _ => None,
    };
    rows.iter().map(|row| names(row).ok_or(Fault::Answer("XA RECOVER"))).collect()
}

/// The binlog's form of a listed name, from its format, the lengths of its two parts and the parts. The list has `'a','b',7` or, with special
/// characters, `X'27',X'62',7`, and may omit an empty second part. The binlog always has the complete second form.
fn name(format: &str, global: usize, branch: usize, listed: &str) -> Option<String> {
    let (open, digits) = if listed.starts_with('X') { ("X'", 2) } else { ("'", 1) };
    let rest = listed.strip_prefix(open)?;
    let first = rest.get(..global * digits)?;
    let second = if branch == 0 {
        ""
    } else {
        let rest = rest.get(global * digits..)?.strip_prefix("',")?.strip_prefix(open)?;
        rest.get(..branch * digits)?
    };
    let hex = |part: &str| match digits {
        1 => part
            .bytes()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect(),
        _ => part.to_owned(),
    };
    Some(format!("X'{}',X'{}',{format}", hex(first), hex(second)))
}

/// Waits until all transactions have ended that are prepared now. `told` is called with the reason if it takes long, and again with a new reason.
pub(super) async fn wait_for_prepared(client: &mut Client, told: &(dyn Fn(&str) + Sync)) -> Result<(), Fault> {
    let mut left = listed(client).await?;
    let (mut pause, began, mut last) = (POLL, Instant::now(), String::new());
    while !left.is_empty() {
        let why = waits_for(&left);
        if why != last && began.elapsed() > TELL_AFTER {
            told(&why);
            last = why;
        }
        sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
        let now = listed(client).await?;
        left.retain(|name, _| now.contains_key(name));
    }
    Ok(())
}

fn waits_for(prepared: &Prepared) -> String {
    let first = prepared.values().next().map_or("", String::as_str);
    let which = match prepared.len() {
        1 => format!("the prepared transaction {first}"),
        count => format!("{count} prepared transactions, such as {first},"),
    };
    format!("the change stream waits for {which} to end; XA RECOVER lists them, XA COMMIT or XA ROLLBACK ends them")
}

/// Detects when commits of prepared transactions are visible, on a connection of its own.
pub(super) struct Watch {
    upstream: Arc<Upstream>,
    identity: Identity,
    client: Option<Client>,
    /// Longest wait for one commit.
    wait_max: Duration,
}

impl Watch {
    /// Polls the server that the stream comes from.
    pub(super) fn new(upstream: Arc<Upstream>, identity: Identity, wait_max: Duration) -> Self {
        Self { upstream, identity, client: None, wait_max }
    }

    /// Waits until the commit of this transaction is visible; returns its name for visibility proofs.
    pub(super) async fn visible(&mut self, xid: &[u8]) -> Result<CommitId, Fault> {
        let limit = self.wait_max;
        timeout(limit, self.wait(xid)).await.unwrap_or(Err(Error::Timeout(limit).into()))
    }

    async fn wait(&mut self, xid: &[u8]) -> Result<CommitId, Fault> {
        // Stored again only after success.
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect().await?,
        };
        let mut pause = POLL;
        while listed(&mut client).await?.contains_key(xid) {
            sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
        let rows = client.query_timeout("SHOW MASTER STATUS", QUERY_TIMEOUT).await?;
        let Some([Some(file), Some(offset), ..]) = rows.first().map(Vec::as_slice) else {
            return Err(Fault::Answer("SHOW MASTER STATUS"));
        };
        let place = offset.parse().ok().and_then(|offset| Place::new(file.as_bytes(), offset));
        let end = place.and_then(|place| place.lsn()).ok_or(Fault::Answer("SHOW MASTER STATUS"))?;
        self.client = Some(client);
        Ok(CommitId::Position(Lsn(end.0 + 1)))
    }

    async fn connect(&self) -> Result<Client, Fault> {
        let mut client = Client::connect(&self.upstream).await?;
        let run = identity::ask(&mut client, QUERY_TIMEOUT).await?.ok_or(Fault::Answer("the server's identity"))?;
        let same = run.server == self.identity.system_id && run.start == self.identity.postmaster_start;
        if same { Ok(client) } else { Err(Fault::OtherServer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_binlog() {
        for (format, global, branch, listed, expected) in [
            ("1", 1, 0, "'a'", "X'61',X'',1"),
            ("1", 2, 1, "'a,','b'", "X'612c',X'62',1"),
            ("7", 1, 0, "'a','',7", "X'61',X'',7"),
            ("3", 3, 1, "X'622771',X'78',3", "X'622771',X'78',3"),
            ("1", 2, 0, "X'ff01'", "X'ff01',X'',1"),
        ] {
            assert_eq!(name(format, global, branch, listed).as_deref(), Some(expected));
        }
        assert_eq!((name("1", 2, 0, "'"), name("1", 1, 1, "'a'")), (None, None));
    }

    #[test]
    fn what_is_waited_for_is_named() {
        let mut prepared = Prepared::from([(b"X'6132',X'',1".to_vec(), "'a2'".to_owned())]);
        let is_said = |prepared: &Prepared, said: &str| waits_for(prepared).contains(said);
        assert!(is_said(&prepared, "waits for the prepared transaction 'a2' to end"));
        prepared.insert(b"X'6131',X'62',7".to_vec(), "'a1','b',7".to_owned());
        assert!(is_said(&prepared, "waits for 2 prepared transactions, such as 'a1','b',7, to end"));
    }
}
