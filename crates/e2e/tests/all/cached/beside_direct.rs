//! Reads through Freshet whose answers are compared with those of the server itself.

use anyhow::{Result, ensure};

use crate::support::frames::{bind_text, describe_portal, execute, parse, query, sync};
use crate::support::{PATIENCE, Pair, RawClient, eventually};

/// The reads, as messages.
pub(super) struct Reads(Vec<(String, Vec<u8>)>);

impl Reads {
    /// Simple queries, and statements with a text for their one parameter.
    pub(super) fn new(simple: &[&str], bound: &[(&str, &str)]) -> Self {
        let simple = simple.iter().map(|sql| ((*sql).to_owned(), query(sql)));
        let bound = bound.iter().map(|(sql, value)| {
            let messages = [parse("", sql), bind_text("", "", &[value]), describe_portal(""), execute("", 0), sync()];
            (format!("{sql} ({value})"), messages.concat())
        });
        Self(simple.chain(bound).collect())
    }

    /// Reads of one session hit in another, with the server's answer.
    pub(super) fn all_hit(&self, pair: &Pair) -> Result<()> {
        let (mut c, mut other, mut direct) = (pair.connect()?, pair.connect()?, pair.database.connect()?);
        for (what, read) in &self.0 {
            let (got, expected) = eventually(PATIENCE, || {
                c.exchange(read, 1)?;
                let before = pair.freshet.metrics()?;
                let got = other.exchange(read, 1)?;
                let after = pair.freshet.metrics()?;
                let hits = after.hits() > before.hits() || !pair.freshet.is_there();
                ensure!(hits, "{what} does not hit: {:?}", after.passed_since(&before));
                Ok((got, direct.exchange(read, 1)?))
            })?;
            ensure!(expected == got, "{what}:\n  expected {expected:?}\n  got {got:?}");
        }
        Ok(())
    }

    /// Each answer is the server's own, or its error.
    pub(super) fn same(&self, pair: &Pair, c: &mut RawClient, after: &str) -> Result<()> {
        let mut direct = pair.database.connect()?;
        for (what, read) in &self.0 {
            let (expected, got) = (direct.exchange(read, 1)?, c.exchange(read, 1)?);
            ensure!(expected == got, "{what} after {after}:\n  expected {expected:?}\n  got {got:?}");
        }
        Ok(())
    }
}
