//! The tables `[[database]]` of the file: several databases in one instance.
//!
//! A table has a name, an upstream, and any of the settings that a database may have for itself. Other settings are those at the top of the file. The
//! settings of a database are those of the command line followed by the table's keys. So the checks are those of the command line, and a database's
//! own setting wins.

use std::ffi::OsString;
use std::ops::Range;
use std::time::Duration;

use clap::{Arg, Args as _, Command};
use freshet_net::Conninfo;
use freshet_net::conninfo::Environment;
use freshet_net::mysql::Upstream as MySqlUpstream;
use freshet_units::{MemorySize, Span};
use toml::Spanned;
use toml::de::{DeArray, DeValue};

use crate::config::definition::{command, key, option, settings};
use crate::config::entry::{Entry, entry, unknown};
use crate::config::fault::{Fault, Place};
use crate::config::setting::Setting;
use crate::config::written::Written;
use crate::serve::{ServeArgs, listen_addresses};

/// The name of the tables.
pub(crate) const TABLE: &str = "database";

/// The name of the entry for any database of its server.
pub(crate) const ANY: &str = "*";
const MAX_DATABASES: u32 = 20;
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The settings that a database may have for itself.
pub(crate) const OWN: &[&str] = &[
    "upstream",
    "upstream_password_file",
    "patroni",
    "max_staleness",
    "commit_wait",
    "admission",
    "bypass",
    "verify",
    "publication",
    "prepared",
    "slot",
    "slot_lag_bytes",
    "slot_lag_seconds",
    "refresh_share",
    "trust_immutable",
    "hints",
    "auth",
    "users",
    "auth_query",
    "pool",
    "pool_users",
    "default_pool_size",
    "min_pool_size",
    "reserve_pool_size",
    "reserve_pool_timeout",
    "max_db_connections",
    "query_wait_timeout",
    "failover_timeout",
    "server_idle_timeout",
    "server_lifetime",
    "max_prepared_statements",
    "read_replicas",
    "replica_lag_max",
    "replica_weights",
    "primary_weight",
];

/// Keys of a `[[database]]` that are not options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// The name by which clients connect; for MySQL and MariaDB a name for logs and metrics, since an entry is a whole
    /// server
    #[arg(long)]
    name: String,
    /// PostgreSQL: more names by which clients connect
    #[arg(long, value_delimiter = ',')]
    aliases: Vec<String>,
    /// MySQL and MariaDB: addresses that lead to this server, as for all
    #[arg(long, value_delimiter = ',')]
    listen: Vec<String>,
    /// The memory that this database always has
    #[arg(long)]
    memory_min: Option<MemorySize>,
    /// The most memory that this database may have
    #[arg(long)]
    memory_max: Option<MemorySize>,
    /// Of the name `*`: the most databases that are open at once; 20 if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    max_databases: Option<u32>,
    /// Of the name `*`: a database without a session is closed after this time; 1h if not given
    #[arg(long)]
    idle_timeout: Option<Span>,
}

/// One database.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseConfig {
    /// None for the database of `upstream`, which takes all names that no `[[database]]` has.
    pub(crate) name: Option<String>,
    /// More names for clients.
    pub(crate) aliases: Vec<String>,
    /// The addresses of its own.
    pub(crate) listen: Vec<String>,
    pub(crate) memory_min: u64,
    pub(crate) memory_max: u64,
    /// For the entry `*`.
    pub(crate) max_databases: u32,
    pub(crate) idle_timeout: Duration,
    /// For a database that the entry `*` has opened: its name at the server, in place of the one in `upstream`.
    pub(crate) at_server: Option<String>,
    /// All settings of this database.
    pub(crate) args: ServeArgs,
    pub(crate) settings: Vec<Setting>,
    /// The settings in its table.
    pub(crate) own: Vec<String>,
    /// Its position in the file, for messages.
    pub(crate) place: Place,
}

/// The keys of a table.
pub(crate) fn keys() -> Vec<Arg> {
    let table = DatabaseArgs::augment_args(Command::new(TABLE));
    let own = settings(&command()).into_iter().filter(|arg| OWN.contains(&key(arg)));
    table.get_arguments().cloned().chain(own).collect()
}

/// Reads the tables.
pub(super) fn entries(
    file: &Written<'_>,
    tables: &DeArray<'_>,
    entries: &mut Vec<Entry>,
    faults: &mut Vec<(Range<usize>, Fault)>,
) {
    let keys = keys();
    let mut fault = |span: Range<usize>, key, text| faults.push((span.clone(), file.fault(&span, key, text)));
    for (number, table) in tables.iter().enumerate() {
        let DeValue::Table(keys_and_values) = table.get_ref() else {
            fault(table.span(), None, format!("each {TABLE} is a table: [[{TABLE}]]"));
            continue;
        };
        for (name, value) in keys_and_values {
            match entry(file, name, value, &keys) {
                Ok(entry) => entries.push(Entry { database: Some(number), ..entry }),
                Err(text) if unknown(name, value, &keys).is_some() => fault(name.span(), None, text),
                Err(text) => fault(value.span(), Some(name.get_ref().to_string()), text),
            }
        }
        for needed in ["name", "upstream"] {
            if !keys_and_values.iter().any(|(name, _)| name.get_ref() == needed) {
                fault(Spanned::span(table), None, format!("a [[{TABLE}]] needs the key {needed}"));
            }
        }
    }
}

/// The entries of each table.
pub(super) fn tables(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let count = entries.iter().filter_map(|entry| entry.database).max().map_or(0, |last| last + 1);
    (0..count).map(|number| entries.iter().filter(|entry| entry.database == Some(number)).collect()).collect()
}

/// The command line followed by the settings of a table.
pub(super) fn arguments(arguments: &[OsString], table: &[&Entry]) -> Vec<OsString> {
    let all = settings(&command());
    let typed = table.iter().filter(|entry| OWN.contains(&entry.key.as_str())).filter_map(|entry| {
        let arg = all.iter().find(|arg| key(arg) == entry.key)?;
        Some(OsString::from(format!("--{}={}", option(arg), entry.values.join(","))))
    });
    arguments.iter().cloned().chain(typed).collect()
}

impl DatabaseConfig {
    pub(super) fn new(table: &[&Entry], args: ServeArgs, settings: Vec<Setting>) -> Self {
        let entry = |key: &str| table.iter().find(|entry| entry.key == key);
        let text = |key: &str| entry(key).map(|entry| entry.values.join(","));
        let size = |key: &str| text(key).and_then(|text| text.parse::<MemorySize>().ok()).map(|size| size.0);
        let place = entry("name").map_or(Place::Option("upstream".to_owned()), |entry| entry.place.clone());
        Self {
            name: text("name"),
            aliases: entry("aliases").map(|entry| entry.values.clone()).unwrap_or_default(),
            listen: entry("listen").map(|entry| entry.values.clone()).unwrap_or_default(),
            memory_min: size("memory_min").unwrap_or_default(),
            memory_max: size("memory_max").unwrap_or(u64::MAX),
            max_databases: text("max_databases").and_then(|text| text.parse().ok()).unwrap_or(MAX_DATABASES),
            idle_timeout: text("idle_timeout")
                .and_then(|text| text.parse::<Span>().ok())
                .map_or(IDLE_TIMEOUT, |span| span.0),
            at_server: None,
            args,
            settings,
            own: table.iter().map(|entry| entry.key.clone()).filter(|key| OWN.contains(&key.as_str())).collect(),
            place,
        }
    }

    /// The name for people and metrics.
    pub(crate) fn label(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => self.args.database_of_upstream(),
        }
    }

    /// Whether it is the entry for any database of its server.
    pub(crate) fn is_any(&self) -> bool {
        self.name.as_deref() == Some(ANY)
    }

    /// A database of the entry for any database.
    pub(crate) fn of(&self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), aliases: Vec::new(), at_server: Some(name.to_owned()), ..self.clone() }
    }

    /// Whether both are the same entry of the file, perhaps with other settings.
    pub(crate) fn is_same_entry(&self, other: &Self) -> bool {
        self.name == other.name && (self.name.is_none() || self.args.is_mysql() == other.args.is_mysql())
    }

    /// Whether both have a change stream of the same server and database, as far as the connection strings show.
    fn is_same_database(&self, other: &Self) -> bool {
        if self.args.is_mysql() {
            let upstream = |one: &Self| MySqlUpstream::parse(&one.args.upstream).ok();
            let (Some(this), Some(other)) = (upstream(self), upstream(other)) else { return false };
            return this.addresses().any(|address| other.addresses().any(|theirs| theirs == address));
        }
        let upstream = |one: &Self| {
            let environment = Environment::process();
            let environment = match &one.name {
                Some(name) => environment.with_database(name),
                None => environment,
            };
            if one.is_any() {
                return None;
            }
            Conninfo::parse(&one.args.upstream, &environment).ok()
        };
        let (Some(this), Some(other)) = (upstream(self), upstream(other)) else { return false };
        let has = |address| other.hosts.iter().any(|host| host.address == address);
        this.database == other.database && this.hosts.into_iter().any(|host| has(host.address))
    }

    /// A fault of this entry, at this key.
    pub(crate) fn fault(&self, key: &str, why: &anyhow::Error) -> Fault {
        Fault { place: self.place.clone(), key: Some(key.to_owned()), text: format!("{why:#}") }
    }

    pub(crate) fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    fn value(&self, key: &str) -> &str {
        self.setting(key).map(|setting| setting.value.as_str()).unwrap_or_default()
    }

    /// The place of a key's value.
    fn place_of(&self, key: &str) -> Place {
        self.setting(key).map_or_else(|| self.place.clone(), |setting| setting.place.clone())
    }
}

/// Faults of databases that are each valid alone.
pub(super) fn faults(all: &[DatabaseConfig], memory: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault =
        |place: Place, key: &str, text: String| faults.push(Fault { place, key: Some(key.to_owned()), text });
    for (at, one) in all.iter().enumerate() {
        let (before, _) = all.split_at(at);
        let is_mysql = one.args.is_mysql();
        let same_family = |other: &&DatabaseConfig| other.args.is_mysql() == is_mysql;
        let label = one.label();
        if let Some(earlier) = before.iter().find(|other| other.label() == label) {
            let (place, whose) = match one.name {
                Some(_) => (&one.place, format!("an earlier [[{TABLE}]]")),
                None => (&earlier.place, "the database of upstream at the top".to_owned()),
            };
            let text = format!(
                "{label:?} is the name of {whose}: choose another, metrics and /cachez tell databases apart by it"
            );
            fault(place.clone(), "name", text);
        } else if let Some(earlier) = before.iter().filter(same_family).find(|other| other.is_same_database(one)) {
            let (what, hint) = if is_mysql {
                ("server", "one entry serves all databases of a server")
            } else {
                ("database", "aliases gives an entry more names")
            };
            // The database at the top is the last and has no place in the file.
            let place = if one.name.is_some() { one.place_of("upstream") } else { earlier.place_of("upstream") };
            let other = if one.name.is_some() { earlier } else { one };
            let text =
                format!("the {what} of {:?} once more, which would be cached twice: remove one, {hint}", other.label());
            fault(place, "upstream", text);
        }
        let slot = one.value("slot");
        if !slot.is_empty() && before.iter().filter(same_family).any(|other| other.value("slot") == slot) {
            fault(one.place_of("slot"), "slot", "each database needs a slot of its own".to_owned());
        }
        if one.is_any() {
            faults_of_any(one, all, &mut fault);
        }
        faults_of_aliases(one, before, all, &mut fault);
        if let Err(error) = listen_addresses(&one.listen, is_mysql) {
            fault(one.place.clone(), "listen", error.to_string());
        }
        if !one.listen.is_empty() && !is_mysql {
            let text = "a PostgreSQL client names its database: all have the addresses in listen at the top".to_owned();
            fault(one.place.clone(), "listen", text);
        }
        if one.memory_max < one.memory_min {
            fault(one.place.clone(), "memory_max", "below memory_min".to_owned());
        }
    }
    let times = |one: &DatabaseConfig| if one.is_any() { u64::from(one.max_databases) } else { 1 };
    let floors = all.iter().map(|one| one.memory_min.saturating_mul(times(one))).fold(0, u64::saturating_add);
    if let Some(last) = all.last().filter(|_| floors > memory) {
        let text = format!("all memory_min are {floors} bytes together, and memory has {memory}");
        fault(last.place.clone(), "memory_min", text);
    }
    let unnamed_mysql = all.iter().filter(|one| one.args.is_mysql() && one.listen.is_empty());
    let others = usize::from(all.iter().any(|one| !one.args.is_mysql()));
    for one in unnamed_mysql.skip(1 - others) {
        let text = "needed here: a server of MySQL or MariaDB speaks before its client names a database, so each has an address of its own";
        fault(one.place.clone(), "listen", text.to_owned());
    }
    faults
}

/// What is wrong with the other names of an entry. `before`: the entries before it.
fn faults_of_aliases(
    one: &DatabaseConfig,
    before: &[DatabaseConfig],
    all: &[DatabaseConfig],
    fault: &mut impl FnMut(Place, &str, String),
) {
    if !one.aliases.is_empty() && (one.args.is_mysql() || one.is_any()) {
        let text = if one.is_any() {
            "the entry \"*\" has all names already"
        } else {
            "a client of MySQL or MariaDB reaches a server by its address, not by the name of an entry"
        };
        fault(one.place.clone(), "aliases", text.to_owned());
    }
    for (at, alias) in one.aliases.iter().enumerate() {
        let (earlier, _) = one.aliases.split_at(at);
        let is_taken = earlier.contains(alias)
            || before.iter().any(|other| other.aliases.contains(alias))
            || all.iter().any(|other| !other.args.is_mysql() && other.label() == *alias);
        if is_taken {
            fault(one.place.clone(), "aliases", format!("{alias:?} is a name of a database already"));
        }
    }
}

/// What is wrong with the entry for any database.
fn faults_of_any(one: &DatabaseConfig, all: &[DatabaseConfig], fault: &mut impl FnMut(Place, &str, String)) {
    if one.args.is_mysql() {
        let text = "one entry has all databases of a server of MySQL or MariaDB already: give it another name";
        fault(one.place.clone(), "name", text.to_owned());
    } else if all.iter().any(|other| other.name.is_none() && !other.args.is_mysql()) {
        let text = "upstream at the top takes all names already: remove one of both";
        fault(one.place.clone(), "name", text.to_owned());
    }
    if !one.value("slot").is_empty() {
        let text = "the databases of the entry \"*\" have temporary slots: a lasting one needs an entry of its own";
        fault(one.place_of("slot"), "slot", text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn database(name: Option<&str>, upstream: &str, line: usize) -> DatabaseConfig {
        let matches = command().try_get_matches_from(["freshet", "serve", "--upstream", upstream]).expect("arguments");
        let serve = matches.subcommand_matches("serve").expect("serve");
        DatabaseConfig {
            name: name.map(str::to_owned),
            aliases: Vec::new(),
            listen: vec!["127.0.0.1:1".to_owned()].into_iter().filter(|_| upstream.starts_with("mysql")).collect(),
            memory_min: 0,
            memory_max: u64::MAX,
            max_databases: MAX_DATABASES,
            idle_timeout: IDLE_TIMEOUT,
            at_server: None,
            args: ServeArgs::from_arg_matches(serve).expect("settings"),
            settings: Vec::new(),
            own: Vec::new(),
            place: Place::File { path: "f.toml".into(), line, column: 8 },
        }
    }

    #[test]
    fn labels_differ_between_all_databases() {
        let faults = |all: &[DatabaseConfig]| faults(all, 1).iter().map(ToString::to_string).collect::<Vec<_>>();
        let postgres = database(Some("shop"), "postgres://f@h/live", 2);
        let mysql = database(Some("shop"), "mysql://f@h/", 5);
        let at_top = database(None, "postgres://f@h/shop", 0);
        let other = database(Some("other"), "postgres://f@h/other", 8);
        let says = "choose another, metrics and /cachez tell databases apart by it";
        let of_earlier = format!("f.toml:5:8: name: \"shop\" is the name of an earlier [[database]]: {says}");
        let of_top = format!("f.toml:2:8: name: \"shop\" is the name of the database of upstream at the top: {says}");
        assert_eq!(faults(&[postgres.clone(), mysql.clone()]), [of_earlier.as_str()]);
        assert_eq!(faults(&[postgres.clone(), at_top.clone()]), [of_top.as_str()]);
        assert_eq!(faults(&[postgres, mysql, at_top.clone()]), [of_earlier, of_top]);
        assert!(faults(&[other.clone(), at_top.clone()]).is_empty());
        // One database has one entry.
        let alias = database(Some("alias"), "postgres://f@h/shop", 9);
        let servers = ["mysql://f@h/a", "mysql://g@h:3306/b"].map(|url| database(Some(url), url, 10));
        let says = |all: &[DatabaseConfig], what: &str| faults(all).first().is_some_and(|text| text.contains(what));
        assert!(says(&[alias, at_top], "upstream: the database of \"shop\" once more"));
        let named = |aliases: &[&str]| DatabaseConfig {
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            ..database(Some("a"), "postgres://f@h/a", 12)
        };
        assert!(faults(&[other.clone(), named(&["b", "c"])]).is_empty());
        for aliases in [&["b", "b"][..], &["a"], &["other"]] {
            let all = [other.clone(), named(aliases)];
            assert!(says(&all, "f.toml:12:8: aliases") && faults(&all).len() == 1, "{aliases:?}");
        }
        assert!(says(&servers, "upstream: the server of \"mysql://f@h/a\" once more"));
    }
}
