//! OpenTelemetry: spans and metrics arrive at a collector, and one that misbehaves costs nobody anything.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::configuration::File;
use super::{SCHEMA, rows};
use crate::cached::until_hit;
use crate::mysql::support::{self as mysql, Kind};
use crate::support::collector::{Answer, Collector, attribute};
use crate::support::frames::{sync, unnamed};
use crate::support::{Database, Freshet, PATIENCE, Pair, RawClient, Version, eventually};

const READ: &str = "select title from film where id = 1";
/// With so much staleness, a busy machine makes no hit a pass.
const OPTIONS: [&str; 6] = ["--admission", "always", "--max-staleness", "30s", "--otlp-interval", "100ms"];

/// The statement in this trace, whose last digits are the number; the span of the application has them too.
fn traced(sql: &str, number: u32, flags: &str) -> String {
    format!("{sql} /*route='%2Ffilms',traceparent='00-{}-{}-{flags}'*/", trace(number), parent(number))
}

fn trace(number: u32) -> String {
    format!("5bd66ef5095369c7b0d1f8f4{number:08x}")
}

fn parent(number: u32) -> String {
    format!("c532cb40{number:08x}")
}

/// A database, and Freshet that exports to the collector at this address.
fn exporting(collector: SocketAddr, more: &[&str]) -> Result<Pair> {
    let url = format!("http://{collector}");
    Pair::over(Database::shared(Version::V18)?, SCHEMA, &[&OPTIONS[..], &["--otlp-endpoint", &url], more].concat())
}

/// The one span of this trace.
fn span_of(collector: &Collector, number: u32) -> Result<Value> {
    eventually(PATIENCE, || {
        let spans: Vec<Value> = collector.spans().into_iter().filter(|span| span["traceId"] == trace(number)).collect();
        let [span] = &spans[..] else { anyhow::bail!("{} spans of trace {number}", spans.len()) };
        Ok(span.clone())
    })
}

/// Statements of a session, each in a trace of its own.
struct Traced<'t> {
    collector: &'t Collector,
    /// Sends a statement, whose answer may be an error.
    query: &'t mut dyn FnMut(&str) -> Result<()>,
    /// The number of the last trace.
    number: u32,
}

impl Traced<'_> {
    /// Returns the trace's number.
    fn send(&mut self, sql: &str, flags: &str) -> Result<u32> {
        self.number += 1;
        (self.query)(&traced(sql, self.number, flags))?;
        Ok(self.number)
    }

    /// Sends the statement until it has this outcome; returns the span. What other tests define on the server may flush the cache or end a fill.
    fn until(&mut self, sql: &str, outcome: &str) -> Result<Value> {
        eventually(PATIENCE, || {
            let number = self.send(sql, "01")?;
            let span = span_of(self.collector, number)?;
            is(&span, number, outcome, "SELECT film")?;
            Ok(span)
        })
    }
}

fn is(span: &Value, number: u32, outcome: &str, name: &str) -> Result<()> {
    ensure!(span["parentSpanId"] == parent(number), "{span}");
    ensure!(span["spanId"].as_str().is_some_and(|id| id.len() == 16), "{span}");
    ensure!(attribute(span, "freshet.outcome").as_deref() == Some(outcome), "not {outcome}: {span}");
    ensure!(span["name"] == name && attribute(span, "db.query.summary").as_deref() == Some(name), "not {name}: {span}");
    let text = attribute(span, "db.query.text").context("no text")?;
    ensure!(
        !text.contains("traceparent") && !["= 1", "= 2", "= 3"].iter().any(|literal| text.contains(literal)),
        "a literal or a comment: {text}"
    );
    let nanos = |key: &str| span[key].as_str().unwrap_or_default().parse::<u64>();
    ensure!(nanos("startTimeUnixNano")? <= nanos("endTimeUnixNano")?, "{span}");
    Ok(())
}

/// Statements of any family. `query`: sends one, whose answer may be an error.
fn spans(collector: &Collector, system: &str, mut query: impl FnMut(&str) -> Result<()>) -> Result<()> {
    query("select title from film where id = 5")?;
    let mut session = Traced { collector, query: &mut query, number: 0 };
    let hit = session.until(READ, "hit")?;
    session.until("select title from film where id = 2", "fill")?;
    let pass = session.until("select title from film where id = 3 for update", "pass")?;
    let not_sampled = [session.send(READ, "00")?, session.send("select title from film where id = 4", "00")?];
    let last = session.send("select nothing from film for update", "01")?;
    let failed = span_of(collector, last)?;
    ensure!((&hit["kind"], &pass["kind"]) == (&1.into(), &3.into()), "{hit} {pass}");
    ensure!(attribute(&pass, "freshet.reason").is_some_and(|reason| !reason.is_empty()), "{pass}");
    ensure!(attribute(&hit, "freshet.reason").is_none(), "{hit}");
    for (key, value) in [("db.system.name", system), ("db.operation.name", "SELECT"), ("db.collection.name", "film")] {
        ensure!(attribute(&hit, key).as_deref() == Some(value), "{key} is not {value}: {hit}");
    }
    ensure!(attribute(&hit, "server.address").as_deref() == Some("127.0.0.1"), "{hit}");
    ensure!(attribute(&hit, "db.namespace").is_some(), "{hit}");
    ensure!(failed["status"]["code"] == 2 && hit["status"].is_null(), "{failed} {hit}");
    // Of the others there is none, and by now they would have come.
    let (count, sampled) = (collector.spans().len(), last as usize - not_sampled.len());
    ensure!(count == sampled, "{count} spans of {sampled} statements");
    Ok(())
}

/// The metrics that `/metrics` has too.
fn metrics(collector: &Collector, freshet: &Freshet) -> Result<()> {
    eventually(PATIENCE, || {
        let newest = |name: &str| collector.metrics().into_iter().rev().find(|metric| metric["name"] == name);
        let hits = newest("freshet_hits_total").context("no hits")?;
        let point = &hits["sum"]["dataPoints"][0];
        let count = point["asInt"].as_str().unwrap_or_default().parse::<u64>()?;
        ensure!(count == freshet.metrics()?.hits() && count > 0, "{hits}");
        ensure!(hits["sum"]["isMonotonic"] == true && hits["sum"]["aggregationTemporality"] == 2, "{hits}");
        ensure!(attribute(point, "database").is_some() && point["startTimeUnixNano"].is_string(), "{hits}");
        let latency = newest("freshet_hit_duration_seconds").context("no histogram")?;
        let point = &latency["histogram"]["dataPoints"][0];
        let counts = point["bucketCounts"].as_array().context("no buckets")?;
        let bounds = point["explicitBounds"].as_array().context("no bounds")?;
        let sum: u64 = counts.iter().filter_map(|count| count.as_str()?.parse::<u64>().ok()).sum();
        ensure!(latency["unit"] == "s" && counts.len() == bounds.len() + 1 && sum == count, "{latency}");
        let bytes = newest("freshet_memory_limit_bytes").context("no gauge")?;
        ensure!(bytes["unit"] == "By" && bytes["gauge"]["dataPoints"][0]["asDouble"].as_f64() > Some(0.0), "{bytes}");
        Ok(())
    })
}

#[test]
fn of_postgres() -> Result<()> {
    let (collector, secret) = (Collector::start()?, File::new("otlp-headers", "authorization: Bearer geheim\n")?);
    let url = format!("http://{}/otlp", collector.address);
    let own = ["--otlp-endpoint", url.as_str(), "--otlp-headers-file", secret.path()];
    let pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &[&OPTIONS[..], &own].concat())?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    spans(&collector, "postgresql", |sql| client.query(sql).map(drop))?;
    metrics(&collector, &pair.freshet)?;
    failed_fills(&collector, &mut client)?;
    for request in collector.requests() {
        ensure!(request.head.contains("\r\nauthorization: Bearer geheim\r\n"), "{}", request.head);
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        ensure!(["/otlp/v1/traces", "/otlp/v1/metrics"].contains(&path), "{path}");
    }
    let shown = format!("{:?}{}", rows(&client.query("SHOW CONFIG")?), pair.freshet.log());
    ensure!(shown.contains("otlp_headers_file") && !shown.contains("geheim"), "{shown}");
    let endpoint = format!("http://{}/***", collector.address);
    ensure!(shown.contains(&endpoint) && !shown.contains("/otlp"), "the path may be a token: {shown}");
    Ok(())
}

/// A statement whose result was to be cached fails: as a query, and as the second of a batch.
fn failed_fills(collector: &Collector, client: &mut RawClient) -> Result<()> {
    let fails = |id: u32| format!("select 10 / (id - {id}) from film where id = {id}");
    client.query(&traced(&fails(7), 7, "01"))?;
    let whole =
        |number| [unnamed(&traced(&format!("select title, {number} from film where id = $1"), number, "01"), &["8"])];
    let batch = [whole(8).concat(), unnamed(&traced(&fails(9), 9, "01"), &[]), sync()].concat();
    ensure!(super::tags(&client.exchange(&batch, 1)?) == "12TDC12TEZ", "another answer");
    client.exchange(&[unnamed(&traced(&fails(10), 10, "01"), &[]), sync()].concat(), 1)?;
    for number in [7, 10] {
        let failed = span_of(collector, number)?;
        is(&failed, number, "fill", "SELECT film")?;
        ensure!(failed["status"]["code"] == 2, "{failed}");
    }
    Ok(())
}

/// A collector that takes one signal only: the other one is refused again and again, which is said once.
#[test]
fn signals_have_their_own_trouble() -> Result<()> {
    let collector = Collector::start()?;
    collector.refuse("metrics");
    let pair = exporting(collector.address, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    for number in 1..=3 {
        client.query(&traced(READ, number, "01"))?;
        span_of(&collector, number)?;
        let failures = || pair.freshet.metrics().map(|metrics| metrics.count("freshet_otlp_failures_total"));
        let before = failures()?;
        eventually(PATIENCE, || {
            ensure!(failures()? > before, "no more metrics were refused");
            Ok(())
        })?;
    }
    let log = pair.freshet.log();
    let said = log.matches("OpenTelemetry: metrics: HTTP status 404; what it refused is left out").count();
    ensure!(said == 1 && !log.contains("exported again"), "{log}");
    Ok(())
}

fn of_mysql_family(kind: Kind, system: &str) -> Result<()> {
    let collector = Collector::start()?;
    let url = format!("http://{}", collector.address);
    let schema = "create table film (id int primary key, title varchar(20) not null);
        insert into film values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')";
    let options = [&OPTIONS[..], &["--otlp-endpoint", &url]].concat();
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, schema, &options)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    pair.until_hit(&mut client, READ)?;
    spans(&collector, system, |sql| client.query(sql).map(drop))?;
    metrics(&collector, &pair.freshet)
}

#[test]
fn of_mysql() -> Result<()> {
    of_mysql_family(Kind::Mysql, "mysql")
}

#[test]
fn of_mariadb() -> Result<()> {
    of_mysql_family(Kind::Mariadb, "mariadb")
}

/// Without a trace of the application, the share decides, for what goes to the database.
#[test]
fn statements_are_sampled() -> Result<()> {
    let collector = Collector::start()?;
    let pair = exporting(collector.address, &["--otlp-sample", "1"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    client.query("select title from film where id = 2")?;
    client.query(READ)?;
    client.query("select pg_sleep(0)")?;
    eventually(PATIENCE, || {
        let is_there = |outcome: &str, summary: &str| {
            let is = |span: &Value| {
                attribute(span, "freshet.outcome").as_deref() == Some(outcome) && span["name"] == summary
            };
            collector.spans().iter().any(|span| is(span) && span["parentSpanId"].is_null())
        };
        ensure!(is_there("fill", "SELECT film") && is_there("pass", "SELECT"), "{:?}", collector.spans());
        Ok(())
    })?;
    let is_hit = |span: &Value| attribute(span, "freshet.outcome").as_deref() == Some("hit");
    ensure!(!collector.spans().iter().any(is_hit), "{:?}", collector.spans());
    Ok(())
}

/// Statements are answered while the collector is down or misbehaves; then the spans that wait are exported.
#[test]
fn a_collector_that_misbehaves() -> Result<()> {
    let address = Collector::free_address()?;
    let pair = exporting(address, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, READ)?;
    let failures = |more: u64| {
        let before = pair.freshet.metrics()?.count("freshet_otlp_failures_total");
        eventually(PATIENCE, || {
            let now = pair.freshet.metrics()?.count("freshet_otlp_failures_total");
            ensure!(now >= before + more, "{now} failures, {before} before");
            Ok(())
        })
    };
    ensure!(client.value(&traced(READ, 1, "01"))? == "film 1");
    failures(1)?;
    let collector = Collector::at(address)?;
    span_of(&collector, 1)?;
    for (number, answer) in [(2, "nonsense"), (3, ""), (4, "HTTP/1.1 503 Service Unavailable\r\n\r\n")] {
        collector.set(Answer::Says(answer));
        ensure!(client.value(&traced(READ, number, "01"))? == "film 1");
        failures(1)?;
        collector.set(Answer::Takes);
        span_of(&collector, number)?;
    }
    // What is refused for good is left out, and counted.
    collector.set(Answer::Says("HTTP/1.1 400 Bad Request\r\n\r\n"));
    client.query(&traced(READ, 5, "01"))?;
    eventually(PATIENCE, || {
        let dropped = pair.freshet.metrics()?.count("freshet_otlp_spans_dropped_total");
        ensure!(dropped == 1, "{dropped} dropped");
        Ok(())
    })?;
    collector.set(Answer::Hangs);
    let asked = collector.asked();
    eventually(PATIENCE, || {
        ensure!(client.value(&traced(READ, 6, "01"))? == "film 1");
        ensure!(collector.asked() > asked, "nothing asked yet");
        Ok(())
    })
}

/// What is left at the end is exported, and an end waits for no collector that hangs.
#[test]
fn the_end() -> Result<()> {
    for answer in [Answer::Takes, Answer::Hangs] {
        let collector = Collector::start()?;
        let url = format!("http://{}", collector.address);
        // One turn a second, and metrics once only.
        let options = ["--admission", "always", "--otlp-endpoint", &url];
        let mut pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &options)?;
        if !pair.freshet.is_there() {
            return Ok(());
        }
        let mut client = pair.connect()?;
        until_hit(&pair, &mut client, READ)?;
        collector.set(answer);
        client.query(&traced(READ, 1, "01"))?;
        drop(client);
        let pid = pair.freshet.pid().context("no process")?.to_string();
        ensure!(Command::new("kill").args(["-TERM", &pid]).status()?.success(), "kill");
        let status = eventually(PATIENCE, || pair.freshet.ended()?.context("it still runs"))?;
        ensure!(status.code() == Some(0), "{status}");
        ensure!(matches!(answer, Answer::Hangs) || collector.spans().len() == 1, "{:?}", collector.spans());
    }
    Ok(())
}
