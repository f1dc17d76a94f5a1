//! SHOW CLIENTS, SERVERS, SOCKETS: one row for each end of a session.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freshet_wire::postgres::table::{Column, Type};

use super::Rows;
use crate::postgres::Pg;
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

/// The columns of SHOW CLIENTS and SHOW SERVERS, or of SHOW SOCKETS.
pub(super) fn columns(sockets: bool) -> &'static [Column] {
    if sockets { &ALL } else { ALL.split_at(SHORT).0 }
}

/// Which ends, and what their states are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Clients,
    Servers,
}

/// The rows. `sockets`: with the columns of SHOW SOCKETS.
pub(super) fn rows(shared: &Pg, ends: Ends, sockets: bool) -> Rows {
    let all = shared.sessions.all();
    let shown = all.iter().filter(|link| ends == Ends::Clients || !link.about.console);
    shown.map(|link| row(shared, link, ends, sockets)).collect()
}

fn row(shared: &Pg, link: &Link, ends: Ends, sockets: bool) -> Vec<Option<String>> {
    let about = &link.about;
    let is_client = ends == Ends::Clients;
    let (own, peer, is_encrypted) = match ends {
        Ends::Clients => (about.client.map(|(own, _)| own), about.client.map(|(_, peer)| peer), about.tls.0),
        Ends::Servers => (about.server.map(|(own, _)| own), about.server.map(|(_, peer)| peer), about.tls.1),
    };
    let address = |address: Option<std::net::SocketAddr>| address.map_or("unix".to_owned(), |a| a.ip().to_string());
    let port = |address: Option<std::net::SocketAddr>| address.map_or(0, |a| a.port()).to_string();
    let is_waiting = is_client && !about.console && shared.sessions.is_paused(&about.database);
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
        if about.replication { "logical" } else { "none" }.to_owned(),
        state.to_owned(),
        address(peer),
        port(peer),
        address(own),
        port(own),
        since.clone(),
        since,
        "0".to_owned(),
        "0".to_owned(),
        "0".to_owned(),
        at,
        if about.console { String::new() } else { linked },
        "0".to_owned(),
        if is_encrypted { "TLS" } else { "" }.to_owned(),
        about.application_name.clone(),
        "0".to_owned(),
        link.id.to_string(),
    ];
    row.resize(columns(sockets).len(), "0".to_owned());
    row.into_iter().map(Some).collect()
}

/// A time as PgBouncer prints it, in its time zone, which is UTC here.
fn time(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// The date of a day after 1970-01-01. A year is taken to begin in March, so that leap days are last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
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
        assert_eq!((columns(false).len(), columns(false).last().map(|c| c.name)), (SHORT, Some("id")));
        assert_eq!(columns(true).len(), 28);
    }
}
