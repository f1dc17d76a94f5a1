//! Single interleavings of sessions, commits and services, created step by step: the relay holds statements and the binary log between Freshet and
//! the server, and releases each when the previous step is complete.

mod acknowledgements;
mod definitions;
mod distance;
mod relay;
mod snapshots;

use std::env;

use anyhow::{Result, ensure};

use self::relay::Relay;
use super::support::{Database, Kind, RawClient};
use crate::support::{Freshet, Metrics, PATIENCE, eventually};

/// A server of its own, without other commits, and Freshet behind a relay.
struct Stage {
    freshet: Freshet,
    relay: Relay,
    database: Database,
}

impl Stage {
    /// None where there is no Freshet. Log-end probes may be old, since the stream is held.
    fn new(kind: Kind, schema: &str, options: &[&str]) -> Result<Option<Self>> {
        let database = Database::create(kind.start(&Kind::settings())?)?;
        database.run(schema)?;
        let relay = Relay::to(database.address())?;
        // Without encryption: the relay would not know what it passes on.
        let url = database.url().replace(&database.address().to_string(), &relay.address.to_string());
        let options = [&["--max-staleness", "10m"], options].concat();
        let freshet = Freshet::start_unready(relay.address, &(url + "?ssl-mode=disabled"), &options)?;
        freshet.wait_ready()?;
        Ok(freshet.is_there().then_some(Self { freshet, relay, database }))
    }

    /// The same with a rule switched off. None also where Freshet is built without these switches.
    fn with_fault(kind: Kind, schema: &str, options: &[&str]) -> Result<Option<Self>> {
        match Self::new(kind, schema, options) {
            Err(error) if format!("{error:#}").contains("--test-fault") => {
                ensure!(env::var_os("FRESHET_TEST_STRICT").is_none(), "built without fault-injection: {error:#}");
                println!("skipped: Freshet is built without the feature fault-injection");
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// A connection through Freshet.
    fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.freshet.address, self.database.login())
    }

    /// Waits until the figures are so.
    fn until(&self, what: &str, holds: impl Fn(&Metrics) -> bool) -> Result<Metrics> {
        eventually(PATIENCE, || {
            let metrics = self.freshet.metrics()?;
            ensure!(holds(&metrics), "{what}: never; {metrics:?}; the log:\n{}", self.freshet.log());
            Ok(metrics)
        })
    }
}
