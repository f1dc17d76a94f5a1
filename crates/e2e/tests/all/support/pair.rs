//! A database that is reached directly and through Freshet, and conversations that must be the same both ways.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::raw::{Login, Message, RawClient};
use super::{Database, Freshet, PATIENCE, Version, eventually, rest};

/// The database and the Freshet in front of it.
pub(crate) struct Pair {
    // Dropped first: a database cannot go while its slot is in use.
    pub(crate) freshet: Freshet,
    pub(crate) database: Database,
}

impl Pair {
    /// A database on the shared server with this schema.
    pub(crate) fn new(version: Version, schema: &str) -> Result<Self> {
        Self::over(Database::shared(version)?, schema, &[])
    }

    /// The same over any database, with options for `freshet serve`.
    pub(crate) fn over(database: Database, schema: &str, options: &[&str]) -> Result<Self> {
        database.run(schema)?;
        let freshet = Freshet::start(&database, options)?;
        Ok(Self { freshet, database })
    }

    /// The address of Freshet.
    pub(crate) fn address(&self) -> SocketAddr {
        self.freshet.address
    }

    pub(crate) fn login(&self) -> Login<'_> {
        self.database.login()
    }

    /// A connection of the superuser through Freshet.
    pub(crate) fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.address(), self.login())
    }

    /// The conversation is the same directly and through Freshet, twice.
    pub(crate) fn same(&self, conversation: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
        let direct = self.transcript(self.database.address(), &conversation).context("directly")?;
        for time in ["the first time", "the second time"] {
            let through = self.transcript(self.address(), &conversation).with_context(|| time.to_owned())?;
            ensure_same(&direct, &through).with_context(|| time.to_owned())?;
        }
        Ok(())
    }

    /// The conversation is the same directly and through Freshet, first without and then with at least this number of reads from the cache.
    pub(crate) fn same_with_hits(&self, hits: u64, conversation: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
        if !self.freshet.is_there() {
            return self.same(conversation);
        }
        let direct = self.transcript(self.database.address(), &conversation).context("directly")?;
        let through = self.transcript(self.address(), &conversation).context("the first time")?;
        ensure_same(&direct, &through).context("the first time")?;
        eventually(PATIENCE, || {
            let before = self.freshet.metrics()?;
            let through = self.transcript(self.address(), &conversation)?;
            // Another attempt does not remove a difference.
            ensure_same(&direct, &through).unwrap_or_else(|error| panic!("with hits: {error:#}"));
            let after = self.freshet.metrics()?;
            let hit = after.hits() - before.hits();
            ensure!(hit >= hits, "{hit} hits, not {hits}; {:?}", after.passed_since(&before));
            Ok(())
        })
    }

    fn transcript(
        &self,
        address: SocketAddr,
        conversation: &impl Fn(&mut RawClient) -> Result<()>,
    ) -> Result<Vec<Message>> {
        let mut client = RawClient::login(address, self.login())?;
        if address == self.address() {
            // The login was answered by the server, so the first read may have to wait for the change stream.
            rest();
        }
        conversation(&mut client)?;
        Ok(client.heard)
    }
}

/// Fails with the first message that differs.
pub(crate) fn ensure_same(direct: &[Message], through: &[Message]) -> Result<()> {
    let differs = (0..direct.len().max(through.len())).find(|i| direct.get(*i) != through.get(*i));
    let Some(at) = differs else { return Ok(()) };
    let tags = |messages: &[Message]| messages.iter().map(|m| char::from(m.tag)).collect::<String>();
    anyhow::bail!(
        "message {at} differs\n direct:  {:?}\n through: {:?}\n direct:  {}\n through: {}",
        direct.get(at),
        through.get(at),
        tags(direct),
        tags(through)
    )
}
