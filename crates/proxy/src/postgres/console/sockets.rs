//! SHOW CLIENTS, SERVERS, SOCKETS: one row for each end of a session.

use std::sync::Arc;
use std::time::SystemTime;

use freshet_wire::postgres::startup::Replication;
use freshet_wire::postgres::table::{Column, Type};

use super::Rows;
use super::served::Instance;
use crate::pool::PoolKey;
use crate::postgres::Pg;
use crate::server::calendar::Moment;
use crate::server::sessions::Link;

const fn text(name: &'static str) -> Column {
    Column { name, kind: Type::Text }
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Type::Int4 }
}

const ALL: [Column; 28] = [
    text("type"),
    text("user"),
    text("database"),
    text("replication"),
    text("state"),
    text("addr"),
    int("port"),
    text("local_addr"),
    int("local_port"),
    text("connect_time"),
    text("request_time"),
    int("wait"),
    int("wait_us"),
    int("close_needed"),
    text("ptr"),
    text("link"),
    int("remote_pid"),
    text("tls"),
    text("application_name"),
    int("prepared_statements"),
    int("id"),
    int("recv_pos"),
    int("pkt_pos"),
    int("pkt_remain"),
    int("send_pos"),
    int("send_remain"),
    int("pkt_avail"),
    int("send_avail"),
];
/// Without those behind them, which are about PgBouncer's buffers.
const SHORT: usize = 21;
/// The columns of SHOW CLIENTS: those, and what keeps the client on its server connection, and since when.
const OF_CLIENTS: [Column; SHORT + 2] = {
    let mut columns = [text("pin"); SHORT + 2];
    let (short, _) = ALL.split_at(SHORT);
    let (first, rest) = columns.split_at_mut(SHORT);
    first.copy_from_slice(short);
    if let [_, since] = rest {
        *since = text("pin_time");
    }
    columns
};

/// The columns of SHOW SOCKETS, or else of SHOW CLIENTS or SHOW SERVERS.
pub(super) fn columns(ends: Ends, sockets: bool) -> &'static [Column] {
    match (sockets, ends) {
        (true, _) => &ALL,
        (false, Ends::Clients) => &OF_CLIENTS,
        (false, Ends::Servers) => ALL.split_at(SHORT).0,
    }
}

/// Which ends, and what their states are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Clients,
    Servers,
}

/// The rows. `sockets`: with the columns of SHOW SOCKETS.
pub(super) fn rows(instance: Instance<'_>, ends: Ends, sockets: bool) -> Rows {
    let all = instance.links();
    let shown = all.iter().filter(|link| ends == Ends::Clients || !link.about.console);
    shown.map(|link| row(instance, link, ends, sockets)).collect()
}

/// The connections to replicas in SHOW SERVERS. They belong to no session, and nothing is known of each but its server.
pub(super) fn at_replicas(instance: Instance<'_>) -> Rows {
    let of = |pg: &Arc<Pg>| {
        let pools = pg.pooling.replicas.iter().enumerate();
        let pools = pools.flat_map(|(at, pools)| pools.shown().into_iter().map(move |pool| (at, pool)));
        let rows = pools.flat_map(|(at, pool)| {
            let address = pg.servers.address(at);
            let active = std::iter::repeat_n("active", pool.in_use);
            let all = active.chain(std::iter::repeat_n("idle", pool.idle));
            all.map(move |state| at_replica(&address, &pool.key, state)).collect::<Vec<_>>()
        });
        rows.collect::<Vec<_>>()
    };
    instance.all().flat_map(of).collect()
}

fn at_replica(address: &str, key: &PoolKey, state: &str) -> Vec<Option<String>> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let known = ["S", &key.user, &key.database, "none", state, host, port, "", "0", "", ""];
    // Waits, and whether it is to be closed; its own and its session's number; of the server; the number.
    let unknown = ["0", "0", "0", "", "", "0", "", "", "0", "0"];
    known.into_iter().chain(unknown).map(|value| Some(value.to_owned())).collect()
}

fn row(instance: Instance<'_>, link: &Link, ends: Ends, sockets: bool) -> Vec<Option<String>> {
    let about = &link.about;
    let is_client = ends == Ends::Clients;
    let (own, peer, is_encrypted) = match ends {
        Ends::Clients => (about.client.map(|(own, _)| own), about.client.map(|(_, peer)| peer), about.tls.0),
        Ends::Servers => (about.server.map(|(own, _)| own), about.server.map(|(_, peer)| peer), about.tls.1),
    };
    let address = |address: Option<std::net::SocketAddr>| address.map_or("unix".to_owned(), |a| a.ip().to_string());
    let port = |address: Option<std::net::SocketAddr>| address.map_or(0, |a| a.port()).to_string();
    let is_waiting = is_client && !about.console && instance.is_paused(&about.database);
    let state = match (is_waiting, sockets, is_client) {
        (true, false, _) => "waiting",
        (true, true, _) => "cl_waiting",
        (false, false, _) => "active",
        (false, true, true) => "cl_active",
        (false, true, false) => "sv_active",
    };
    let pointer = |kind| format!("0x{:x}", link.id * 2 + kind);
    let (at, linked) = if is_client { (pointer(0), pointer(1)) } else { (pointer(1), pointer(0)) };
    let since = time(link.since);
    let mut row = vec![
        if is_client { "C" } else { "S" }.to_owned(),
        about.user.clone(),
        about.database.clone(),
        match about.replication {
            Replication::No => "none",
            Replication::Physical => "physical",
            Replication::Logical => "logical",
        }
        .to_owned(),
        state.to_owned(),
        address(peer),
        port(peer),
        address(own),
        port(own),
        since.clone(),
        since,
        "0".to_owned(),
        "0".to_owned(),
        u8::from(!is_client && link.is_close_needed()).to_string(),
        at,
        if about.console { String::new() } else { linked },
        "0".to_owned(),
        if is_encrypted { "TLS" } else { "" }.to_owned(),
        about.application_name.clone(),
        "0".to_owned(),
        link.id.to_string(),
    ];
    if sockets {
        row.resize(ALL.len(), "0".to_owned());
    }
    let mut row: Vec<Option<String>> = row.into_iter().map(Some).collect();
    if is_client && !sockets {
        let pinned = link.pin.get();
        row.push(pinned.map(|pinned| pinned.reason.to_owned()));
        row.push(pinned.and_then(|pinned| SystemTime::now().checked_sub(pinned.since.elapsed())).map(time));
    }
    row
}

/// A time as PgBouncer prints it, in its time zone, which is UTC here.
fn time(at: SystemTime) -> String {
    let Moment { year, month, day, hour, minute, second, .. } = Moment::of(at);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| time(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(at(951_825_599), "2000-02-29 11:59:59 UTC");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(at(1_795_889_963), "2026-11-28 18:19:23 UTC");
    }

    #[test]
    fn columns_are_pgbouncers() {
        let names = |ends, sockets| columns(ends, sockets).iter().map(|column| column.name).collect::<Vec<_>>();
        let servers = names(Ends::Servers, false);
        assert_eq!((servers.len(), servers.last()), (SHORT, Some(&"id")));
        assert_eq!(names(Ends::Clients, false), [servers, vec!["pin", "pin_time"]].concat());
        assert_eq!(names(Ends::Clients, true).len(), 28);
        let key = PoolKey { database: "shop".into(), user: "app".into() };
        assert_eq!(at_replica("db2:5432", &key, "idle").len(), SHORT);
    }
}
