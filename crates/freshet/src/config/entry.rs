//! A key of the file, with its value in the form of the command line.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeValue};

use crate::config::definition::{self, Kind, expected, key, may_stand_alone};
use crate::config::fault::Place;
use crate::config::written::{Written, in_words, nearest};

/// The value of a setting in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The values in the form of the command line.
    pub(crate) values: Vec<String>,
    /// Where the value is.
    pub(crate) place: Place,
    /// The number of its `[[database]]`. None if the key is at the top.
    pub(crate) database: Option<usize>,
}

/// The fault of an unknown key.
pub(super) fn unknown(name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>, settings: &[Arg]) -> Option<String> {
    let name = name.get_ref().as_ref();
    if settings.iter().any(|arg| key(arg) == name) {
        return None;
    }
    if value.get_ref().is_table() {
        return Some(format!(
            "unknown section {name:?}: all keys are at the top of the file, but those of a [[database]] or [[rule]]"
        ));
    }
    Some(match nearest(name, settings.iter().map(key)) {
        Some(key) => format!("unknown key {name:?}: is {key} meant?"),
        None => format!("unknown key {name:?}: `freshet config default` prints all keys"),
    })
}

/// The entry of a key, or the fault of its value.
pub(super) fn entry(
    file: &Written<'_>,
    name: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    settings: &[Arg],
) -> Result<Entry, String> {
    if let Some(why) = unknown(name, value, settings) {
        return Err(why);
    }
    let name = name.get_ref().as_ref();
    let arg = settings.iter().find(|arg| key(arg) == name).ok_or("unknown key")?;
    let typed = typed(arg, value.get_ref())
        .ok_or_else(|| format!("expected {}, not {}", expected(arg), in_words(value.get_ref())))?;
    Ok(Entry { key: name.to_owned(), values: checked(arg, &typed)?, place: file.place(&value.span()), database: None })
}

/// The value in the form of the command line. None if the setting needs a value of another type.
fn typed(arg: &Arg, value: &DeValue<'_>) -> Option<Vec<String>> {
    let one = match (Kind::of(arg), value) {
        (Kind::Flag, DeValue::Boolean(on)) => on.to_string(),
        (Kind::Integer | Kind::Size | Kind::Share, DeValue::Integer(number)) => whole(number)?,
        (Kind::Share, DeValue::Float(number)) => number.as_str().to_owned(),
        (Kind::Flag | Kind::Integer, _) => return None,
        (Kind::List, DeValue::Array(values)) => {
            return values.iter().map(|value| value.get_ref().as_str().map(str::to_owned)).collect();
        }
        (Kind::Text, DeValue::Boolean(true)) if may_stand_alone(arg) => return Some(Vec::new()),
        (_, DeValue::String(text)) => text.to_string(),
        _ => return None,
    };
    Some(vec![one])
}

fn whole(number: &DeInteger<'_>) -> Option<String> {
    i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
}

/// Parses the value as the command line does. Returns the values of the option.
pub(crate) fn checked(arg: &Arg, typed: &[String]) -> Result<Vec<String>, String> {
    let alone = arg.clone().env(clap::builder::Resettable::Reset).global(false);
    let probe = Command::new("freshet").no_binary_name(true).disable_help_flag(true).arg(alone);
    let option = definition::option(arg);
    let argument = match typed {
        [] => format!("--{option}"),
        values => format!("--{option}={}", values.join(",")),
    };
    let matches = probe.try_get_matches_from([argument]).map_err(|error| refusal(arg, typed, &error))?;
    let raw = matches.get_raw(key(arg)).into_iter().flatten();
    Ok(raw.map(|value| value.to_string_lossy().into_owned()).collect())
}

/// Why the command line rejects the value.
fn refusal(arg: &Arg, typed: &[String], error: &clap::Error) -> String {
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.clone(),
        _ => typed.join(","),
    };
    let value = if definition::is_secret(arg) { "the value".to_owned() } else { format!("{value:?}") };
    match (Kind::of(arg), std::error::Error::source(error)) {
        // The text names the expected value.
        (Kind::Size | Kind::Time, Some(why)) => format!("{value}: {why}"),
        (Kind::Integer, Some(why)) => format!("{value}: {why}; expected {}", expected(arg)),
        _ => format!("{value}: expected {}", expected(arg)),
    }
}
