//! A minimal HTTP client for Freshet's endpoints.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Status and body of `GET path`.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let timeout = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// The samples of `/metrics` by their full name, labels included but that of the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    /// The sums over all databases.
    samples: BTreeMap<String, f64>,
    /// By the name of the database and of the sample.
    by_database: BTreeMap<(String, String), f64>,
}

impl Metrics {
    pub(crate) fn read(address: SocketAddr) -> Result<Self> {
        let (status, text) = get(address, "/metrics")?;
        ensure!(status == 200, "/metrics: {status} {text}");
        let mut metrics = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, database) = without_database(name);
            *metrics.samples.entry(name.clone()).or_default() += value;
            metrics.by_database.insert((database, name), value);
        }
        Ok(metrics)
    }

    /// The value of one database's sample; 0 if it has not been seen yet.
    pub(crate) fn of(&self, database: &str, name: &str) -> f64 {
        self.by_database.get(&(database.to_owned(), name.to_owned())).copied().unwrap_or_default()
    }

    /// The value of one sample; 0 if it has not been seen yet.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.samples.get(name).copied().unwrap_or_default()
    }

    /// The value of a counter.
    #[expect(clippy::cast_sign_loss, reason = "counters only grow, from 0")]
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.value(name) as u64
    }

    pub(crate) fn hits(&self) -> u64 {
        self.count("freshet_hits_total")
    }

    /// Statements that were passed to the server for this reason.
    pub(crate) fn passed(&self, reason: &str) -> u64 {
        self.count(&format!("freshet_passed_total{{reason=\"{reason}\"}}"))
    }

    /// Statements that were passed to the server.
    pub(crate) fn passed_in_all(&self) -> u64 {
        let passed = self.samples.iter().filter(|(name, _)| name.starts_with("freshet_passed_total"));
        passed.map(|(name, _)| self.count(name)).sum()
    }

    /// The counters that have grown since an earlier reading, for messages.
    pub(crate) fn grown_since(&self, earlier: &Self) -> Vec<String> {
        let grown =
            self.samples.iter().filter(|(name, value)| name.contains("_total") && **value > earlier.value(name));
        grown.map(|(name, value)| format!("{name} +{}", value - earlier.value(name))).collect()
    }

    /// The reasons seen since an earlier reading, for messages.
    pub(crate) fn passed_since(&self, earlier: &Self) -> Vec<String> {
        let passed = self.samples.iter().filter(|(name, _)| name.starts_with("freshet_passed_total"));
        let more = passed.filter(|(name, value)| **value > earlier.value(name));
        more.map(|(name, value)| format!("{name} +{}", value - earlier.value(name))).collect()
    }
}

/// The name of a sample without the labels of its database, and the database's name.
fn without_database(name: &str) -> (String, String) {
    let (name, database) = without_label(name, "database=\"");
    (without_label(&name, "protocol=\"").0, database)
}

/// The name of a sample without one label, and its value.
fn without_label(name: &str, label: &str) -> (String, String) {
    let Some((before, rest)) = name.split_once(label) else { return (name.to_owned(), String::new()) };
    let (value, behind) = rest.split_once('"').unwrap_or((rest, ""));
    let labels = format!("{}{}", before.trim_end_matches(','), behind);
    (labels.replace("{,", "{").replace("{}", ""), value.to_owned())
}

#[test]
fn the_label_of_the_database_is_taken_off() {
    for (name, plain) in [
        ("hits", "hits"),
        ("hits{database=\"a\"}", "hits"),
        ("passed{database=\"a\",reason=\"x\"}", "passed{reason=\"x\"}"),
        ("passed{database=\"a\",protocol=\"mysql\",reason=\"x\"}", "passed{reason=\"x\"}"),
        ("bucket{le=\"1\",database=\"a\"}", "bucket{le=\"1\"}"),
    ] {
        assert_eq!(without_database(name).0, plain);
    }
}
