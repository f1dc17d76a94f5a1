//! Over TLS the same conversations, frame by frame, and as many hits.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings};

use super::link::{Link, Negotiation, Trust};
use super::workshop::{Authority, Workshop};
use super::{Front, READ, SCHEMA};
use crate::support::frames::{self, copy_data, copy_done, query, sync, unnamed};
use crate::support::{Database, Message, PATIENCE, RawClient, Version, ensure_same, eventually, on_both, rest};

on_both!(conversations, cancel_requests);

type Conversation = fn(&mut RawClient) -> Result<()>;

/// Each with how many of its reads can come from memory.
const CONVERSATIONS: [(&str, u64, Conversation); 6] = [
    ("simple", 2, |c| {
        c.query(READ)?;
        c.query("select id, title from film where id < 20 order by id")?;
        c.query("select 1/0").map(drop)
    }),
    ("extended", 1, |c| c.exchange(&[unnamed("select title from film where id = $1", &["7"]), sync()].concat(), 1).map(drop)),
    ("pipeline", 1, |c| {
        let by_id = |id| [unnamed("select title from film where id = $1", &[id]), sync()].concat();
        c.exchange(&[by_id("3"), by_id("nothing"), by_id("5"), query(READ)].concat(), 4).map(drop)
    }),
    ("large", 1, |c| c.query("select repeat(title, 100000) from film where id < 60").map(drop)),
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

/// PostgreSQL with TLS, which version 18 here has not.
fn encrypted() -> Result<(Arc<Server>, Authority)> {
    static SERVER: OnceLock<Arc<Server>> = OnceLock::new();
    static WORKSHOP: OnceLock<(Workshop, std::path::PathBuf)> = OnceLock::new();
    let _ = (&SERVER, &WORKSHOP);
    let workshop = Workshop::open()?;
    let authority = workshop.authority("server")?;
    let tls = workshop.leaf("server", &["localhost"], &authority)?;
    let server = Version::V15.start(&Settings::default().with_tls(tls))?;
    Ok((server, authority))
}
