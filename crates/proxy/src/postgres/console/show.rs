//! SHOW.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::PoisonError;

use freshet_wire::postgres::table::{Column, Type};

use super::served::{Instance, Served};
use super::sockets::{self, Ends};
use super::{Answer, Rows, VERSION, Wrong, stats};
use crate::pool::{PoolKey, PoolMode, Pools, Shown};
use crate::postgres::Pg;
use crate::postgres::pooling::PooledConnection;
use crate::server::sessions::Link;

const fn text(name: &'static str) -> Column {
    Column { name, kind: Type::Text }
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Type::Int4 }
}

const fn long(name: &'static str) -> Column {
    Column { name, kind: Type::Int8 }
}

/// The text of SHOW HELP: the message, and its detail.
pub(super) const HELP: &str = "Console usage
\n\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION
\tSHOW PEERS|PEER_POOLS
\tSHOW FDS|SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE
\tSHOW DNS_HOSTS|DNS_ZONES
\tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS
\tSET key = arg
\tRELOAD
\tPAUSE [<db>]
\tRESUME [<db>]
\tRECONNECT [<db>]
\tWAIT_CLOSE [<db>]
\tKILL [<db>]
\tKILL_CLIENT <client_id>
\tSHUTDOWN
\tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS";

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    ActiveSockets,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Fds,
    Lists,
    Mem,
    PeerPools,
    Peers,
    Pools,
    Servers,
    Sockets,
    State,
    Stats,
    StatsAverages,
    StatsTotals,
    Totals,
    Users,
    Version,
    /// A parameter that drivers ask a server for: its place in [`PARAMETERS`].
    Parameter(usize),
}

const NAMES: [(&str, Show); 21] = [
    ("active_sockets", Show::ActiveSockets),
    ("clients", Show::Clients),
    ("config", Show::Config),
    ("databases", Show::Databases),
    ("dns_hosts", Show::DnsHosts),
    ("dns_zones", Show::DnsZones),
    ("fds", Show::Fds),
    ("lists", Show::Lists),
    ("mem", Show::Mem),
    ("peer_pools", Show::PeerPools),
    ("peers", Show::Peers),
    ("pools", Show::Pools),
    ("servers", Show::Servers),
    ("sockets", Show::Sockets),
    ("state", Show::State),
    ("stats", Show::Stats),
    ("stats_averages", Show::StatsAverages),
    ("stats_totals", Show::StatsTotals),
    ("totals", Show::Totals),
    ("users", Show::Users),
    ("version", Show::Version),
];

const PARAMETERS: [(&[Column], &str); 5] = [
    (&[text("client_encoding")], "UTF-8"),
    (&[text("default_transaction_isolation")], "read committed"),
    (&[text("standard_conforming_strings")], "on"),
    (&[text("datestyle")], "ISO"),
    (&[text("timezone")], "GMT"),
];

const DATABASES: [Column; 17] = [
    text("name"),
    text("host"),
    int("port"),
    text("database"),
    text("force_user"),
    int("pool_size"),
    int("min_pool_size"),
    int("reserve_pool_size"),
    int("server_lifetime"),
    text("pool_mode"),
    text("load_balance_hosts"),
    int("max_connections"),
    int("current_connections"),
    int("max_client_connections"),
    int("current_client_connections"),
    int("paused"),
    int("disabled"),
];
const POOLS: [Column; 17] = [
    text("database"),
    text("user"),
    int("cl_active"),
    int("cl_waiting"),
    int("cl_active_cancel_req"),
    int("cl_waiting_cancel_req"),
    int("sv_active"),
    int("sv_active_cancel"),
    int("sv_being_canceled"),
    int("sv_idle"),
    int("sv_used"),
    int("sv_tested"),
    int("sv_login"),
    int("maxwait"),
    int("maxwait_us"),
    text("pool_mode"),
    text("load_balance_hosts"),
];
const USERS: [Column; 8] = [
    text("name"),
    text("pool_size"),
    text("reserve_pool_size"),
    text("pool_mode"),
    int("max_user_connections"),
    int("current_connections"),
    int("max_user_client_connections"),
    int("current_client_connections"),
];
const FDS: [Column; 15] = [
    int("fd"),
    text("task"),
    text("user"),
    text("database"),
    text("addr"),
    int("port"),
    long("cancel"),
    int("link"),
    text("client_encoding"),
    text("std_strings"),
    text("datestyle"),
    text("timezone"),
    text("password"),
    Column { name: "scram_client_key", kind: Type::Bytes },
    Column { name: "scram_server_key", kind: Type::Bytes },
];
const PEER_POOLS: [Column; 5] = [
    int("peer_id"),
    int("cl_active_cancel_req"),
    int("cl_waiting_cancel_req"),
    int("sv_active_cancel"),
    int("sv_login"),
];
const PEERS: [Column; 4] = [int("peer_id"), text("host"), int("port"), int("pool_size")];
/// PgBouncer's are `int4`, which a large cache does not fit in.
const MEM: [Column; 5] = [text("name"), long("size"), long("used"), long("free"), long("memtotal")];

impl Show {
    pub(super) fn of(name: &str) -> Option<Self> {
        let parameter = |columns: &[Column]| columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, show)| *show);
        found.or_else(|| PARAMETERS.iter().position(|(columns, _)| parameter(columns)).map(Self::Parameter))
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::ActiveSockets | Self::Sockets => sockets::columns(Ends::Clients, true),
            Self::Clients => sockets::columns(Ends::Clients, false),
            Self::Servers => sockets::columns(Ends::Servers, false),
            // Readers count them: what Freshet has beyond these is in its own SHOW CONFIG.
            Self::Config => &const { [text("key"), text("value"), text("default"), text("changeable")] },
            Self::Databases => &DATABASES,
            Self::DnsHosts => &const { [text("hostname"), long("ttl"), text("addrs")] },
            Self::DnsZones => &const { [text("zonename"), long("serial"), int("count")] },
            Self::Fds => &FDS,
            Self::Lists => &const { [text("list"), int("items")] },
            Self::Mem => &MEM,
            Self::PeerPools => &PEER_POOLS,
            Self::Peers => &PEERS,
            Self::Pools => &POOLS,
            Self::State => &const { [text("key"), text("value")] },
            Self::Stats => &stats::STATS,
            Self::StatsAverages => &stats::AVERAGES,
            Self::StatsTotals => &stats::TOTALS,
            Self::Totals => &stats::BY_NAME,
            Self::Users => &USERS,
            Self::Version => &const { [text("version")] },
            Self::Parameter(at) => PARAMETERS.get(at).map_or(&[], |(columns, _)| columns),
        }
    }

    pub(super) fn answer(self, instance: Instance<'_>, is_admin: bool) -> Result<Answer, Wrong> {
        let both = || {
            let mut rows = sockets::rows(instance, Ends::Clients, true);
            rows.extend(sockets::rows(instance, Ends::Servers, true));
            rows
        };
        let rows = match self {
            Self::ActiveSockets | Self::Sockets => both(),
            Self::Clients => sockets::rows(instance, Ends::Clients, false),
            Self::Servers => [sockets::rows(instance, Ends::Servers, false), sockets::at_replicas(instance)].concat(),
            Self::Config => config(instance.first),
            Self::Databases => databases(instance),
            Self::Fds if !is_admin => return Err(Wrong::new("admin access needed")),
            // Freshet hands no sockets over, has no peers, and leaves names to the system.
            Self::Fds | Self::PeerPools | Self::Peers | Self::DnsHosts | Self::DnsZones => Vec::new(),
            Self::Lists => lists(instance),
            Self::Mem => memory(instance),
            Self::Pools => pools(instance),
            Self::State => state(instance),
            Self::Stats => stats::rows(instance, true, true),
            Self::StatsAverages => stats::rows(instance, false, true),
            Self::StatsTotals => stats::rows(instance, true, false),
            Self::Totals => stats::by_name(instance),
            Self::Users => users(instance),
            Self::Version => vec![vec![Some(format!("PgBouncer {VERSION} (Freshet {})", env!("CARGO_PKG_VERSION")))]],
            Self::Parameter(at) => {
                PARAMETERS.get(at).map(|(_, value)| vec![Some((*value).to_owned())]).into_iter().collect()
            }
        };
        Ok(Answer::Table(self.columns(), rows))
    }
}

/// Values of a row: none is NULL.
fn row<const N: usize>(values: [String; N]) -> Vec<Option<String>> {
    values.into_iter().map(Some).collect()
}

fn config(shared: &Pg) -> Rows {
    let settings = shared.console.get().map(|console| console.settings()).unwrap_or_default();
    settings.into_iter().map(|[key, value, default, changeable, ..]| row([key, value, default, changeable])).collect()
}

/// The databases of the configuration, those that sessions are in, and the console's; by name.
fn databases(instance: Instance<'_>) -> Rows {
    let mut rows = BTreeMap::new();
    for served in instance.served {
        let links = served.pg.sessions.all();
        let names = links.iter().map(|link| link.about.database.as_str()).chain(served.names());
        for name in names.collect::<BTreeSet<_>>() {
            rows.insert(name.to_owned(), database(instance, served, &links, name));
        }
    }
    if let Some(first) = instance.served.first() {
        rows.insert("pgbouncer".to_owned(), database(instance, first, &instance.links(), "pgbouncer"));
    }
    rows.into_values().collect()
}

/// The row of a name, which leads to this database.
fn database(instance: Instance<'_>, served: &Served, links: &[Arc<Link>], name: &str) -> Vec<Option<String>> {
    let conninfo = served.pg.own.upstream.conninfo();
    let (host, port) = conninfo.hosts.first().map_or((None, 0), |host| {
        let path = host.address.socket_path().and_then(|path| path.parent().map(|p| p.display().to_string()));
        (Some(path.unwrap_or_else(|| host.address.server_name().to_owned())), host.address.port())
    });
    let is_console = name == "pgbouncer";
    let clients = links.iter().filter(|link| link.about.database == name).count();
    let paused = !is_console && instance.is_paused(name);
    let own = |text: &str| is_console.then(|| text.to_owned());
    let mode = served.pg.pool_mode(None);
    let at_server = if served.names().any(|own| own == name) { conninfo.database.as_str() } else { name };
    let mut row = vec![
        Some(name.to_owned()),
        if is_console { None } else { host },
        Some(port.to_string()),
        Some(at_server.to_owned()),
        own("pgbouncer"),
    ];
    let pool = &served.pg.settings.pool;
    let lifetime = pool.lifetime.map_or(0, |lifetime| usize::try_from(lifetime.as_secs()).unwrap_or(usize::MAX));
    let limits = [pool.size, pool.min, pool.reserve, lifetime, pool.size_in_all.unwrap_or_default()];
    // Where sessions have connections of their own there are no limits.
    let limits = if mode.shares() && !is_console { limits } else { [0; 5] };
    let [size, min, reserve, lifetime, most] = limits;
    row.extend([size, min, reserve, lifetime].map(|n| Some(n.to_string())));
    row.extend([Some(if is_console { "statement" } else { mode.name() }.to_owned()), None]);
    let servers = if is_console { 0 } else { servers(&served.pg, links, name) };
    row.extend([most, servers, 0, clients, usize::from(paused), 0].map(|n| Some(n.to_string())));
    row
}

/// Connections to the server of this name: those that sessions share, and those of the other sessions.
fn servers(pg: &Pg, links: &[Arc<Link>], name: &str) -> usize {
    let shared = pg.pooling.pools.shown().into_iter().filter(|pool| pool.key.database == name);
    let has_own = |link: &&Arc<Link>| link.about.database == name && !pg.shares(link);
    shared.map(|pool| pool.in_use + pool.idle).sum::<usize>() + links.iter().filter(has_own).count()
}

fn lists(instance: Instance<'_>) -> Rows {
    let all = instance.links();
    let servers = all.iter().filter(|link| !link.about.console).count();
    let lists = [
        ("databases", databases(instance).len()),
        ("users", users(instance).len()),
        ("peers", 0),
        ("pools", by_pool(&all).len()),
        ("peer_pools", 0),
        ("free_clients", 0),
        ("used_clients", all.len()),
        ("login_clients", 0),
        ("free_servers", 0),
        ("used_servers", servers),
        ("dns_names", 0),
        ("dns_zones", 0),
        ("dns_queries", 0),
        ("dns_pending", 0),
    ];
    lists.map(|(list, items)| row([list.to_owned(), items.to_string()])).to_vec()
}

/// Cached results and what is known of statements, in units of a byte.
fn memory(instance: Instance<'_>) -> Rows {
    let sum = |of: fn(&Pg) -> u64| instance.all().map(|pg| of(pg)).sum::<u64>();
    let used = sum(|pg| pg.cache.levels(pg.clock.now()).bytes);
    let limit = sum(|pg| pg.cache.limits().memory_bytes);
    let statements = sum(|pg| pg.statement_bytes());
    let text = |n: u64| n.to_string();
    vec![
        row(["cache".to_owned(), text(1), text(used), text(limit.saturating_sub(used)), text(limit)]),
        row(["statements".to_owned(), text(1), text(statements), text(0), text(statements)]),
    ]
}

/// How many clients each pair of a database and a user has.
fn by_pool(all: &[Arc<Link>]) -> BTreeMap<(&str, &str), usize> {
    let mut pools = BTreeMap::new();
    for link in all {
        let about = &link.about;
        let user = if about.console { "pgbouncer" } else { &about.user };
        *pools.entry((about.database.as_str(), user)).or_default() += 1;
    }
    pools
}

fn pools(instance: Instance<'_>) -> Rows {
    let all = instance.links();
    let of = |pg: &Arc<Pg>| {
        let shown = pg.pooling.pools.shown().into_iter();
        shown.map(|pool| (pg.pool_mode(Some(&pool.key.user)), pool)).collect::<Vec<_>>()
    };
    let shared: Vec<_> = instance.all().flat_map(of).collect();
    let at_replicas = instance.all().flat_map(pools_to_replicas);
    let mut clients_of = by_pool(&all);
    let sharing = sharing(instance);
    for (_, pool) in &shared {
        // Its clients may have gone.
        clients_of.entry((&pool.key.database, &pool.key.user)).or_default();
    }
    let row = |((database, user), clients): ((&str, &str), usize)| {
        if let Some((mode, pool)) =
            shared.iter().find(|(_, pool)| pool.key.database == database && pool.key.user == user)
        {
            return shared_pool(*mode, pool, clients);
        }
        let is_console = database == "pgbouncer";
        let is_paused = !is_console && instance.is_paused(database);
        let (active, waiting) = if is_paused { (0, clients) } else { (clients, 0) };
        let mode = sharing.get(&(database.to_owned(), user.to_owned())).copied();
        // None of them has a connection now.
        let servers = if is_console || mode.is_some() { 0 } else { clients };
        let mode = mode.unwrap_or(if is_console { "statement" } else { "session" });
        let mut row = vec![Some(database.to_owned()), Some(user.to_owned())];
        row.extend([active, waiting, 0, 0, servers, 0, 0, 0, 0, 0, 0, 0, 0].map(|n: usize| Some(n.to_string())));
        row.extend([Some(mode.to_owned()), None]);
        row
    };
    clients_of.into_iter().map(row).chain(at_replicas).collect()
}

/// The connections to replicas: the database's name has the replica's address behind it, so that databases and users stand there once.
fn pools_to_replicas(pg: &Arc<Pg>) -> Rows {
    let of = |(at, pools): (usize, &Arc<Pools<Box<PooledConnection>>>)| {
        let address = pg.servers.address(at);
        let row = |pool: Shown| {
            let database = format!("{}@{address}", pool.key.database);
            let key = Arc::new(PoolKey { database, user: pool.key.user.clone() });
            let waiting = pool.waiting;
            shared_pool(pg.pool_mode(Some(&pool.key.user)), &Shown { key, ..pool }, waiting)
        };
        pools.shown().into_iter().map(row).collect::<Vec<_>>()
    };
    pg.pooling.replicas.iter().enumerate().flat_map(of).collect()
}

/// The modes of databases and users whose sessions share connections.
fn sharing(instance: Instance<'_>) -> BTreeMap<(String, String), &'static str> {
    let of = |pg: &Arc<Pg>| {
        let links = pg.sessions.all().into_iter().filter(|link| pg.shares(link));
        let mode = |link: Arc<Link>| {
            let (database, user) = (link.about.database.clone(), link.about.user.clone());
            let mode = pg.pool_mode(Some(&user)).name();
            ((database, user), mode)
        };
        links.map(mode).collect::<Vec<_>>()
    };
    instance.all().flat_map(of).collect()
}

/// Sessions that share connections.
fn shared_pool(mode: PoolMode, pool: &Shown, clients: usize) -> Vec<Option<String>> {
    let Shown { key, in_use, idle, waiting, longest_wait } = pool;
    let micros = longest_wait.subsec_micros() as usize;
    let seconds = usize::try_from(longest_wait.as_secs()).unwrap_or(usize::MAX);
    let active = clients.saturating_sub(*waiting);
    let mut row = vec![Some(key.database.clone()), Some(key.user.clone())];
    row.extend([active, *waiting, 0, 0, *in_use, 0, 0, *idle, 0, 0, 0, seconds, micros].map(|n| Some(n.to_string())));
    row.extend([Some(mode.name().to_owned()), None]);
    row
}

/// Users with sessions, and those who may use the console.
fn users(instance: Instance<'_>) -> Rows {
    let all = instance.links();
    let listed = |users: &std::sync::RwLock<Vec<String>>| users.read().unwrap_or_else(PoisonError::into_inner).clone();
    let settings = &instance.first.settings;
    let (admins, readers) = (listed(&settings.admin_users), listed(&settings.stats_users));
    let names: BTreeSet<&str> = all
        .iter()
        .map(|link| link.about.user.as_str())
        .chain(admins.iter().chain(&readers).map(String::as_str))
        .collect();
    let row = |name: &str| {
        let of_user = |link: &&Arc<Link>| link.about.user == name;
        let clients = all.iter().filter(of_user).count();
        let servers = all.iter().filter(of_user).filter(|link| !link.about.console).count();
        let mut row = vec![Some(name.to_owned()), Some(String::new()), Some(String::new()), None];
        row.extend([0, servers, 0, clients].map(|n| Some(n.to_string())));
        row
    };
    names.into_iter().map(row).collect()
}

fn state(instance: Instance<'_>) -> Rows {
    let paused = instance.is_all_paused();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    [("active", !paused), ("paused", paused), ("suspended", false)]
        .map(|(key, is)| row([key.to_owned(), yes(is)]))
        .to_vec()
}
