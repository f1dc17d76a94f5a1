//! A configuration from a pgbouncer.ini (PgBouncer 1.25, "pgbouncer.ini" in its manual).
//!
//! A setting that is dropped silently would be missed later. So a setting without a counterpart is an error that names line and key, or on request a
//! comment in the result.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use crate::config::show::quoted;

/// PgBouncer's default.
const PORT: &str = "6432";
const NO_POOL: &str = "Freshet has no such setting of pools";
const BY_THE_SERVICE_MANAGER: &str =
    "the service manager does this: Freshet logs to the standard error and stays in the foreground";

/// A setting that Freshet does not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    line: usize,
    key: String,
    why: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.line, self.key, self.why)
    }
}

/// The contents of the file.
#[derive(Debug, Default)]
pub(crate) struct Import {
    pub(crate) without_counterpart: Vec<Problem>,
    /// Keys of the file with their values as TOML.
    keys: BTreeMap<&'static str, String>,
    /// Parameters of all connection strings.
    common: Parameters,
    databases: Vec<Database>,
    /// Users with a mode of their own.
    pool_users: Vec<String>,
    addresses: Vec<(usize, String)>,
    port: Option<String>,
    sockets: Vec<String>,
}

/// A database with the names by which clients connect.
#[derive(Debug)]
struct Database {
    name: String,
    aliases: Vec<String>,
    /// Of its connection string.
    parameters: Parameters,
    /// Its own settings.
    keys: Vec<(&'static str, String)>,
}

/// Of a connection string.
type Parameters = BTreeMap<String, String>;

/// Reads a pgbouncer.ini.
pub(crate) fn import(text: &str) -> Import {
    let mut import = Import::default();
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
            continue;
        }
        let Some((key, value)) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            let what = line.split_whitespace().next().unwrap_or_default();
            import.problem(number, what, "this is no key with a value");
            continue;
        };
        match section.as_str() {
            "databases" => import.database(number, key, value),
            "pgbouncer" => import.setting(number, key, value),
            "users" => import.user(number, key, value),
            other => import.problem(number, key, &format!("the section [{other}] has no counterpart")),
        }
    }
    import.listen();
    if !import.pool_users.is_empty() {
        let all: Vec<String> = import.pool_users.iter().map(|one| quoted(one)).collect();
        import.key("pool_users", format!("[{}]", all.join(", ")));
    }
    import.without_counterpart.sort_by_key(|problem| problem.line);
    import
}

impl Import {
    fn problem(&mut self, line: usize, key: &str, why: &str) {
        self.without_counterpart.push(Problem { line, key: key.to_owned(), why: why.to_owned() });
    }

    fn key(&mut self, key: &'static str, value: String) {
        self.keys.insert(key, value);
    }

    fn parameter(&mut self, key: &str, value: &str) {
        self.common.insert(key.to_owned(), value.to_owned());
    }

    fn database(&mut self, line: usize, name: &str, value: &str) {
        let name = unquoted(name);
        let is_any = name == "*";
        let Some(given) = parameters(value) else {
            return self.problem(line, &name, "this is no connection string");
        };
        // The entry for any database needs one for the account of Freshet.
        let at_server = if is_any { "postgres" } else { &name };
        let mut parameters = Parameters::from([("dbname".to_owned(), at_server.to_owned())]);
        let mut keys = Vec::new();
        for (key, value) in given {
            match key.as_str() {
                "dbname" if is_any => {
                    self.problem(line, &key, "the entry * is for the database of the name that the client sends");
                }
                "host" | "port" | "user" | "password" | "dbname" => _ = parameters.insert(key, value),
                "pool_size" | "min_pool_size" | "reserve_pool" | "reserve_pool_size" | "pool_mode"
                | "max_db_connections" | "server_lifetime" => match of_pool(&key, &value) {
                    Ok(setting) => keys.push(setting),
                    Err(why) => self.problem(line, &key, why),
                },
                _ => self.problem(line, &key, "Freshet has no such setting of a database"),
            }
        }
        let leads_to = |parameters: &Parameters| ["host", "port", "dbname"].map(|key| parameters.get(key).cloned());
        let is_same = |other: &&mut Database| {
            !is_any && other.name != "*" && leads_to(&other.parameters) == leads_to(&parameters)
        };
        let Some(first) = self.databases.iter_mut().find(is_same) else {
            return self.databases.push(Database { name, aliases: Vec::new(), parameters, keys });
        };
        first.aliases.push(name.clone());
        if first.parameters != parameters || first.keys != keys {
            let why = format!("it is another name of {}, and Freshet has one account for both", first.name);
            self.problem(line, &name, &why);
        }
    }

    fn setting(&mut self, line: usize, key: &str, value: &str) {
        match key {
            "listen_addr" => {
                let all = value.split(',').map(str::trim).filter(|address| !address.is_empty());
                self.addresses.extend(all.map(|address| (line, address.to_owned())));
            }
            "listen_port" => self.port = Some(value.to_owned()),
            "unix_socket_dir" if value.starts_with('/') => self.sockets.push(value.to_owned()),
            "unix_socket_dir" if value.is_empty() => {}
            "auth_file" => self.key("users", quoted(value)),
            "auth_query" => self.key("auth_query", quoted(value)),
            "admin_users" | "stats_users" => {
                let users: Vec<String> = value.split(',').map(|user| quoted(user.trim())).collect();
                self.key(
                    if key == "admin_users" { "admin_users" } else { "stats_users" },
                    format!("[{}]", users.join(", ")),
                );
            }
            "auth_type" => self.auth_type(line, value),
            "pool_mode" if value == "session" => {}
            "pool_mode"
            | "default_pool_size"
            | "min_pool_size"
            | "reserve_pool_size"
            | "reserve_pool_timeout"
            | "max_client_conn"
            | "max_db_connections"
            | "query_wait_timeout"
            | "server_idle_timeout"
            | "server_lifetime"
            | "max_prepared_statements" => self.pool(line, key, value),
            _ if key.starts_with("client_tls_") || key.starts_with("server_tls_") => self.tls(line, key, value),
            "server_connect_timeout" => self.parameter("connect_timeout", value),
            // Not needed if each client has its own connection to the database, which gets its parameters.
            "server_reset_query"
            | "server_reset_query_always"
            | "track_extra_parameters"
            | "ignore_startup_parameters" => {}
            _ => self.problem(line, key, why_not(key)),
        }
    }

    /// A user with settings of its own.
    fn user(&mut self, line: usize, name: &str, value: &str) {
        let name = unquoted(name);
        let Some(given) = parameters(value) else {
            return self.problem(line, &name, "this is no list of settings");
        };
        for (key, value) in given {
            match (key.as_str(), value.as_str()) {
                ("pool_mode", "session" | "transaction" | "statement") => {
                    self.pool_users.push(format!("{name}={value}"));
                }
                _ => self.problem(line, &name, &format!("Freshet has no setting {key} of users")),
            }
        }
    }

    /// Limits of pools: numbers, and times in seconds.
    fn pool(&mut self, line: usize, key: &str, value: &str) {
        match of_pool(key, value) {
            Ok((key, value)) => self.key(key, value),
            Err(why) => self.problem(line, key, why),
        }
    }

    fn auth_type(&mut self, line: usize, value: &str) {
        match value {
            // Freshet accepts both: the user's verifier decides.
            "md5" | "scram-sha-256" => {}
            "trust" | "cert" => self.key("auth", quoted(value)),
            _ => self.problem(
                line,
                "auth_type",
                &format!("Freshet has no method {value}: it has passwords, cert and trust"),
            ),
        }
    }

    fn tls(&mut self, line: usize, key: &str, value: &str) {
        let upstream = match key {
            "client_tls_key_file" => return self.key("tls_key", quoted(value)),
            "client_tls_cert_file" => return self.key("tls_cert", quoted(value)),
            "client_tls_ca_file" => return self.key("tls_client_ca", quoted(value)),
            "client_tls_sslmode" if ["disable", "allow", "prefer"].contains(&value) => return,
            "client_tls_sslmode" if ["require", "verify-ca", "verify-full"].contains(&value) => {
                return self.key("tls_required", "true".to_owned());
            }
            "server_tls_sslmode" => "sslmode",
            "server_tls_ca_file" => "sslrootcert",
            "server_tls_cert_file" => "sslcert",
            "server_tls_key_file" => "sslkey",
            _ => {
                return self.problem(
                    line,
                    key,
                    "versions and ciphers of TLS cannot be chosen: TLS 1.2 and 1.3 with safe ones",
                );
            }
        };
        self.parameter(upstream, value);
    }

    /// Sets the addresses. They need the port, which may follow them in the file.
    fn listen(&mut self) {
        let port = self.port.clone().unwrap_or_else(|| PORT.to_owned());
        let mut all = Vec::new();
        for (line, address) in std::mem::take(&mut self.addresses) {
            let address = match address.as_str() {
                "*" => "0.0.0.0",
                "localhost" => "127.0.0.1",
                other => other,
            };
            match address.parse() {
                Ok(IpAddr::V4(address)) => all.push(format!("{address}:{port}")),
                Ok(IpAddr::V6(address)) => all.push(format!("[{address}]:{port}")),
                Err(_) => self.problem(line, "listen_addr", &format!("{address} is not an IP address")),
            }
        }
        if all.is_empty() && self.port.is_some() {
            all.push(format!("127.0.0.1:{port}"));
        }
        all.append(&mut self.sockets);
        if !all.is_empty() {
            let all: Vec<String> = all.iter().map(|address| quoted(address)).collect();
            self.key("listen", format!("[{}]", all.join(", ")));
        }
    }

    /// The file in Freshet's form. `name` is that of the pgbouncer.ini.
    pub(crate) fn to_toml(&self, name: &str) -> String {
        let mut out = format!("# From {name}\n");
        for problem in &self.without_counterpart {
            _ = writeln!(out, "# no counterpart: {name}:{problem}");
        }
        for (key, value) in &self.keys {
            _ = writeln!(out, "{key} = {value}");
        }
        for Database { name, aliases, parameters, keys } in &self.databases {
            _ = writeln!(out, "\n[[database]]\nname = {}", quoted(name));
            if !aliases.is_empty() {
                let aliases: Vec<String> = aliases.iter().map(|alias| quoted(alias)).collect();
                _ = writeln!(out, "aliases = [{}]", aliases.join(", "));
            }
            if !parameters.contains_key("user") {
                out.push_str("# Freshet needs an account of its own: add user=… here, and its password in upstream_password_file\n");
            }
            let all: Parameters = self.common.iter().chain(parameters).map(|(k, v)| (k.clone(), v.clone())).collect();
            let all = all.iter().map(|(key, value)| format!("{key}={}", conninfo_value(value)));
            _ = writeln!(out, "upstream = {}", quoted(&all.collect::<Vec<_>>().join(" ")));
            for (key, value) in keys {
                _ = writeln!(out, "{key} = {value}");
            }
        }
        out
    }
}

/// A setting of pools: a mode, a number, or a time in seconds. Err: why it has no counterpart.
fn of_pool(key: &str, value: &str) -> Result<(&'static str, String), &'static str> {
    if key == "pool_mode" {
        let is_mode = ["session", "transaction", "statement"].contains(&value);
        return if is_mode {
            Ok(("pool", quoted(value)))
        } else {
            Err("the modes are session, transaction and statement")
        };
    }
    let number: u32 = value.parse().map_err(|_| "this is no whole number")?;
    let seconds = || quoted(&format!("{number}s"));
    Ok(match key {
        "default_pool_size" | "pool_size" => ("default_pool_size", number.to_string()),
        "min_pool_size" => ("min_pool_size", number.to_string()),
        "reserve_pool_size" | "reserve_pool" => ("reserve_pool_size", number.to_string()),
        "max_client_conn" => ("max_client_conn", number.to_string()),
        "max_db_connections" => ("max_db_connections", number.to_string()),
        "max_prepared_statements" => ("max_prepared_statements", number.to_string()),
        "reserve_pool_timeout" => ("reserve_pool_timeout", seconds()),
        "query_wait_timeout" => ("query_wait_timeout", seconds()),
        "server_idle_timeout" => ("server_idle_timeout", seconds()),
        "server_lifetime" => ("server_lifetime", seconds()),
        _ => return Err(NO_POOL),
    })
}

fn why_not(key: &str) -> &'static str {
    match key {
        "max_user_connections"
        | "max_db_client_connections"
        | "max_user_client_connections"
        | "server_check_query"
        | "server_check_delay"
        | "server_round_robin"
        | "server_fast_close" => NO_POOL,
        "logfile" | "pidfile" | "user" | "syslog" | "syslog_ident" | "syslog_facility" => BY_THE_SERVICE_MANAGER,
        "verbose" | "log_connections" | "log_disconnections" | "log_pooler_errors" | "log_stats" | "stats_period" => {
            "see log, and http for metrics"
        }
        "auth_user" | "auth_dbname" => "auth_query runs as the user of upstream",
        "auth_hba_file" | "auth_ident_file" | "auth_ldap_options" => "the database's own pg_hba.conf decides",
        "query_timeout" | "idle_transaction_timeout" | "transaction_timeout" => {
            "set the database's own time-outs, such as statement_timeout and idle_in_transaction_session_timeout"
        }
        "unix_socket_dir" => "a directory of a Unix socket begins with /",
        _ => "Freshet has no such setting",
    }
}

/// The parameters of an entry in [databases]: `key=value key='it''s'`. None for any other form.
fn parameters(text: &str) -> Option<Vec<(String, String)>> {
    let (mut rest, mut all) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=')?;
        let behind = behind.trim_start();
        let (value, behind) = if let Some(inside) = behind.strip_prefix('\'') {
            closed(inside)?
        } else {
            let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
            (behind.get(..end)?.to_owned(), behind.get(end..)?)
        };
        all.push((key.trim().to_owned(), value));
        rest = behind.trim_start();
    }
    Some(all)
}

/// A value up to its quote. Two quotes are one. Also returns the rest.
fn closed(text: &str) -> Option<(String, &str)> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once('\'')?;
        value.push_str(before);
        match behind.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value, behind)),
        }
    }
}

fn unquoted(name: &str) -> String {
    let inside = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.map_or_else(|| name.to_owned(), |inside| inside.replace("\"\"", "\""))
}

/// The value in libpq's form.
fn conninfo_value(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:,".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::definition::{command, settings};
    use crate::config::file::parse;

    const INI: &str = "; made by hand\n[databases]\nshop = host=db.example.com port=5433 user=app password='it''s'\n\n[pgbouncer]\n\
                       listen_port = 6543\nlisten_addr = *, ::1\nunix_socket_dir = /run/pgbouncer\nauth_type = scram-sha-256\n\
                       auth_file = /etc/pgbouncer/userlist.txt\nadmin_users = ops, dba\nclient_tls_sslmode = require\n\
                       client_tls_key_file = /k.pem\nclient_tls_cert_file = /c.pem\nserver_tls_sslmode = verify-full\n\
                       server_tls_ca_file = /ca.pem\npool_mode = transaction\ndefault_pool_size = 7\nquery_wait_timeout = 9\nmax_prepared_statements = 50\nserver_connect_timeout = 5\n\
                       min_pool_size = 2\nreserve_pool_size = 3\nreserve_pool_timeout = 4\nmax_client_conn = 100\n[users]\nreport = pool_mode=session\n";

    #[test]
    fn what_has_a_counterpart_is_a_key() {
        let import = import(INI);
        assert_eq!(import.without_counterpart, []);
        let toml = import.to_toml("p.ini");
        assert_eq!(
            toml,
            "# From p.ini\n\
             admin_users = [\"ops\", \"dba\"]\ndefault_pool_size = 7\n\
             listen = [\"0.0.0.0:6543\", \"[::1]:6543\", \"/run/pgbouncer\"]\nmax_client_conn = 100\nmax_prepared_statements = 50\nmin_pool_size = 2\npool = \"transaction\"\npool_users = [\"report=session\"]\nquery_wait_timeout = \"9s\"\n\
             reserve_pool_size = 3\nreserve_pool_timeout = \"4s\"\n\
             tls_cert = \"/c.pem\"\ntls_key = \"/k.pem\"\ntls_required = true\nusers = \"/etc/pgbouncer/userlist.txt\"\n\n\
             [[database]]\nname = \"shop\"\n\
             upstream = \"connect_timeout=5 dbname=shop host=db.example.com password='it\\\\'s' port=5433 sslmode=verify-full \
             sslrootcert=/ca.pem user=app\"\n"
        );
        let entries = parse(Path::new("t"), &toml, &settings(&command())).expect("no fault");
        assert_eq!(entries.entries.len(), 17);
    }

    #[test]
    fn aliases_are_names_of_one_entry() {
        let text = "[databases]\nshop = host=h user=f\nother = host=h user=f\nold = host=h dbname=shop user=f\n\
                    api = dbname=shop user=f host=h\n* = host=h user=f\nreport = host=h dbname=shop user=r\n";
        let import = import(text);
        let problems: Vec<String> = import.without_counterpart.iter().map(ToString::to_string).collect();
        assert_eq!(problems, ["7: report: it is another name of shop, and Freshet has one account for both"]);
        let toml = import.to_toml("p.ini");
        let begin =
            "name = \"shop\"\naliases = [\"old\", \"api\", \"report\"]\nupstream = \"dbname=shop host=h user=f\"\n";
        assert!(toml.contains(begin) && toml.matches("[[database]]").count() == 3, "{toml}");
        assert!(toml.contains("name = \"*\"\nupstream = \"dbname=postgres host=h user=f\"\n"), "{toml}");
        assert!(parse(Path::new("t"), &toml, &settings(&command())).is_ok());
    }

    #[test]
    fn what_has_none_is_named_with_its_line() {
        let text = "[databases]\n* = host=h dbname=d\none = host=h dbname=uno pool_size=5 pool_mode=x\ntwo =\nbad\n[pgbouncer]\npool_mode = any\n\
                    max_user_connections = 100\nauth_type = hba\nlisten_addr = db.example.com\nserver_tls_ciphers = x\nfrobnicate = 1\n\
                    [users]\nu = max_user_connections=1\n";
        let import = import(text);
        let problems: Vec<String> = import.without_counterpart.iter().map(ToString::to_string).collect();
        let starts: Vec<String> =
            problems.iter().map(|problem| problem.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect();
        assert_eq!(
            starts,
            [
                "2: dbname",
                "3: pool_mode",
                "5: bad",
                "7: pool_mode",
                "8: max_user_connections",
                "9: auth_type",
                "10: listen_addr",
                "11: server_tls_ciphers",
                "12: frobnicate",
                "14: u"
            ]
        );
        let toml = import.to_toml("p.ini");
        assert!(toml.contains("# no counterpart: p.ini:12: frobnicate: Freshet has no such setting\n"), "{toml}");
        assert!(toml.contains("add user=") && toml.contains("name = \"one\"\n"), "{toml}");
        assert!(
            toml.contains("upstream = \"dbname=uno host=h\"\ndefault_pool_size = 5\n\n[[database]]\nname = \"two\"\n"),
            "{toml}"
        );
        assert!(parse(Path::new("t"), &toml, &settings(&command())).is_ok());
    }
}
