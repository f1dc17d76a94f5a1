//! The Grafana board and the alert rules of examples/: a Prometheus that scrapes a Freshet under load runs each expression.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::SCHEMA;
use crate::cached::until_hit;
use crate::clients::left_out;
use crate::support::{Database, PATIENCE, Pair, Version, eventually};

/// Empty although there is load: nothing of the kind has happened.
const MAY_BE_EMPTY: [&str; 1] = ["freshet_key_query_failures_total"];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// A running Prometheus, with its folder.
struct Prometheus {
    child: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Prometheus {
    fn start(scraped: SocketAddr) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("freshet-prometheus-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let rules = examples().join("prometheus/freshet.rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\nscrape_configs:\n\
             - job_name: freshet\n  static_configs: [{{targets: [\"{scraped}\"]}}]\n",
            rules.display()
        );
        fs::write(folder.join("prometheus.yml"), config)?;
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        let mut prometheus = Self { child, folder, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        // It logs where it listens. The pipe must be emptied all the same.
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let listens = lines.by_ref().find_map(|line| {
            let (_, address) = line.split_once("\"Listening on\" address=")?;
            address.trim().parse().ok()
        });
        prometheus.address = listens.context("Prometheus has ended before it listened")?;
        thread::spawn(move || lines.for_each(drop));
        Ok(prometheus)
    }

    fn ask(&self, path: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        // Version 1.0: the answer does not come in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
        let value: Value = serde_json::from_str(body).with_context(|| format!("{path}: {answer}"))?;
        ensure!(value["status"] == "success", "{path}: {answer}");
        Ok(value["data"].clone())
    }

    /// How many series an expression has now.
    fn count(&self, expression: &str) -> Result<usize> {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            write!(encoded, "%{byte:02X}")?;
        }
        let data = self.ask(&format!("/api/v1/query?query={encoded}")).with_context(|| expression.to_owned())?;
        Ok(data["result"].as_array().map_or(0, Vec::len))
    }
}

/// The expressions of all panels, with the variables filled in.
fn expressions() -> Result<Vec<String>> {
    let board: Value = serde_json::from_str(&fs::read_to_string(examples().join("grafana/freshet.json"))?)?;
    let panels = board["panels"].as_array().context("no panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let fill = |text: &str| text.replace("$instance", ".*").replace("$__rate_interval", "1m");
    targets.map(|target| target["expr"].as_str().map(fill).context("no expression")).collect()
}

#[test]
fn board_and_rules_are_right() -> Result<()> {
    if Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return left_out("Prometheus");
    }
    let pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let rules = examples().join("prometheus/freshet.rules.yml");
    let rules = Command::new("promtool").args(["check", "rules"]).arg(rules).output()?;
    ensure!(rules.status.success(), "{}", String::from_utf8_lossy(&rules.stderr));
    let prometheus = Prometheus::start(pair.freshet.http)?;
    let mut client = pair.connect()?;
    let expressions = expressions()?;
    ensure!(expressions.len() > 30, "{expressions:?}");
    let must = |text: &str| !MAY_BE_EMPTY.iter().any(|name| text.contains(name));
    eventually(PATIENCE, || {
        // Load, until the rates of all of it are known.
        until_hit(&pair, &mut client, "select title from film where id = 1")?;
        client.query("select clock_timestamp()")?;
        client.query("update film set title = 'new' where id = 1")?;
        for text in expressions.iter().filter(|text| must(text)) {
            ensure!(prometheus.count(text)? > 0, "no series: {text}");
        }
        Ok(())
    })?;
    // The others are read without an error.
    expressions.iter().try_for_each(|text| prometheus.count(text).map(drop))?;
    eventually(PATIENCE, || {
        let groups = prometheus.ask("/api/v1/rules")?;
        let rules = groups["groups"][0]["rules"].as_array().context("no rules")?;
        let all_well = rules.len() > 10 && rules.iter().all(|rule| rule["health"] == "ok");
        ensure!(all_well, "{groups}");
        Ok(())
    })
}
