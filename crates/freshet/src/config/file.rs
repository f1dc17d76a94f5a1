//! The file: TOML, each key the name of a setting, `[[database]]` for each of several databases, and [`rules`].
//!
//! All faults of a file are found at once. A value is checked by the parser of its option, so that the file and the command line accept the same
//! values.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use clap::Arg;
use freshet_proxy::RuleText;
use toml::de::{DeTable, DeValue};

use crate::config::databases;
use crate::config::entry::{Entry, entry, unknown};
use crate::config::fault::{Fault, Place};
use crate::config::rules;
use crate::config::written::Written;
use crate::exit;

/// The largest file that is accepted.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) entries: Vec<Entry>,
    pub(crate) rules: Vec<RuleText>,
}

/// Reads and checks the file.
pub(crate) fn read(path: &Path, settings: &[Arg]) -> Result<Contents, Vec<Fault>> {
    let whole = |text: String| {
        vec![Fault { place: Place::File { path: path.to_owned(), line: 0, column: 0 }, key: None, text }]
    };
    let unreadable = |error| whole(format!("cannot be read: {}", exit::unreadable(&error)));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > FILE_BYTES_MAX {
        return Err(whole(format!("has {size} bytes; a configuration has at most {FILE_BYTES_MAX}")));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|error| whole(format!("is not UTF-8: {error}")))?;
    parse(path, &text, settings)
}

/// Checks the text of the file.
pub(crate) fn parse(path: &Path, text: &str, settings: &[Arg]) -> Result<Contents, Vec<Fault>> {
    let file = Written { path: path.to_owned(), text };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut faults: Vec<(Range<usize>, Fault)> = Vec::new();
    for error in &errors {
        let span = error.span().unwrap_or_default();
        let text = error.message().lines().collect::<Vec<_>>().join("; ");
        faults.push((span.clone(), file.fault(&span, None, text)));
    }
    // A line with broken syntax may be taken for anything, so its other faults are dropped.
    let broken: HashSet<usize> = faults.iter().map(|(span, _)| file.position(span.start).0).collect();
    let (mut entries, mut rules) = (Vec::new(), Vec::new());
    for (name, value) in table.get_ref() {
        if let (databases::TABLE, DeValue::Array(tables)) = (name.get_ref().as_ref(), value.get_ref()) {
            databases::entries(&file, tables, &mut entries, &mut faults);
            continue;
        }
        if name.get_ref() == rules::KEY {
            rules = rules::read(&file, (value.span(), value.get_ref()), &mut faults);
            continue;
        }
        let span = if unknown(name, value, settings).is_some() { name.span() } else { value.span() };
        if broken.contains(&file.position(span.start).0) {
            continue;
        }
        match entry(&file, name, value, settings) {
            Ok(entry) => entries.push(entry),
            Err(text) => {
                let known = unknown(name, value, settings).is_none();
                let key = known.then(|| name.get_ref().to_string());
                faults.push((span.clone(), file.fault(&span, key, text)));
            }
        }
    }
    if faults.is_empty() {
        return Ok(Contents { entries, rules });
    }
    faults.sort_by_key(|(span, _)| span.start);
    Err(faults.into_iter().map(|(_, fault)| fault).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::definition::{command, settings};

    fn parsed(text: &str) -> Result<Vec<Entry>, Vec<String>> {
        let faults = |faults: Vec<Fault>| faults.iter().map(ToString::to_string).collect();
        parse(Path::new("f.toml"), text, &settings(&command())).map(|contents| contents.entries).map_err(faults)
    }

    /// The only fault of a file.
    fn fault(text: &str) -> String {
        let faults = parsed(text).expect_err(text);
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.concat()
    }

    #[test]
    fn values_are_what_would_be_typed() {
        let text = "memory = 1_048_576\nlisten = [\"127.0.0.1:1\", \"/run/f\"]\nadmin_users = \"a,b\"\nverify = 0.25\n\
                    bypass = true\nauth_query = true\nworkers = 0x10\nupstream = 'x'\nmax_staleness = \"2s\"\nrefresh_share = 1\n";
        let entries = parsed(text).expect("no fault");
        let value = |name: &str| entries.iter().find(|entry| entry.key == name).map(|entry| entry.values.join("|"));
        for (key, is) in [
            ("memory", "1048576"),
            ("listen", "127.0.0.1:1|/run/f"),
            ("admin_users", "a|b"),
            ("verify", "0.25"),
            ("bypass", "true"),
            ("auth_query", "SELECT usename, passwd FROM freshet.user_lookup($1)"),
            ("workers", "16"),
            ("upstream", "x"),
            ("max_staleness", "2s"),
            ("refresh_share", "1"),
        ] {
            assert_eq!(value(key).as_deref(), Some(is), "{key}");
        }
        assert_eq!(entries.len(), 10);
    }

    #[test]
    fn each_fault_has_its_place_and_says_what_is_expected() {
        for (text, says) in [
            ("\n  max_stalenes = \"1s\"", "f.toml:2:3: unknown key \"max_stalenes\": is max_staleness meant?"),
            ("max-staleness = \"1s\"", "f.toml:1:1: unknown key \"max-staleness\": is max_staleness meant?"),
            ("zzzzzz = 1", "f.toml:1:1: unknown key \"zzzzzz\": `freshet config default` prints all keys"),
            (
                "[limits]\nsize = 1",
                "f.toml:1:2: unknown section \"limits\": all keys are at the top of the file, but those of a [[database]] or [[rule]]",
            ),
            (
                "memory = \"much\"",
                "f.toml:1:10: memory: \"much\": invalid digit found in string: a size is 65536, 512MiB or 2GiB",
            ),
            ("memory = true", "f.toml:1:10: memory: expected a size such as \"512MiB\" or \"2GiB\", not true or false"),
            (
                "commit_wait = 5",
                "f.toml:1:15: commit_wait: expected a time such as \"250ms\", \"1s\" or \"2m\", not a number",
            ),
            ("bypass = \"yes\"", "f.toml:1:10: bypass: expected true or false, not a text"),
            ("verify = 2", "f.toml:1:10: verify: \"2\": expected a number from 0 to 1"),
            ("auth = \"pam\"", "f.toml:1:8: auth: \"pam\": expected \"auto\", \"trust\" or \"cert\""),
            (
                "slot_lag_seconds = 0",
                "f.toml:1:20: slot_lag_seconds: \"0\": 0 is not in 1..=4294967295; expected a whole number",
            ),
            (
                "http = \"9127\"",
                "f.toml:1:8: http: \"9127\": expected an address and a port such as \"127.0.0.1:9127\"",
            ),
            ("listen = [1]", "f.toml:1:10: listen: expected a text, or a list of texts in brackets, not a list"),
            ("upstream = 1", "f.toml:1:12: upstream: expected a text in quotes, not a number"),
            ("# é\npublication = 2020-01-01", "f.toml:2:15: publication: expected a text in quotes, not a date"),
        ] {
            assert_eq!(fault(text), says);
        }
    }

    #[test]
    fn all_faults_are_found_at_once_in_their_order() {
        let text = "bypass = 1\nmemory = \nlog = \"info\"\nlog = \"debug\"\nverify = \"x\"\nupstrem = \"\"\n";
        let faults = parsed(text).expect_err("five faults");
        let places: Vec<&str> = faults.iter().filter_map(|fault| fault.split(' ').next()).collect();
        assert_eq!(
            places,
            ["f.toml:1:10:", "f.toml:2:10:", "f.toml:4:1:", "f.toml:5:10:", "f.toml:6:1:"],
            "{faults:#?}"
        );
        assert!(parsed("= 1").is_err() && parsed("[").is_err() && parsed("a.b = 1").is_err());
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let read = |path: &str| read(Path::new(path), &settings(&command())).expect_err(path);
        let said = read("/nowhere/freshet.toml").iter().map(ToString::to_string).collect::<String>();
        assert!(said.starts_with("/nowhere/freshet.toml: cannot be read: No such file"), "{said}");
        assert!(read("/")[0].text.starts_with("cannot be read"));
    }
}
