//! The rules of the file: `[[rule]]` tables, in the order in which they are tried.

use std::ops::Range;

use freshet_proxy::{Caching, NewCache, RuleText, Way};
use toml::de::{DeTable, DeValue};

use crate::config::fault::Fault;
use crate::config::written::{Written, in_words, nearest};
use crate::serve::nanos;

/// The key of the tables.
pub(crate) const KEY: &str = "rule";
/// The keys of a rule, with what they are.
pub(crate) const KEYS: [(&str, &str); 13] = [
    ("name", "A name for SHOW RULES"),
    ("digest", "The digest of the statement, as SHOW CACHES and SHOW PROXIED QUERIES show it"),
    ("user", "The user that the session has logged in as"),
    ("database", "The database of the session"),
    ("table", "A table that the statement names: table, or schema.table"),
    ("query", "A regular expression for the statement with parameters in place of its constants and without comments"),
    ("application_name", "application_name of the session; MySQL and MariaDB: its attribute program_name"),
    ("cache", "What is cached: as without the rule (auto), always, or never"),
    ("ttl", "How long a result is served that changes do not invalidate, such as one with the time of day: 10s"),
    ("timeout", "After how long the statement is cancelled at the database: 5s"),
    ("route", "PostgreSQL: where what is not in the cache is read: primary, or replica, if one may answer"),
    ("log", "true: the statement goes to the query log, however short it took (--query-log)"),
    ("refuse", "The statement is refused, with this message"),
];

/// The key whose value is no text.
pub(crate) const LOG: &str = "log";

/// Reads the tables. What is wrong goes to the faults, each with its place.
pub(super) fn read(
    file: &Written<'_>,
    (span, value): (Range<usize>, &DeValue<'_>),
    faults: &mut Vec<(Range<usize>, Fault)>,
) -> Vec<RuleText> {
    let Some(tables) = value.as_array() else {
        let text = format!("expected tables under [[{KEY}]], not {}", in_words(value));
        faults.push((span.clone(), file.fault(&span, Some(KEY.to_owned()), text)));
        return Vec::new();
    };
    let mut rules = Vec::new();
    for table in tables {
        let span = table.span();
        if let Some(keys) = table.get_ref().as_table() {
            rules.push(rule(file, &span, keys, faults));
        } else {
            let text = format!("expected a table under [[{KEY}]], not {}", in_words(table.get_ref()));
            faults.push((span.clone(), file.fault(&span, Some(KEY.to_owned()), text)));
        }
    }
    rules
}

fn rule(
    file: &Written<'_>,
    span: &Range<usize>,
    keys: &DeTable<'_>,
    faults: &mut Vec<(Range<usize>, Fault)>,
) -> RuleText {
    let (mut rule, before) = (RuleText::default(), faults.len());
    let mut fault = |span: &Range<usize>, key: Option<&str>, text: String| {
        faults.push((span.clone(), file.fault(span, key.map(|key| format!("{KEY}.{key}")), text)));
    };
    for (name, value) in keys {
        let (key, place) = (name.get_ref().as_ref(), value.span());
        if !KEYS.iter().any(|(known, _)| *known == key) {
            let known = KEYS.iter().map(|(known, _)| *known);
            let text = match nearest(key, known.clone()) {
                Some(near) => format!("unknown key {key:?} of a rule: is {near} meant?"),
                None => format!("unknown key {key:?} of a rule: its keys are {}", known.collect::<Vec<_>>().join(", ")),
            };
            fault(&name.span(), None, text);
            continue;
        }
        if let (LOG, DeValue::Boolean(log)) = (key, value.get_ref()) {
            rule.log = *log;
            continue;
        }
        let Some(text) = value.get_ref().as_str().filter(|_| key != LOG) else {
            let expected = if key == LOG { "true or false" } else { "a text in quotes" };
            fault(&place, Some(key), format!("expected {expected}, not {}", in_words(value.get_ref())));
            continue;
        };
        if let Err(wrong) = set(&mut rule, key, text) {
            fault(&place, Some(key), wrong);
        }
    }
    if let Some((key, text)) = rule.fault() {
        let place =
            keys.iter().find(|(name, _)| name.get_ref() == key).map_or_else(|| span.clone(), |(_, value)| value.span());
        fault(&place, Some(key), text);
    }
    let has = |key: &str| keys.iter().any(|(name, _)| name.get_ref() == key);
    let runs = ["cache", "ttl", "timeout", "route", LOG].into_iter().any(has);
    if runs && has("refuse") {
        fault(span, None, "a rule has either cache, ttl, timeout, route and log, or refuse".to_owned());
    } else if has("ttl") && rule.cache == Caching::Never {
        fault(span, None, "what is never cached has no ttl".to_owned());
    } else if faults.len() == before && !runs && !has("refuse") {
        let text = "a rule does nothing without cache, ttl, timeout, route, log or refuse".to_owned();
        faults.push((span.clone(), file.fault(span, Some(KEY.to_owned()), text)));
    }
    rule
}

/// The rule that CREATE CACHE makes. Err: the code and the text of what is wrong.
pub(super) fn created(new: &NewCache) -> Result<RuleText, (&'static str, String)> {
    let NewCache { name, digest, ttl } = new;
    let mut rule =
        RuleText { name: name.clone(), digest: Some(digest.clone()), cache: Caching::Always, ..RuleText::default() };
    if let Some(ttl) = ttl {
        set(&mut rule, "ttl", ttl).map_err(|wrong| ("22023", format!("TTL: {wrong}")))?;
    }
    match rule.fault() {
        Some(("name", wrong)) => Err(("42602", format!("name: {wrong}"))),
        Some((key, wrong)) => Err(("22023", format!("{}: {wrong}", key.to_uppercase()))),
        None => Ok(rule),
    }
}

fn set(rule: &mut RuleText, key: &str, text: &str) -> Result<(), String> {
    let value = Some(text.to_owned());
    match key {
        "name" => rule.name = value,
        "digest" => rule.digest = value,
        "user" => rule.user = value,
        "database" => rule.database = value,
        "table" => rule.table = value,
        "query" => rule.query = value,
        "application_name" => rule.application_name = value,
        "refuse" => rule.refuse = value,
        "ttl" => rule.ttl = Some(nanos(text.parse()?)),
        "timeout" => rule.timeout = Some(nanos(text.parse()?)),
        "route" => {
            let known = Way::named(text);
            rule.route = Some(known.ok_or_else(|| format!("{text:?}: expected \"primary\" or \"replica\""))?);
        }
        _ => {
            let known = Caching::named(text);
            rule.cache = known.ok_or_else(|| format!("{text:?}: expected \"auto\", \"always\" or \"never\""))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::definition::{command, settings};
    use crate::config::file;

    fn read(text: &str) -> Result<Vec<RuleText>, Vec<String>> {
        let contents = file::parse(Path::new("f.toml"), text, &settings(&command()));
        let faults = |faults: Vec<Fault>| faults.iter().map(ToString::to_string).collect();
        contents.map(|contents| contents.rules).map_err(faults)
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let text = "memory = \"1GiB\"\n[[rule]]\nuser = \"app\"\ncache = \"never\"\n[[rule]]\nquery = '^select'\nrefuse = 'no'\n";
        let rules = read(text).expect("no fault");
        let first = RuleText { user: Some("app".to_owned()), cache: Caching::Never, ..RuleText::default() };
        let (query, refuse) = (Some("^select".to_owned()), Some("no".to_owned()));
        assert_eq!(rules, [first, RuleText { query, refuse, ..RuleText::default() }]);
        assert_eq!(read("memory = \"1GiB\""), Ok(Vec::new()));
    }

    #[test]
    fn faults_have_line_and_nearest_key() {
        let text = "[[rule]]\nusr = \"a\"\ncache = \"nevr\"\n[[rule]]\nquery = \"a(\"\ncache = \"auto\"\n[[rule]]\ndigest = 5\n\
                    refuse = \"x\"\n[[rule]]\ncache = \"auto\"\nrefuse = \"x\"\n[[rule]]\ntable = \"t\"\n";
        assert_eq!(
            read(text).expect_err("faults"),
            [
                "f.toml:2:1: unknown key \"usr\" of a rule: is user meant?",
                "f.toml:3:9: rule.cache: \"nevr\": expected \"auto\", \"always\" or \"never\"",
                "f.toml:5:9: rule.query: not a regular expression: unclosed group",
                "f.toml:8:10: rule.digest: expected a text in quotes, not a number",
                "f.toml:10:1: a rule has either cache, ttl, timeout, route and log, or refuse",
                "f.toml:13:1: rule: a rule does nothing without cache, ttl, timeout, route, log or refuse",
            ]
        );
        assert_eq!(
            read("[[rule]]\nttl = \"1ms\"\n[[rule]]\nttl = \"soon\"\n[[rule]]\nttl = \"1s\"\ncache = \"never\"\n")
                .expect_err("faults"),
            [
                "f.toml:2:7: rule.ttl: expected a time between 100ms and 24h",
                "f.toml:4:7: rule.ttl: expected number at 0: a time is 250ms, 1s or 2m",
                "f.toml:5:1: what is never cached has no ttl",
            ]
        );
        assert_eq!(
            read("[[rule]]\nlog = \"yes\"\n[[rule]]\nname = \"\"\nlog = false\n[[rule]]\nlog = true\nrefuse = \"x\"\n")
                .expect_err("faults"),
            [
                "f.toml:2:7: rule.log: expected true or false, not a text",
                "f.toml:4:8: rule.name: expected 1 to 63 bytes without control characters, and no digest",
                "f.toml:6:1: a rule has either cache, ttl, timeout, route and log, or refuse",
            ]
        );
        assert_eq!(
            read("[[rule]]\ntimeout = \"1ms\"\n[[rule]]\ntimeout = \"2s\"\nrefuse = \"x\"\n").expect_err("faults"),
            [
                "f.toml:2:11: rule.timeout: expected a time between 10ms and 24h",
                "f.toml:3:1: a rule has either cache, ttl, timeout, route and log, or refuse",
            ]
        );
        assert_eq!(
            read("[[rule]]\nroute = \"standby\"\n[[rule]]\nroute = \"primary\"\nrefuse = \"x\"\n").expect_err("faults"),
            [
                "f.toml:2:9: rule.route: \"standby\": expected \"primary\" or \"replica\"",
                "f.toml:3:1: a rule has either cache, ttl, timeout, route and log, or refuse",
            ]
        );
        assert_eq!(
            read("[rule]\ncache = \"never\""),
            Err(vec!["f.toml:1:1: rule: expected tables under [[rule]], not a section".to_owned()])
        );
        assert_eq!(
            read("rule = [1]"),
            Err(vec!["f.toml:1:9: rule: expected a table under [[rule]], not a number".to_owned()])
        );
    }
}
