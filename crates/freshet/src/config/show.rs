//! `freshet config default`, `schema` and `reference`: the definition of the settings in three forms.

use std::fmt::Write as _;

use clap::{Arg, Command};
use serde_json::{Map, Value, json};

use crate::config::databases;
use crate::config::definition::{self, Kind, default, is_secret, key, may_stand_alone, option, variable};
use crate::config::rules;
use crate::config::running::{is_reloaded, is_reloaded_of_entry};

/// Width of a comment in the file.
const COLUMNS: usize = 100;

/// The commented file. Each key is commented out, with its default or an example.
pub(crate) fn sample(command: &Command) -> String {
    let mut out = "# The configuration of Freshet: `freshet serve --config freshet.toml`.\n\
                   # Each key is also an option (max_staleness: --max-staleness) and a variable of the environment\n\
                   # (FRESHET_MAX_STALENESS). The command line wins over the environment, the environment over this file.\n\
                   # What is commented out has its default. Freshet reads the file again when it changes, after SIGHUP, and\n\
                   # by the SQL command RELOAD.\n"
        .to_owned();
    for arg in definition::settings(command) {
        out.push('\n');
        let reload = if is_reloaded(key(&arg)) { "" } else { " A change needs a restart." };
        let none = if default(&arg).is_empty() { " No default." } else { "" };
        comment(&mut out, &format!("{}.{none}{reload}", help(&arg)));
        let value = if default(&arg).is_empty() { example(&arg) } else { default(&arg) };
        _ = writeln!(out, "#{} = {}", key(&arg), literal(&arg, &value));
    }
    out.push_str(SAMPLE_DATABASES);
    out.push_str("\n# Rules for statements; the first that matches decides (docs/guide/rules.md). A rule has any of these keys:\n");
    for (key, text) in rules::KEYS {
        comment(&mut out, &format!("{key}: {text}."));
    }
    out.push_str("# [[rule]]\n# application_name = \"report\"\n# cache = \"never\"\n");
    out
}

/// An example of several databases.
const SAMPLE_DATABASES: &str = r#"
# Several databases: a table for each, with a name, an upstream, and any of the keys that docs/reference/options.md lists
# for [[database]]. The keys above hold for all of them.
# [[database]]
# name = "shop"
# upstream = "postgres://freshet@db.example.com:5432/shop"
# max_staleness = "500ms"
# memory_min = "64MiB"
"#;

fn comment(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column == 0 || column + word.len() >= COLUMNS {
            out.push_str(if column == 0 { "#" } else { "\n#" });
            column = 1;
        }
        _ = write!(out, " {word}");
        column += word.len() + 1;
    }
    out.push('\n');
}

fn help(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    if Kind::of(arg) != Kind::Choice {
        return help;
    }
    let choice = |value: &clap::builder::PossibleValue| match value.get_help() {
        Some(help) => format!("\"{}\" {help}", value.get_name()),
        None => format!("\"{}\"", value.get_name()),
    };
    format!("{help}: {}", arg.get_possible_values().iter().map(choice).collect::<Vec<_>>().join("; "))
}

/// A value for a setting without default.
fn example(arg: &Arg) -> String {
    match key(arg) {
        "upstream" => "postgres://freshet@db.example.com:5432/shop".to_owned(),
        "patroni" => "http://db1.example.com:8008".to_owned(),
        "replica_lag_max" => "10s".to_owned(),
        "replica_weights" => "db2.example.com=3".to_owned(),
        "listen" => "127.0.0.1:6432".to_owned(),
        "http" => "127.0.0.1:9127".to_owned(),
        "workers" => "4".to_owned(),
        "price" => "4.50 USD".to_owned(),
        key => {
            let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
            name.filter(|name| !name.eq_ignore_ascii_case(key)).unwrap_or_else(|| "name".to_owned()).to_lowercase()
        }
    }
}

/// The value as TOML.
pub(crate) fn literal(arg: &Arg, value: &str) -> String {
    match Kind::of(arg) {
        Kind::Flag | Kind::Integer | Kind::Share => value.to_owned(),
        Kind::List => format!("[{}]", value.split(',').map(quoted).collect::<Vec<_>>().join(", ")),
        _ => quoted(value),
    }
}

/// A JSON text is also a TOML text.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A JSON schema of the file.
pub(crate) fn schema(command: &Command) -> String {
    let property = |arg: Arg| (key(&arg).to_owned(), Value::Object(property(&arg)));
    let mut properties: Map<String, Value> = definition::settings(command).into_iter().map(property).collect();
    let of_databases: Map<String, Value> = databases::keys().into_iter().map(property).collect();
    properties.insert(
        databases::TABLE.to_owned(),
        json!({
            "description": "Several databases in one instance",
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["name", "upstream"],
                "properties": of_databases,
            },
        }),
    );
    properties.insert(rules::KEY.to_owned(), rules_schema());
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of Freshet",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    format!("{schema:#}\n")
}

fn rules_schema() -> Value {
    let key = |(key, text): (&str, &str)| {
        let names = freshet_proxy::Caching::NAMES.map(|(name, _)| name);
        let is = match key {
            "cache" => json!({ "enum": names }),
            rules::LOG => json!({ "type": "boolean" }),
            _ => json!({ "type": "string" }),
        };
        let Value::Object(mut is) = is else { return (key.to_owned(), is) };
        is.insert("description".to_owned(), text.into());
        (key.to_owned(), Value::Object(is))
    };
    let properties: Map<String, Value> = rules::KEYS.into_iter().map(key).collect();
    json!({
        "description": "Rules for statements; the first that matches decides",
        "type": "array",
        "items": { "type": "object", "additionalProperties": false, "properties": properties },
        "x-reload": true,
    })
}

fn property(arg: &Arg) -> Map<String, Value> {
    let is = match Kind::of(arg) {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Integer => json!({ "type": "integer", "minimum": 0 }),
        Kind::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Size => json!({ "type": ["string", "integer"], "minimum": 0 }),
        Kind::Choice => {
            let names: Vec<String> =
                arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
            json!({ "enum": names })
        }
        Kind::List => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
        Kind::Text if may_stand_alone(arg) => json!({ "anyOf": [{ "type": "string" }, { "const": true }] }),
        Kind::Time | Kind::Address | Kind::Text => json!({ "type": "string" }),
    };
    let mut property = Map::from_iter([
        ("description".to_owned(), help(arg).into()),
        ("x-reload".to_owned(), is_reloaded(key(arg)).into()),
    ]);
    if arg.get_env().is_some() {
        property.insert("x-option".to_owned(), format!("--{}", option(arg)).into());
        property.insert("x-variable".to_owned(), variable(key(arg)).into());
    }
    if let Value::Object(is) = is {
        property.extend(is);
    }
    if !default(arg).is_empty() {
        property.insert("default".to_owned(), of_kind(arg, &default(arg)));
    }
    if is_secret(arg) {
        property.insert("writeOnly".to_owned(), true.into());
    }
    property
}

/// The value as JSON.
fn of_kind(arg: &Arg, value: &str) -> Value {
    match Kind::of(arg) {
        Kind::Flag | Kind::Integer | Kind::Share => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        _ => value.into(),
    }
}

/// The table of options in docs/reference/options.md.
pub(crate) fn reference(command: &Command) -> String {
    let mut out = "| option | key | variable | default | reload | |\n|---|---|---|---|---|---|\n".to_owned();
    let serve = command.find_subcommand("serve").into_iter().flat_map(Command::get_arguments);
    for arg in serve.filter(|arg| ["config", "check_config"].contains(&key(arg))) {
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        _ = writeln!(out, "| `--{}` | | {variable} | | | {} |", option(arg), cell(&help(arg)));
    }
    for arg in definition::settings(command) {
        let quoted = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let reload = if is_reloaded(key(&arg)) { "yes" } else { "restart" };
        let (key, text) = (key(&arg), cell(&help(&arg)));
        let (option, variable, default) = (option(&arg), variable(key), quoted(&default(&arg)));
        _ = writeln!(out, "| `--{option}` | `{key}` | `{variable}` | {default} | {reload} | {text} |");
    }
    out
}

/// The table of keys of a database in docs/reference/options.md.
pub(crate) fn reference_of_databases() -> String {
    let mut out = "| key | reload | |\n|---|---|---|\n".to_owned();
    for arg in databases::keys() {
        let reload = if is_reloaded(key(&arg)) || is_reloaded_of_entry(key(&arg)) { "yes" } else { "restart" };
        let text = if arg.get_env().is_some() { "as the option".to_owned() } else { cell(&help(&arg)) };
        _ = writeln!(out, "| `{}` | {reload} | {text} |", key(&arg));
    }
    out
}

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::definition::{command, settings};
    use crate::config::file::parse;

    /// The sample with these commented keys set.
    fn set(sample: &str, wanted: impl Fn(&str) -> bool) -> String {
        let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
        let keys = sample.lines().filter(is_key).map(|line| line.trim_start_matches('#'));
        keys.filter(|line| wanted(line.split(' ').next().unwrap_or_default())).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_sample_has_every_key_and_its_default() {
        let (sample, settings) = (sample(&command()), settings(&command()));
        let parsed = |text: &str| parse(Path::new("sample"), text, &settings).map(|contents| contents.entries);
        assert_eq!(parsed(&sample), Ok(Vec::new()), "all of it is commented out");
        let all = parsed(&set(&sample, |_| true)).expect("no fault");
        assert_eq!(all.len(), settings.len());
        for arg in settings.iter().filter(|arg| !default(arg).is_empty()) {
            let entry = parsed(&set(&sample, |name| name == key(arg))).expect("no fault");
            assert_eq!(entry[0].values.join(","), default(arg), "{}", key(arg));
        }
    }

    #[test]
    fn the_schema_has_every_key() {
        let schema: Value = serde_json::from_str(&schema(&command())).expect("JSON");
        let properties = schema["properties"].as_object().expect("an object");
        // The two others are the databases and the rules.
        assert_eq!(properties.len(), settings(&command()).len() + 2);
        let of_databases = properties["database"]["items"]["properties"].as_object().expect("an object");
        assert!(of_databases.contains_key("memory_min") && of_databases.contains_key("max_staleness"));
        assert_eq!(properties["auth"]["enum"], json!(["auto", "trust", "cert"]));
        assert_eq!(properties["verify"]["default"], json!(0));
        assert_eq!(properties["memory"]["default"], json!("512MiB"));
        assert_eq!(properties["upstream"]["writeOnly"], json!(true));
        assert_eq!(properties["listen"]["x-variable"], json!("FRESHET_LISTEN"));
    }

    #[test]
    fn the_reference_is_the_programs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/options.md");
        let page = std::fs::read_to_string(path).expect("the page");
        assert!(
            page.contains(&reference_of_databases()),
            "not in docs/reference/options.md:\n{}",
            reference_of_databases()
        );
        assert!(page.contains(&reference(&command())), "not in docs/reference/options.md: `freshet config reference`");
    }
}
