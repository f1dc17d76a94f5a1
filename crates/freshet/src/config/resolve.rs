//! The settings in force, from all places where they can be set.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};

use freshet_proxy::RuleText;

use crate::config::databases::{self, DatabaseConfig};
use crate::config::definition::{self, command, is_secret, key, settings};
use crate::config::entry::{Entry, checked};
use crate::config::fault::{Fault, Place};
use crate::config::file::{self, Contents};
use crate::config::setting::{Setting, Source};
use crate::logging::LogFormat;
use crate::serve::ServeArgs;

/// All settings, for the file and for the parts of the program.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) args: ServeArgs,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    pub(crate) settings: Vec<Setting>,
    /// At least one.
    pub(crate) databases: Vec<DatabaseConfig>,
    /// The rules in the order in which they are tried.
    pub(crate) rules: Vec<RuleText>,
}

/// Reads the configuration of a `freshet serve` command line. The error is the list of all faults.
pub(crate) fn read(arguments: &[OsString]) -> Result<Resolved, Vec<Fault>> {
    let matches = command().try_get_matches_from(arguments).map_err(|error| usage(&error))?;
    let serve = matches.subcommand_matches("serve").unwrap_or(&matches);
    let path: Option<&PathBuf> = serve.try_get_one("config").ok().flatten();
    let known = settings(&command());
    let Contents { entries, rules } = path.map_or_else(|| Ok(Contents::default()), |path| file::read(path, &known))?;
    let resolved = resolve(arguments, &entries).and_then(Resolved::checked)?;
    Ok(Resolved { rules, ..resolved })
}

/// Faults of environment variables, which the parser would report as options.
pub(crate) fn environment_faults() -> Vec<Fault> {
    let fault = |arg: &Arg| {
        let variable = definition::variable(key(arg));
        let value = std::env::var(&variable).ok()?;
        let text = checked(arg, &[value]).err()?;
        Some(Fault { place: Place::Variable(variable), key: None, text })
    };
    settings(&command()).iter().filter_map(fault).collect()
}

/// The settings of a command line, the environment and the entries of a file.
fn resolve(arguments: &[OsString], entries: &[Entry]) -> Result<Resolved, Vec<Fault>> {
    let at_top: Vec<Entry> = entries.iter().filter(|entry| entry.database.is_none()).cloned().collect();
    let command = with_defaults(command(), &at_top);
    let (args, matches) = parsed(command.clone(), arguments)?;
    let serve = matches.subcommand_matches("serve").unwrap_or(&matches);
    let log = serve.get_one::<String>("log").cloned().unwrap_or_default();
    let log_format = serve.get_one("log_format").copied().unwrap_or(LogFormat::Text);
    let settings = all_settings(&command, serve, &at_top);
    let mut databases = Vec::new();
    for table in databases::tables(entries) {
        // The table's settings follow those of the top, and the last value counts.
        let command = command.clone().mut_subcommand("serve", |serve| serve.args_override_self(true));
        let (args, matches) = parsed(command.clone(), &databases::arguments(arguments, &table))?;
        let serve = matches.subcommand_matches("serve").unwrap_or(&matches);
        let mut settings = all_settings(&command, serve, &at_top);
        for setting in &mut settings {
            if let Some(entry) = table.iter().find(|entry| entry.key == setting.key) {
                (setting.source, setting.place) = (Source::File, entry.place.clone());
            }
        }
        databases.push(DatabaseConfig::new(&table, args, settings));
    }
    if databases.is_empty() || !args.upstream.is_empty() {
        databases.push(DatabaseConfig::new(&[], args.clone(), settings.clone()));
    }
    Ok(Resolved { args, log, log_format, settings, databases, rules: Vec::new() })
}

fn parsed(command: Command, arguments: &[OsString]) -> Result<(ServeArgs, ArgMatches), Vec<Fault>> {
    let matches = command.try_get_matches_from(arguments).map_err(|error| usage(&error))?;
    let serve = matches.subcommand_matches("serve").unwrap_or(&matches);
    Ok((ServeArgs::from_arg_matches(serve).map_err(|error| usage(&error))?, matches))
}

fn all_settings(command: &Command, serve: &ArgMatches, entries: &[Entry]) -> Vec<Setting> {
    let originals = settings(&self::command());
    settings(command).iter().map(|arg| setting(arg, serve, entries, &originals)).collect()
}

/// A fault in the parser's own words.
fn usage(error: &clap::Error) -> Vec<Fault> {
    vec![Fault { place: Place::Option("config".to_owned()), key: None, text: error.to_string() }]
}

/// Sets the file's values as defaults. The order of the options stays.
fn with_defaults(command: Command, entries: &[Entry]) -> Command {
    let with_default = |arg: Arg| match entries.iter().find(|entry| entry.key == key(&arg)) {
        Some(entry) => arg.default_values(entry.values.clone()),
        None => arg,
    };
    command.mut_args(with_default).mut_subcommand("serve", |serve| serve.mut_args(with_default))
}

fn setting(arg: &Arg, matches: &ArgMatches, entries: &[Entry], originals: &[Arg]) -> Setting {
    let entry = entries.iter().find(|entry| entry.key == key(arg));
    let raw = matches.get_raw(key(arg)).into_iter().flatten();
    let value = raw.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
    let option = Place::Option(definition::option(arg).to_owned());
    let (source, place) = match (matches.value_source(key(arg)), entry) {
        (Some(ValueSource::CommandLine), _) => (Source::CommandLine, option),
        (Some(ValueSource::EnvVariable), _) => (Source::Environment, Place::Variable(definition::variable(key(arg)))),
        (_, Some(entry)) => (Source::File, entry.place.clone()),
        _ => (Source::Default, option),
    };
    let default = originals.iter().find(|other| other.get_id() == arg.get_id()).map(definition::default);
    Setting {
        key: key(arg).to_owned(),
        value,
        default: default.unwrap_or_default(),
        source,
        secret: is_secret(arg),
        place,
    }
}

/// Whether a connection string has a password.
fn shows_password(text: &str) -> bool {
    let in_authority = text.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let credentials = authority.rsplit_once('@').map(|(credentials, _)| credentials);
        credentials
            .and_then(|credentials| credentials.split_once(':'))
            .is_some_and(|(_, password)| !password.is_empty())
    });
    in_authority || text.split_once("password").is_some_and(|(_, rest)| rest.trim_start().starts_with('='))
}

fn is_open_to_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
}

impl Resolved {
    /// Finds faults of settings that are each valid alone.
    fn checked(self) -> Result<Self, Vec<Fault>> {
        let mut faults: Vec<Fault> = Vec::new();
        for database in &self.databases {
            for (key, text) in database.args.faults(&self.log) {
                let setting = database.settings.iter().find(|setting| setting.key == key);
                let option = || Place::Option(key.replace('_', "-"));
                let place = setting.map_or_else(option, |setting| setting.place.clone());
                let fault = Fault { place, key: Some(key.to_owned()), text };
                // A fault of all databases is found for each.
                if !faults.contains(&fault) {
                    faults.push(fault);
                }
            }
        }
        faults.extend(databases::faults(&self.databases, self.args.memory.0));
        if faults.is_empty() { Ok(self) } else { Err(faults) }
    }

    #[cfg(test)]
    pub(crate) fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Warns of a password where others can read it: in the process list, or in a file that is open to them.
    pub(crate) fn warn_of_passwords(&self) {
        let upstreams = self.databases.iter().flat_map(|database| &database.settings);
        let shown = upstreams.filter(|setting| setting.key == "upstream" && shows_password(&setting.value));
        let sources: Vec<Source> = shown.map(|setting| setting.source).collect();
        if sources.contains(&Source::CommandLine) {
            let advice = "give it in FRESHET_UPSTREAM, in the configuration file or in --upstream-password-file";
            tracing::warn!("the password in --upstream can be read in the process list: {advice}");
        }
        if let Some(path) = self.path().filter(|path| sources.contains(&Source::File) && is_open_to_others(path)) {
            let path = path.display();
            tracing::warn!("{path} has a password, and everybody may read it: chmod o-r {path}");
        }
    }

    /// The file of the configuration.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.args.config.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: &str = "mysql://f:secret@127.0.0.1:1/";

    fn resolved(arguments: &[&str], text: &str) -> Result<Resolved, Vec<Fault>> {
        let Contents { entries, .. } = file::parse(Path::new("f.toml"), text, &settings(&command()))?;
        let all = ["freshet", "serve"].iter().chain(arguments);
        resolve(&all.map(OsString::from).collect::<Vec<_>>(), &entries).and_then(Resolved::checked)
    }

    fn of(resolved: &Resolved, key: &str) -> (String, Source) {
        resolved.setting(key).map(|setting| (setting.value.clone(), setting.source)).expect("a setting")
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_the_file_over_the_default() {
        let text = format!("upstream = \"{MARIADB}\"\nmemory = \"1GiB\"\nbypass = true\nlog = \"warn\"\nverify = 0.5");
        let resolved = resolved(&["--memory", "2GiB", "--bypass=false"], &text).expect("no fault");
        let is = |key: &str, value: &str, source| assert_eq!(of(&resolved, key), (value.to_owned(), source));
        is("memory", "2GiB", Source::CommandLine);
        is("bypass", "false", Source::CommandLine);
        is("verify", "0.5", Source::File);
        is("log", "warn", Source::File);
        is("max_staleness", "1s", Source::Default);
        assert_eq!(resolved.log, "warn");
        let memory = resolved.setting("memory").expect("a setting");
        assert_eq!(memory.default, "512MiB");
        // Values from the file are not moved.
        let keys: Vec<&str> = resolved.settings.iter().map(|setting| setting.key.as_str()).collect();
        let defined = settings(&command());
        assert_eq!(keys, defined.iter().map(key).collect::<Vec<_>>());
    }

    #[test]
    fn options_that_need_each_other_are_checked_wherever_they_come_from() {
        let text = format!("upstream = \"{MARIADB}\"\ntls_cert = \"c\"\nauth = \"cert\"");
        let faults = resolved(&["--listen", "nowhere"], &text).expect_err("three faults");
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert!(faults[0].starts_with("--listen: \"nowhere\" is neither"), "{faults:?}");
        assert_eq!(
            faults[1..],
            [
                "f.toml:2:12: tls_cert: tls_key must be given as well",
                "f.toml:3:8: auth: tls_client_ca must be given as well",
            ]
        );
        assert!(resolved(&["--tls-key", "k"], &text).is_err());
    }

    #[test]
    fn databases_have_settings_of_their_own() {
        let text = "max_staleness = \"2s\"\n[[database]]\nname = \"shop\"\nupstream = \"postgres://f@h/live\"\nbypass = true\n\
                    memory_min = \"64MiB\"\nauth_query = true\n[[database]]\nname = \"other\"\nupstream = \"postgres://f@h/\"\n\
                    max_staleness = \"5s\"\n[[database]]\nname = \"m\"\nupstream = \"mysql://f@h/\"\nlisten = \"127.0.0.1:1\"\n";
        let resolved = resolved(&["--max-staleness", "3s", "--verify", "0.5"], text).expect("no fault");
        let value = |at: usize, key: &str| {
            let database = &resolved.databases[at];
            database
                .settings
                .iter()
                .find(|setting| setting.key == key)
                .map(|setting| (setting.value.clone(), setting.source))
        };
        let labels: Vec<String> = resolved.databases.iter().map(DatabaseConfig::label).collect();
        assert_eq!(labels, ["shop", "other", "m"], "no upstream at the top is one that is not there");
        assert_eq!(value(0, "max_staleness"), Some(("3s".to_owned(), Source::CommandLine)));
        assert_eq!(value(1, "max_staleness"), Some(("5s".to_owned(), Source::File)), "said of one database");
        assert_eq!(value(1, "verify"), Some(("0.5".to_owned(), Source::CommandLine)));
        assert_eq!([0, 1].map(|at| resolved.databases[at].args.bypass), [true, false]);
        assert_eq!((resolved.databases[0].memory_min, resolved.databases[1].memory_max), (64 << 20, u64::MAX));
        assert_eq!(of(&resolved, "max_staleness").0, "3s");
        let with_upstream = self::resolved(&["--upstream", "postgres://f@h/rest"], text).expect("no fault");
        let last = with_upstream.databases.last().expect("four");
        assert_eq!((last.label().as_str(), &last.name, with_upstream.databases.len()), ("rest", &None, 4));
    }

    #[test]
    fn faults_of_databases_have_their_places() {
        let postgres = "upstream = \"postgres://f@h/\"\n";
        let mysql = "upstream = \"mysql://f@h/\"\n";
        for (text, says) in [
            (format!("[[database]]\n{postgres}"), "f.toml:1:1: a [[database]] needs the key name"),
            ("[[database]]\nname = \"a\"\n".to_owned(), "f.toml:1:1: a [[database]] needs the key upstream"),
            (format!("[[database]]\nname = \"a\"\nworkers = 1\n{postgres}"), "f.toml:3:1: unknown key \"workers\""),
            (
                format!("[[database]]\nname = \"a\"\nmax_stalenes = 1\n{postgres}"),
                "f.toml:3:1: unknown key \"max_stalenes\": is max_staleness meant?",
            ),
            (
                format!("[[database]]\nname = 1\n{postgres}"),
                "f.toml:2:8: name: expected a text in quotes, not a number",
            ),
            (
                format!("[[database]]\nname = \"a\"\nverify = 2\n{postgres}"),
                "f.toml:3:10: verify: \"2\": expected a number from 0 to 1",
            ),
            (
                "[[database]]\nname = \"a\"\nupstream = \"mysql://u:geheim@h:99999/\"".to_owned(),
                "f.toml:3:12: upstream: ",
            ),
            (
                format!("[[database]]\nname = \"a\"\n{postgres}[[database]]\nname = \"a\"\n{postgres}"),
                "f.toml:5:8: name: \"a\" is the name of an earlier",
            ),
            (
                format!("slot = \"s\"\n[[database]]\nname = \"a\"\n{postgres}[[database]]\nname = \"b\"\n{postgres}"),
                "f.toml:1:8: slot: each database needs a slot of its own",
            ),
            (
                format!("[[database]]\nname = \"a\"\nlisten = \"127.0.0.1:1\"\n{postgres}"),
                "f.toml:2:8: listen: a PostgreSQL client names",
            ),
            (
                format!("[[database]]\nname = \"a\"\n{postgres}[[database]]\nname = \"b\"\n{mysql}"),
                "f.toml:5:8: listen: needed here",
            ),
            (
                format!("[[database]]\nname = \"a\"\nmemory_min = \"2MiB\"\nmemory_max = \"1MiB\"\n{postgres}"),
                "f.toml:2:8: memory_max: below memory_min",
            ),
            (
                format!("[[database]]\nname = \"a\"\nmemory_min = \"2GiB\"\n{postgres}"),
                "f.toml:2:8: memory_min: all memory_min are 2147483648 bytes",
            ),
            (format!("[[database]]\nname = \"a\"\nlisten = \"x\"\n{mysql}"), "f.toml:2:8: listen: \"x\" is neither"),
            ("database = [1]\n".to_owned(), "f.toml:1:13: each database is a table: [[database]]"),
            ("[database]\nname = \"a\"\n".to_owned(), "f.toml:1:2: unknown section \"database\""),
        ] {
            let faults = resolved(&[], &text).expect_err(&text);
            let said = faults.iter().map(ToString::to_string).collect::<String>();
            assert!(faults.len() == 1 && said.starts_with(says) && !said.contains("geheim"), "{text}\n{said}");
        }
        assert!(
            resolved(&[], &format!("[[database]]\nname = \"b\"\n{mysql}")).is_ok(),
            "it has the addresses at the top"
        );
    }

    #[test]
    fn the_entry_for_any_database_has_a_server_to_itself() {
        let postgres = "upstream = \"postgres://f@h/\"\n";
        let mysql = "upstream = \"mysql://f@h/\"\n";
        for (text, says) in [
            (
                format!("upstream = \"postgres://f@h/d\"\n[[database]]\nname = \"*\"\n{postgres}"),
                "f.toml:3:8: name: upstream at the top takes all names",
            ),
            (
                format!("[[database]]\nname = \"*\"\n{mysql}"),
                "f.toml:2:8: name: one entry has all databases of a server of MySQL",
            ),
            (
                format!("[[database]]\nname = \"*\"\nslot = \"s\"\n{postgres}"),
                "f.toml:3:8: slot: the databases of the entry \"*\" have temporary slots",
            ),
            (
                format!("[[database]]\nname = \"*\"\nmemory_min = \"64MiB\"\n{postgres}"),
                "f.toml:2:8: memory_min: all memory_min are 1342177280 bytes",
            ),
        ] {
            let faults = resolved(&[], &text).expect_err(&text);
            let said = faults.iter().map(ToString::to_string).collect::<String>();
            assert!(faults.len() == 1 && said.starts_with(says), "{text}\n{said}");
        }
    }

    #[test]
    fn faults_of_an_upstream_do_not_repeat_it() {
        let faults = resolved(&[], "upstream = \"mysql://u:geheim@h:99999/\"").expect_err("a fault");
        let said = faults.iter().map(ToString::to_string).collect::<String>();
        assert!(said.starts_with("f.toml:1:12: upstream: ") && !said.contains("geheim"), "{said}");
    }

    #[test]
    fn passwords_in_connection_strings_are_seen() {
        for text in [MARIADB, "postgres://u:p@h/d", "host=h password=p", "postgres://h/d?password=p", "password = 'p'"]
        {
            assert!(shows_password(text), "{text}");
        }
        for text in ["", "postgres://u@h/d", "postgres://h:5432/d", "host=h passfile=/x", "postgres://u:@h:1/d"] {
            assert!(!shows_password(text), "{text}");
        }
    }
}
