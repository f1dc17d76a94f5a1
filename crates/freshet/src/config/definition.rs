//! The settings, as the definition of the command line has them.

use std::any::TypeId;
use std::net::SocketAddr;

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory};
use freshet_units::{MemorySize, Share, Span};

use crate::cli::Cli;

/// Options of `freshet serve` that are not settings: they name the file of the settings, or break the protocol for tests.
const NOT_SETTINGS: &[&str] = &["config", "check_config", "test_fault", "help", "version"];
/// The options that all commands have.
const LOG: [&str; 2] = ["log", "log_format"];

/// The kind of a value, as far as the file needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flag,
    Integer,
    Share,
    Size,
    Time,
    Choice,
    Address,
    List,
    Text,
}

/// The program's command line, with an environment variable for each setting.
pub(crate) fn command() -> Command {
    Cli::command().mut_subcommand("serve", |serve| serve.mut_args(with_variable))
}

/// All settings, in the order of the help text.
pub(crate) fn settings(command: &Command) -> Vec<Arg> {
    let serve = command.find_subcommand("serve").into_iter().flat_map(Command::get_arguments);
    let is_log = |arg: &&Arg| LOG.contains(&key(arg));
    let log = command.get_arguments().filter(is_log);
    serve.filter(|arg| !is_log(arg) && is_setting(arg)).chain(log).cloned().collect()
}

/// The name of the option, without `--`.
pub(crate) fn option(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_default()
}

/// The name in the file.
pub(crate) fn key(arg: &Arg) -> &str {
    arg.get_id().as_str()
}

/// The name in the environment.
pub(crate) fn variable(key: &str) -> String {
    format!("FRESHET_{}", key.to_ascii_uppercase())
}

/// Whether the value must not be shown.
pub(crate) fn is_secret(arg: &Arg) -> bool {
    arg.is_hide_env_values_set()
}

/// Whether the option may stand without a value.
pub(crate) fn may_stand_alone(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.min_values() == 0)
}

/// The default in the form of the command line. Empty if there is none.
pub(crate) fn default(arg: &Arg) -> String {
    let values = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    values.collect::<Vec<_>>().join(",")
}

impl Kind {
    pub(crate) fn of(arg: &Arg) -> Self {
        let parser = arg.get_value_parser().type_id();
        let is = |id: TypeId| parser == id;
        match () {
            () if arg.get_value_delimiter().is_some() => Self::List,
            () if is(TypeId::of::<bool>()) => Self::Flag,
            () if !arg.get_possible_values().is_empty() => Self::Choice,
            () if is(TypeId::of::<MemorySize>()) => Self::Size,
            () if is(TypeId::of::<Span>()) => Self::Time,
            () if is(TypeId::of::<Share>()) => Self::Share,
            () if is(TypeId::of::<u32>()) || is(TypeId::of::<usize>()) => Self::Integer,
            () if is(TypeId::of::<SocketAddr>()) => Self::Address,
            () => Self::Text,
        }
    }
}

/// The expected value, in words.
pub(crate) fn expected(arg: &Arg) -> String {
    match Kind::of(arg) {
        Kind::Flag => "true or false".to_owned(),
        Kind::Integer => "a whole number".to_owned(),
        Kind::Share => "a number from 0 to 1".to_owned(),
        Kind::Size => "a size such as \"512MiB\" or \"2GiB\"".to_owned(),
        Kind::Time => "a time such as \"250ms\", \"1s\" or \"2m\"".to_owned(),
        Kind::Choice => {
            let names = arg.get_possible_values().iter().map(|value| format!("\"{}\"", value.get_name())).collect();
            in_words(names)
        }
        Kind::Address => "an address and a port such as \"127.0.0.1:9127\"".to_owned(),
        Kind::List => "a text, or a list of texts in brackets".to_owned(),
        Kind::Text => "a text in quotes".to_owned(),
    }
}

fn in_words(mut names: Vec<String>) -> String {
    match (names.pop(), names.is_empty()) {
        (Some(last), false) => format!("{} or {last}", names.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

fn is_setting(arg: &Arg) -> bool {
    arg.get_long().is_some() && !NOT_SETTINGS.contains(&key(arg))
}

/// Gives a setting its environment variable. A switch may have a value, so that the command line can revoke what the file sets.
fn with_variable(arg: Arg) -> Arg {
    if !is_setting(&arg) {
        return arg;
    }
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let variable = variable(key(&arg));
    let arg = arg.env(variable);
    if !is_switch {
        return arg;
    }
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .default_value("false")
        .hide_default_value(true)
        .value_name("true|false")
        .value_parser(BoolishValueParser::new())
        .hide_possible_values(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_name_of_its_option() {
        let settings = settings(&command());
        assert!(settings.len() > 25, "{settings:?}");
        for arg in &settings {
            assert_eq!(key(arg), option(arg).replace('-', "_"));
            let named = arg.get_env().map(|name| name.to_string_lossy().into_owned());
            assert_eq!(named, Some(variable(key(arg))));
        }
    }

    #[test]
    fn kinds_are_those_of_the_types() {
        let settings = settings(&command());
        let kind = |name: &str| settings.iter().find(|arg| key(arg) == name).map(Kind::of);
        for (name, is) in [
            ("memory", Kind::Size),
            ("max_staleness", Kind::Time),
            ("verify", Kind::Share),
            ("workers", Kind::Integer),
            ("slot_lag_seconds", Kind::Integer),
            ("login_failures_max", Kind::Integer),
            ("bypass", Kind::Flag),
            ("auth", Kind::Choice),
            ("admission", Kind::Choice),
            ("http", Kind::Address),
            ("listen", Kind::List),
            ("upstream", Kind::Text),
            ("auth_query", Kind::Text),
            ("log", Kind::Text),
            ("log_format", Kind::Choice),
        ] {
            assert_eq!(kind(name), Some(is), "{name}");
        }
    }
}
