//! Over TLS the same conversations, frame by frame, and as many hits.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::link::{Link, Negotiation, Trust};
use super::workshop::Workshop;
use super::{Front, READ};
use crate::support::frames::{self, copy_data, copy_done, query, sync, unnamed};
use crate::support::{
    Database, Message, PATIENCE, RawClient, Version, ensure_same, eventually, on_both_at_length, rest,
};

on_both_at_length!(conversations, cancel_requests);

type Conversation = fn(&mut RawClient) -> Result<()>;

/// Each with how many of its reads can come from the cache.
const CONVERSATIONS: [(&str, u64, Conversation); 6] = [
    ("simple", 2, |c| {
        c.query(READ)?;
        c.query("select id, title from film where id < 20 order by id")?;
        c.query("select 1/0").map(drop)
    }),
    ("extended", 1, |c| {
        c.exchange(&[unnamed("select title from film where id = $1", &["7"]), sync()].concat(), 1).map(drop)
    }),
    ("pipeline", 1, |c| {
        let by_id = |id| [unnamed("select title from film where id = $1", &[id]), sync()].concat();
        c.exchange(&[by_id("3"), by_id("nothing"), by_id("5"), query(READ)].concat(), 4).map(drop)
    }),
    ("large", 1, |c| c.query("select repeat(title, 2000) from film where id < 60").map(drop)),
    ("copy", 0, |c| {
        c.run("begin")?;
        c.send(&query("copy log from stdin"))?;
        c.until(b'G')?;
        let lines: Vec<u8> = (1..20_000).flat_map(|i| copy_data(format!("{i}\tline {i}\n").as_bytes())).collect();
        c.exchange(&[lines, copy_done()].concat(), 1)?;
        c.query("copy log to stdout")?;
        c.query("rollback").map(drop)
    }),
    ("end", 0, |c| {
        c.send(&frames::terminate())?;
        c.read_or_end().map(drop)
    }),
];

/// Where the conversations are held: directly (over TLS where the server can), and through Freshet.
struct Ways {
    front: Front,
    direct: SocketAddr,
    /// By SSLRequest and at once.
    through: [SocketAddr; 2],
    _links: Vec<Link>,
}

fn ways(version: Version) -> Result<Option<Ways>> {
    let workshop = Workshop::open()?;
    let authority = workshop.authority("ca")?;
    let database = match version {
        Version::V15 => {
            let tls = workshop.leaf("server", &["localhost"], &authority)?;
            Database::create(version.start(&Settings::default().with_tls(tls))?)?
        }
        Version::V18 => Database::shared(version)?,
    };
    let front = Front::over(database, &[])?;
    if front.is_absent() {
        return Ok(None);
    }
    let mut links = vec![front.link(Negotiation::Request)?, front.link(Negotiation::Direct)?];
    let through = [0, 1].map(|i: usize| links[i].address);
    let mut direct = front.database.address();
    if version == Version::V15 {
        links.push(Link::to(direct, Negotiation::Request, &Trust::authority(&authority)?)?);
        direct = links[2].address;
    }
    Ok(Some(Ways { front, direct, through, _links: links }))
}

fn hold(address: SocketAddr, database: &Database, conversation: Conversation) -> Result<Vec<Message>> {
    let mut client = RawClient::login(address, database.login())?;
    // The login was answered by the server, so the first read may have to wait for the change stream.
    rest();
    conversation(&mut client)?;
    Ok(client.heard)
}

fn conversations(version: Version) -> Result<()> {
    let Some(ways) = ways(version)? else { return Ok(()) };
    let database = &ways.front.database;
    for (name, hits, conversation) in CONVERSATIONS {
        let direct = hold(ways.direct, database, conversation).with_context(|| format!("{name}, directly"))?;
        for address in ways.through {
            eventually(PATIENCE, || {
                let before = ways.front.freshet.metrics()?;
                let through = hold(address, database, conversation).with_context(|| format!("{name}, by TLS"))?;
                // A difference is not mended by trying again.
                ensure_same(&direct, &through).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                let after = ways.front.freshet.metrics()?;
                let hit = after.hits() - before.hits();
                ensure!(hit >= hits, "{name}: {hit} hits, not {hits}; {:?}", after.passed_since(&before));
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Over TLS and plain, for a session over TLS and a plain one.
fn cancel_requests(version: Version) -> Result<()> {
    let Some(ways) = ways(version)? else { return Ok(()) };
    let plain = ways.front.freshet.address;
    for session in [plain, ways.through[0], ways.through[1]] {
        for canceller in [plain, ways.through[0], ways.through[1]] {
            let mut client = RawClient::login(session, ways.front.database.login())?;
            client.send(&query("select pg_sleep(60)"))?;
            let pid = u32::from_be_bytes(*client.key_data.first_chunk().context("BackendKeyData")?);
            eventually(PATIENCE, || {
                let mut other = ways.front.database.connect()?;
                let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
                ensure!(other.value(sleeps)? == "1", "process {pid} does not sleep yet");
                Ok(())
            })?;
            let mut cancel = RawClient::open(canceller)?;
            cancel.send(&frames::cancel(&client.key_data))?;
            ensure!(cancel.bytes_to_end()?.is_empty(), "a cancel request is not answered");
            let messages = client.until(b'Z')?;
            let error = messages.iter().find(|message| message.tag == b'E').context("no error")?;
            ensure!(error.field(b'C').as_deref() == Some("57014"), "{error:?}");
        }
    }
    Ok(())
}
