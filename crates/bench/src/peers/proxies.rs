//! Servers between clients and PostgreSQL: two that cache nothing, and pgpool-II, which has a cache.
//!
//! They are configured to be fast and comparable: no logging of connections, enough connections for a run, and for pgpool-II a cache in shared memory
//! of the same size as the others'.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use tokio_postgres::config::Host;

use super::{CACHE_BYTES, CONNECTIONS_MAX, Place, Plan, find, port, threads};
use crate::target::{Counters, Family, Kind, Target};

/// The PostgreSQL server behind them.
#[derive(Debug)]
pub(super) struct Upstream {
    url: String,
    host: String,
    port: u16,
    user: String,
    password: Option<String>,
}

impl Upstream {
    /// The host and the user of a target's URL.
    pub(super) fn of(target: &Target) -> Result<Self> {
        ensure!(target.family() == Some(Family::Postgres), "{} is not PostgreSQL", target.name);
        let (scheme, rest) = target.url.split_once("://").context("a URL without scheme")?;
        let (account, place) = rest.rsplit_once('@').context("the database's URL names no user")?;
        let url = format!("{scheme}://{}@{place}", account.replace('@', "%40"));
        let config: tokio_postgres::Config = url.parse().context("the database's URL")?;
        let Some(Host::Tcp(host)) = config.get_hosts().first() else {
            bail!("the database's URL names no host");
        };
        let password = config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(Self {
            url,
            host: host.clone(),
            port: config.get_ports().first().copied().unwrap_or(5432),
            user: config.get_user().context("the database's URL names no user")?.to_owned(),
            password,
        })
    }

    /// A target with the same account and database on a port of this machine.
    fn through(&self, name: &str, port: u16, counters: Option<Counters>) -> Result<Target> {
        let (scheme, rest) = self.url.split_once("://").context("a URL without scheme")?;
        let (account, place) = rest.rsplit_once('@').context("the database's URL names no user")?;
        let path = place.find(['/', '?']).map_or("", |at| &place[at..]);
        let url = format!("{scheme}://{account}@127.0.0.1:{port}{path}");
        Ok(Target { name: name.to_owned(), kind: Kind::Sql(Family::Postgres), url, counters, lookaside: None })
    }
}

/// The user for the server's side is fixed, so clients are not asked for a password. Before version 1.21, which keeps prepared statements when
/// transactions share a connection, sessions keep their connection.
pub(super) fn pgbouncer(place: &Place, upstream: &Upstream) -> Result<Plan> {
    let (program, port) = (find("pgbouncer")?, port()?);
    let printed = std::process::Command::new(&program).arg("--version").output().context("pgbouncer --version")?;
    let mode = if keeps_statements(&String::from_utf8_lossy(&printed.stdout)) {
        "pool_mode = transaction\nmax_prepared_statements = 200"
    } else {
        "pool_mode = session"
    };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let password = upstream.password.as_ref().map_or(String::new(), |text| format!(" password={}", quoted(text)));
    let text = format!(
        "[databases]\n* = host={} port={} user={}{password}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n{mode}\n\
         max_client_conn = {CONNECTIONS_MAX}\ndefault_pool_size = {CONNECTIONS_MAX}\n\
         ignore_startup_parameters = extra_float_digits,options,search_path\nserver_tls_sslmode = disable\n\
         log_connections = 0\nlog_disconnections = 0\n",
        upstream.host,
        upstream.port,
        quoted(&upstream.user),
    );
    let file = private_file(place, "pgbouncer.ini", &text)?;
    let mut command = place.owner.command(&program);
    command.arg(file);
    Ok(Plan { command, target: upstream.through("pgbouncer", port, None)?, end: Signal::TERM })
}

/// Whether the version in `PgBouncer 1.18.0` and further lines keeps prepared statements.
fn keeps_statements(version: &str) -> bool {
    let number = version.lines().next().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (1, 21)
}

/// HAProxy forwards bytes without reading them.
pub(super) fn haproxy(place: &Place, upstream: &Upstream) -> Result<Plan> {
    let (program, port) = (find("haproxy")?, port()?);
    let text = format!(
        "global\n  nbthread {}\n  maxconn 4000\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n\
         listen postgres\n  bind 127.0.0.1:{port}\n  server upstream {}:{}\n",
        threads(),
        upstream.host,
        upstream.port,
    );
    let mut command = place.owner.command(&program);
    command.arg("-db").arg("-f").arg(private_file(place, "haproxy.cfg", &text)?);
    Ok(Plan { command, target: upstream.through("haproxy", port, None)?, end: Signal::TERM })
}

/// pgpool-II as a cache: one backend, and entries in shared memory that never expire. It removes entries when it sees a write to their table.
pub(super) fn pgpool(place: &Place, upstream: &Upstream) -> Result<Plan> {
    let (program, port, control) = (find("pgpool")?, port()?, port()?);
    let here = place.directory.display();
    let text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\npcp_listen_addresses = '127.0.0.1'\npcp_port = {control}\n\
         unix_socket_directories = '{here}'\npcp_socket_dir = '{here}'\nwd_ipc_socket_dir = '{here}'\n\
         pid_file_name = '{here}/pgpool.pid'\nlogdir = '{here}'\nmemqcache_oiddir = '{here}'\n\
         backend_clustering_mode = 'raw'\nbackend_hostname0 = '{}'\nbackend_port0 = {}\nbackend_weight0 = 1\n\
         enable_pool_hba = off\npool_passwd = '{here}/pool_passwd'\n\
         num_init_children = {CONNECTIONS_MAX}\nmax_pool = 1\nchild_life_time = 0\nconnection_cache = on\n\
         memory_cache_enabled = on\nmemqcache_method = 'shmem'\nmemqcache_total_size = {CACHE_BYTES}\n\
         memqcache_max_num_cache = 200000\nmemqcache_expire = 0\nmemqcache_auto_cache_invalidation = on\n\
         memqcache_maxcache = 65536\nmemqcache_cache_block_size = 262144\n",
        upstream.host, upstream.port,
    );
    let file = private_file(place, "pgpool.conf", &text)?;
    // pgpool-II requests from clients the password that the database requests from it.
    let accounts = upstream.password.as_ref().map(|password| format!("{}:TEXT{password}\n", upstream.user));
    private_file(place, "pool_passwd", &accounts.unwrap_or_default())?;
    let mut command = place.owner.command(&program);
    command.arg("-n").arg("-f").arg(file);
    command.arg("-F").arg(private_file(place, "pcp.conf", "")?);
    command.arg("-a").arg(private_file(place, "pool_hba.conf", "")?);
    // A fast shutdown. The other signal waits for clients, and a killed process leaves its shared memory behind.
    Ok(Plan { command, target: upstream.through("pgpool", port, Some(Counters::PoolCache))?, end: Signal::INT })
}

/// Writes a file that may contain a password.
fn private_file(place: &Place, name: &str, text: &str) -> Result<PathBuf> {
    let path = place.directory.join(name);
    write_private(&path, text).with_context(|| path.display().to_string())?;
    place.owner.take(&path)?;
    Ok(path)
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    fs::write(path, "")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_keep_prepared_statements() {
        assert!(!keeps_statements("PgBouncer 1.18.0\nlibevent 2.1.12-stable\n"));
        assert!(keeps_statements("PgBouncer 1.21.0\n") && keeps_statements("PgBouncer 2.0.1\n"));
        assert!(!keeps_statements(""));
    }

    #[test]
    fn the_upstream_is_read_from_its_url() {
        let upstream =
            Upstream::of(&"d=postgres://u:p%27@q@db.example:6000/d?sslmode=disable".parse().unwrap()).unwrap();
        assert_eq!((upstream.host.as_str(), upstream.port, upstream.user.as_str()), ("db.example", 6000, "u"));
        assert_eq!(upstream.password.as_deref(), Some("p'@q"));
        let target = upstream.through("x", 7, None);
        assert_eq!(target.unwrap().url, "postgres://u:p%27%40q@127.0.0.1:7/d?sslmode=disable");
        for wrong in ["d=mysql://u@h/d", "d=postgres://h/d", "d=postgres:///d"] {
            assert!(Upstream::of(&wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }
}
