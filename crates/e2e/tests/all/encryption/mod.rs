//! TLS on both sides, with servers and programs that implement it independently: OpenSSL in PostgreSQL 15, in libpq and in `openssl s_client`.
//!
//! The PostgreSQL 18 of the tests was built without TLS. Where a server of that version needs it, a terminator (see `link`) is in front of it, as at
//! most cloud providers.

mod client_certificates;
mod collector;
mod endings;
mod handshakes;
mod link;
mod programs;
mod reload;
mod same;
mod to_upstream;
mod upstream_certificates;
mod web;
mod workshop;

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use freshet_testbed::Tls;

use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually};
use link::{Link, Negotiation, Trust};
use workshop::{Authority, Workshop};

const SCHEMA: &str = "create table film (id int primary key, title text not null);
    insert into film select i, 'film ' || i from generate_series(1, 100) i;
    create table log (id int primary key, line text)";
const READ: &str = "select title from film where id = 1";

/// A Freshet that speaks TLS to its clients, before a server that trusts everyone.
struct Front {
    freshet: Freshet,
    database: Database,
    authority: Authority,
    workshop: Workshop,
}

impl Front {
    /// With a certificate for `localhost` and further options of `freshet serve`.
    fn start(version: Version, options: &[&str]) -> Result<Self> {
        Self::over(Database::shared(version)?, options)
    }

    fn over(database: Database, options: &[&str]) -> Result<Self> {
        let workshop = Workshop::open()?;
        let authority = workshop.authority("ca")?;
        let tls = workshop.leaf("freshet", &["localhost"], &authority)?;
        database.run(SCHEMA)?;
        let options: Vec<String> =
            tls_options(&tls).into_iter().chain(options.iter().map(ToString::to_string)).collect();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let freshet = Freshet::start(&database, &options)?;
        Ok(Self { freshet, database, authority, workshop })
    }

    /// Whether the tests only check themselves.
    fn is_absent(&self) -> bool {
        !self.freshet.is_there()
    }

    /// A way in for clients that speak no TLS.
    fn link(&self, negotiation: Negotiation) -> Result<Link> {
        Link::to(self.freshet.address, negotiation, &Trust::authority(&self.authority)?)
    }
}

/// Options of `freshet serve` for its own certificate.
fn tls_options(tls: &Tls) -> Vec<String> {
    let path = |path: &std::path::Path| path.display().to_string();
    let mut options = vec!["--tls-cert".to_owned(), path(&tls.cert), "--tls-key".to_owned(), path(&tls.key)];
    if let Some(ca) = &tls.client_ca {
        options.extend(["--tls-client-ca".to_owned(), path(ca)]);
    }
    options
}

/// The login at an address works, and a read gives what is in the table.
fn serves(address: SocketAddr, database: &Database) -> Result<()> {
    let mut client = RawClient::login(address, database.login())?;
    let title = client.value(READ)?;
    ensure!(title == "film 1", "{title}");
    Ok(())
}

/// Starts a Freshet, or returns what it says instead.
fn started(direct: SocketAddr, upstream: &str, options: &[&str]) -> std::result::Result<Freshet, String> {
    eventually(PATIENCE, || match Freshet::start_unready(direct, upstream, options) {
        Ok(freshet) => Ok(Ok(freshet)),
        Err(error) => {
            let text = format!("{error:#}");
            // Its end was seen before its last words.
            ensure!(text.ends_with('\n') && !text.ends_with("log:\n"), "{text}");
            Ok(Err(text))
        }
    })
    .unwrap_or_else(|error| Err(format!("{error:#}")))
}
