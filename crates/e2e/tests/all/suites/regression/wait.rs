//! Waits until Freshet could cache reads.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::support::{Message, Pair, RawClient, pace};

/// How long one table is awaited at most.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits, outside transactions, for the tables that reads name.
pub(super) struct Wait {
    /// A direct connection: it says which relations others see.
    direct: RawClient,
    /// What was awaited in vain.
    lost: HashSet<Vec<u8>>,
}

impl Wait {
    /// None without a Freshet.
    pub(super) fn new(pair: &Pair) -> Result<Option<Self>> {
        let wait = || Ok(Self { direct: pair.database.connect()?, lost: HashSet::new() });
        pair.freshet.is_there().then(wait).transpose()
    }

    /// Waits until Freshet knows the tables, and publishes those that were read before.
    pub(super) fn for_tables(&mut self, client: &mut RawClient, reads: &[String], asked: bool) -> Result<()> {
        for sql in reads {
            let begun = Instant::now();
            loop {
                let answer = client.query(&format!("explain cache {sql}"))?;
                let in_transaction = answer.last().is_none_or(|ready| ready.body != b"I");
                let Some(missing) = self.missing(&answer, asked)?.filter(|_| !in_transaction) else { break };
                if begun.elapsed() > WAIT_MAX {
                    self.lost.insert(missing);
                } else {
                    pace(Duration::from_millis(5));
                }
            }
        }
        Ok(())
    }

    /// What `EXPLAIN CACHE` says of a table that is new to Freshet.
    fn missing(&mut self, answer: &[Message], asked: bool) -> Result<Option<Vec<u8>>> {
        for row in answer.iter().filter(|message| message.tag == b'D') {
            let value = row.columns().pop().flatten().unwrap_or_default();
            let unpublished = asked && value.ends_with(b"(not published yet)");
            let awaited = unpublished || value.ends_with(b"is being read again") || self.ask_if_new(&value)?;
            if awaited && !self.lost.contains(&value) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Whether it says that a relation is not known that others see.
    fn ask_if_new(&mut self, value: &[u8]) -> Result<bool> {
        let value = String::from_utf8_lossy(value);
        let name = value.strip_suffix(" is not known").and_then(|value| value.rsplit_once("relation "));
        let Some((_, name)) = name else { return Ok(false) };
        let name = name.rsplit_once('.').map_or(name, |(_, name)| name).replace('\'', "''");
        let seen = format!("select count(*) from pg_class where relname = '{name}' and relpersistence <> 't'");
        Ok(self.direct.value(&seen)? != "0")
    }
}
