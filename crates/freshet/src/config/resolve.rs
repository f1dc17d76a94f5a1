//! The settings in force, from all places where they may be given.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};

use freshet_net::{Upstream, mysql};

use crate::config::definition::{self, command, is_secret, key, settings};
use crate::config::fault::{Fault, Place};
use crate::config::file::{self, Entry};
use crate::logging::LogFormat;
use crate::serve::ServeArgs;

/// Where a value comes from. The earlier wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    CommandLine,
    Environment,
    File,
    Default,
}

impl Source {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::CommandLine => "command line",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// The value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    /// As it would be typed; empty if there is none.
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) source: Source,
    pub(crate) secret: bool,
    place: Place,
}

impl Setting {
    /// The value for people: without what must not be shown.
    pub(crate) fn shown(&self) -> String {
        if !self.secret || self.value.is_empty() {
            return self.value.clone();
        }
        // Neither says user or password.
        let mysql = mysql::Upstream::parse(&self.value).map(|upstream| upstream.to_string()).ok();
        let upstream = mysql.or_else(|| Upstream::parse(&self.value).map(|upstream| upstream.to_string()).ok());
        upstream.unwrap_or_else(|| "***".to_owned())
    }
}

/// All settings, and what they are for the parts of the program.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) args: ServeArgs,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    pub(crate) settings: Vec<Setting>,
}

/// Reads the configuration that a command line of `freshet serve` names. Err: all that is wrong.
pub(crate) fn read(arguments: &[OsString]) -> Result<Resolved, Vec<Fault>> {
    let matches = command().try_get_matches_from(arguments).map_err(|error| usage(&error))?;
    let serve = matches.subcommand_matches("serve").unwrap_or(&matches);
    let path: Option<&PathBuf> = serve.try_get_one("config").ok().flatten();
    let known = settings(&command());
    let entries = path.map_or_else(|| Ok(Vec::new()), |path| file::read(path, &known))?;
    resolve(arguments, &entries).and_then(Resolved::checked)
}

/// What is wrong with the variables of the environment, which the parser of the command line takes for options.
pub(crate) fn environment_faults() -> Vec<Fault> {
    let fault = |arg: &Arg| {
        let variable = definition::variable(key(arg));
        let value = std::env::var(&variable).ok()?;
        let text = file::checked(arg, &[value]).err()?;
        Some(Fault { place: Place::Variable(variable), key: None, text })
    };
    settings(&command()).iter().filter_map(fault).collect()
}

/// The settings of a command line, the environment and the entries of a file.
fn resolve(arguments: &[OsString], entries: &[Entry]) -> Result<Resolved, Vec<Fault>> {
    let originals = settings(&command());
    let command = with_defaults(command(), entries);
    let matches = command.clone().try_get_matches_from(arguments).map_err(|error| usage(&error))?;
    let serve = matches.subcommand_matches("serve").unwrap_or(&matches);
    let settings = settings(&command).iter().map(|arg| setting(arg, serve, entries, &originals)).collect();
    let args = ServeArgs::from_arg_matches(serve).map_err(|error| usage(&error))?;
    let log = serve.get_one::<String>("log").cloned().unwrap_or_default();
    let log_format = serve.get_one("log_format").copied().unwrap_or(LogFormat::Text);
    Ok(Resolved { args, log, log_format, settings })
}

/// The parser's own words.
fn usage(error: &clap::Error) -> Vec<Fault> {
    vec![Fault { place: Place::Option("config".to_owned()), key: None, text: error.to_string() }]
}

/// The file's values as default values. The order of the options stays.
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
    /// Finds what is wrong with settings that are right one by one.
    fn checked(self) -> Result<Self, Vec<Fault>> {
        let mut faults: Vec<Fault> = Vec::new();
        for (key, text) in self.args.faults(&self.log) {
            let setting = self.settings.iter().find(|setting| setting.key == key);
            let place = setting.map_or_else(|| Place::Option(key.replace('_', "-")), |setting| setting.place.clone());
            faults.push(Fault { place, key: Some(key.to_owned()), text });
        }
        if faults.is_empty() { Ok(self) } else { Err(faults) }
    }

    pub(crate) fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Warns of a password where others can read it: in the process list, or in a file that is open to them.
    pub(crate) fn warn_of_passwords(&self) {
        let Some(upstream) = self.setting("upstream").filter(|setting| shows_password(&setting.value)) else { return };
        let advice = "give it in FRESHET_UPSTREAM, in the configuration file or in --upstream-password-file";
        match (upstream.source, self.path()) {
            (Source::CommandLine, _) => {
                tracing::warn!("the password in --upstream can be read in the process list: {advice}");
            }
            (Source::File, Some(path)) if is_open_to_others(path) => {
                let path = path.display();
                tracing::warn!("{path} has a password, and everybody may read it: chmod o-r {path}");
            }
            _ => {}
        }
    }

    /// The file that they were read from.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.args.config.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: &str = "mysql://f:secret@127.0.0.1:1/";

    fn resolved(arguments: &[&str], text: &str) -> Result<Resolved, Vec<Fault>> {
        let entries = file::parse(Path::new("f.toml"), text, &settings(&command()))?;
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
        // What the file names is not moved.
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
