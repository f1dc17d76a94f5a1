//! A database that is reached directly and through Freshet, and conversations that must be the same both ways.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result, ensure};

use super::packets::capability;
use super::{Database, Kind, Login, Packet, RawClient};
use crate::support::{Freshet, PATIENCE, eventually, rest};

/// The database and the Freshet in front of it.
pub(crate) struct Pair {
    pub(crate) freshet: Freshet,
    pub(crate) database: Database,
}

impl Pair {
    /// A database on the shared server with this schema.
    pub(crate) fn new(kind: Kind, schema: &str) -> Result<Self> {
        Self::over(Database::shared(kind)?, schema, &[])
    }

    /// The same for a test of what sessions have only on connections of their own: other accounts than that of the tests, the server's number of the
    /// connection, its limit for idle sessions.
    pub(crate) fn in_session_mode(kind: Kind, schema: &str) -> Result<Self> {
        Self::over(Database::shared(kind)?, schema, SESSION_MODE)
    }

    /// The same, where sessions share this number of connections.
    pub(crate) fn sharing(kind: Kind, schema: &str, size: usize) -> Result<Self> {
        let database = Database::shared(kind)?;
        let users = users_file(&database)?;
        let size = size.to_string();
        Self::over(database, schema, &["--users", &users, "--pool", "transaction", "--default-pool-size", &size])
    }

    /// The same over any database, with options for `freshet serve`.
    pub(crate) fn over(database: Database, schema: &str, options: &[&str]) -> Result<Self> {
        if !schema.is_empty() {
            database.run(schema)?;
        }
        let says_itself = ["--users", "--pool"].iter().any(|option| options.contains(option));
        let pool = if says_itself { None } else { pool_of(&database)? };
        let more: Vec<&str> = pool.iter().flat_map(|users| ["--users", users, "--pool", "transaction"]).collect();
        let options = [options, &more].concat();
        let freshet = Freshet::start_unready(database.address(), &database.url(), &options)?;
        freshet.wait_ready()?;
        Ok(Self { freshet, database })
    }

    /// Whether its sessions share connections, like those of all tests.
    pub(crate) fn is_shared(&self) -> bool {
        self.freshet.is_there() && is_pooled()
    }

    /// The address of Freshet.
    pub(crate) fn address(&self) -> SocketAddr {
        self.freshet.address
    }

    pub(crate) fn login(&self) -> Login<'_> {
        self.database.login()
    }

    /// A connection through Freshet.
    pub(crate) fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.address(), self.login())
    }

    /// Reads until the answer comes from the cache.
    pub(crate) fn until_hit(&self, client: &mut RawClient, sql: &str) -> Result<()> {
        eventually(PATIENCE, || {
            let before = self.freshet.metrics()?;
            client.run(sql)?;
            let after = self.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{sql}: no hit; {:?}", after.passed_since(&before));
            rest();
            Ok(())
        })
    }

    /// The conversation is the same directly and through Freshet, twice; for a current driver and for an old one, which receives EOF packets.
    pub(crate) fn same(&self, conversation: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
        for capabilities in [capability::MODERN, capability::OLD] {
            let login = Login { capabilities, ..self.login() };
            self.same_as(login, &conversation).with_context(|| format!("capabilities {capabilities:#x}"))?;
        }
        Ok(())
    }

    /// The same for one login.
    pub(crate) fn same_as(&self, login: Login<'_>, conversation: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
        let direct = transcript(self.database.address(), login, &conversation).context("directly")?;
        for time in ["the first time", "the second time"] {
            let through = transcript(self.address(), login, &conversation).with_context(|| time.to_owned())?;
            ensure_same(&direct, &through).with_context(|| time.to_owned())?;
        }
        Ok(())
    }

    /// The conversation is the same directly and through Freshet, first without and then with at least this number of reads from the cache.
    pub(crate) fn same_with_hits(&self, hits: u64, conversation: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
        if !self.freshet.is_there() {
            return self.same(conversation);
        }
        for capabilities in [capability::MODERN, capability::OLD] {
            let login = Login { capabilities, ..self.login() };
            let direct = transcript(self.database.address(), login, &conversation).context("directly")?;
            let through = transcript(self.address(), login, &conversation).context("the first time")?;
            ensure_same(&direct, &through)
                .with_context(|| format!("the first time, capabilities {capabilities:#x}"))?;
            eventually(PATIENCE, || {
                let before = self.freshet.metrics()?;
                let through = transcript(self.address(), login, &conversation)?;
                // Another attempt does not remove a difference.
                ensure_same(&direct, &through).unwrap_or_else(|error| panic!("with hits: {error:#}"));
                let after = self.freshet.metrics()?;
                let hit = after.hits() - before.hits();
                ensure!(hit >= hits, "{hit} hits, not {hits}; {:?}", after.passed_since(&before));
                rest();
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// See [`Pair::in_session_mode`].
pub(crate) const SESSION_MODE: &[&str] = &["--pool", "session"];

/// Whether the sessions of all tests share connections: `FRESHET_TEST_POOL=transaction`.
fn is_pooled() -> bool {
    std::env::var("FRESHET_TEST_POOL").is_ok_and(|mode| mode == "transaction")
}

/// If sessions share connections: the path of a users file with the account of the tests.
fn pool_of(database: &Database) -> Result<Option<String>> {
    if !is_pooled() {
        return Ok(None);
    }
    users_file(database).map(Some)
}

/// The path of a users file with the account of the tests.
fn users_file(database: &Database) -> Result<String> {
    let login = database.login();
    let path = std::env::temp_dir().join(format!("freshet-users-{}-{}", std::process::id(), database.name));
    std::fs::write(&path, format!("\"{}\" \"{}\"\n", login.user, login.password))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(path.display().to_string())
}

fn transcript(
    address: SocketAddr,
    login: Login<'_>,
    conversation: &impl Fn(&mut RawClient) -> Result<()>,
) -> Result<Vec<Packet>> {
    let mut client = RawClient::login(address, login)?;
    if is_pooled()
        && let Some(ok) = client.heard.first_mut()
    {
        // With a users file, Freshet has another plugin ask for the password than the server.
        ok.sequence = 0;
    }
    conversation(&mut client)?;
    Ok(client.heard)
}

/// Fails with the first packet that differs.
pub(crate) fn ensure_same(direct: &[Packet], through: &[Packet]) -> Result<()> {
    let differs = (0..direct.len().max(through.len())).find(|i| direct.get(*i) != through.get(*i));
    let Some(at) = differs else { return Ok(()) };
    anyhow::bail!(
        "packet {at} of {} differs\n direct:  {:?}\n through: {:?}\n before:  {:?}",
        direct.len(),
        direct.get(at),
        through.get(at),
        at.checked_sub(1).and_then(|before| direct.get(before))
    )
}
