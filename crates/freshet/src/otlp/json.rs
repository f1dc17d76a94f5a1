//! OTLP as JSON (opentelemetry-proto, "JSON Protobuf Encoding"). Ids of traces and spans are hexadecimal, 64-bit integers are texts.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freshet_proxy::{AnsweredBy, Span};
use freshet_types::Dialect;
use serde_json::{Value, json};

use crate::exposition::{Figure, Metric, Sample};

/// Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u8 = 2;
/// `SPAN_KIND_INTERNAL`: a call of a database in memory, by the conventions.
const KIND_INTERNAL: u8 = 1;
/// `SPAN_KIND_CLIENT`
const KIND_CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR`
const STATUS_ERROR: u8 = 2;

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn integer(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// Nanoseconds since 1970.
pub(super) fn unix_nanos(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos().to_string()
}

/// This process: `service.name`, and the attributes in the variables of all OpenTelemetry programs.
pub(super) fn resource() -> Value {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let given = variable("OTEL_RESOURCE_ATTRIBUTES");
    let pairs = given.split(',').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.trim(), value.trim()));
    let mut all: Vec<(String, String)> = vec![
        ("service.name".to_owned(), "freshet".to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let name = variable("OTEL_SERVICE_NAME");
    let named = Some(("service.name", name.as_str())).filter(|(_, name)| !name.is_empty());
    for (key, value) in pairs.chain(named).filter(|(key, _)| !key.is_empty()) {
        all.retain(|(other, _)| other != key);
        all.push((key.to_owned(), value.to_owned()));
    }
    let attributes: Vec<Value> = all.iter().map(|(key, value)| attribute(key, value)).collect();
    json!({ "attributes": attributes })
}

fn scope() -> Value {
    json!({ "name": "freshet", "version": env!("CARGO_PKG_VERSION") })
}

/// The body of a request for `/v1/traces`.
pub(super) fn traces(resource: &Value, spans: &[Span]) -> String {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope(), "spans": spans }] }] })
        .to_string()
}

fn span(span: &Span) -> Value {
    let (system, summary) = (system(span.dialect()), span.summary());
    let (outcome, kind) = match span.answered_by {
        AnsweredBy::Hit(_) => ("hit", KIND_INTERNAL),
        AnsweredBy::Fill => ("fill", KIND_CLIENT),
        AnsweredBy::Pass(_) => ("pass", KIND_CLIENT),
    };
    let mut attributes = vec![
        attribute("db.system.name", system),
        attribute("db.operation.name", &summary.operation),
        attribute("db.query.text", cut(span.text())),
        attribute("db.query.summary", &summary.text()),
        attribute("freshet.outcome", outcome),
        attribute("freshet.digest", &span.digest()),
    ];
    if let [table] = summary.tables.as_slice() {
        attributes.push(attribute("db.collection.name", table));
    }
    for (key, value) in [("db.namespace", span.database()), ("freshet.user", span.user())] {
        if !value.is_empty() {
            attributes.push(attribute(key, value));
        }
    }
    if let Some((host, port)) = span.server() {
        attributes.push(attribute("server.address", host));
        attributes.extend(port.map(|port| integer("server.port", port.into())));
    }
    match span.answered_by {
        AnsweredBy::Hit(bytes) => attributes.push(integer("freshet.hit_bytes", bytes as u64)),
        AnsweredBy::Pass(reason) => attributes.push(attribute("freshet.reason", reason)),
        AnsweredBy::Fill => {}
    }
    let name = if summary.operation.is_empty() { system.to_owned() } else { summary.text() };
    let mut is = json!({
        "traceId": hexadecimal(&span.trace),
        "spanId": hexadecimal(&span.id),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": unix_nanos(span.end.checked_sub(span.took).unwrap_or(UNIX_EPOCH)),
        "endTimeUnixNano": unix_nanos(span.end),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        is["parentSpanId"] = hexadecimal(&parent).into();
    }
    if span.has_failed {
        is["status"] = json!({ "code": STATUS_ERROR });
    }
    is
}

fn system(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "postgresql",
        Dialect::MySql => "mysql",
        Dialect::MariaDb => "mariadb",
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// The body of a request for `/v1/metrics`: the sums count from `start` on.
pub(super) fn metrics(resource: &Value, metrics: &[Metric], start: &str, now: &str) -> String {
    let metrics: Vec<Value> = metrics.iter().map(|one| metric(one, start, now)).collect();
    json!({
        "resourceMetrics": [{ "resource": resource, "scopeMetrics": [{ "scope": scope(), "metrics": metrics }] }]
    })
    .to_string()
}

fn metric(metric: &Metric, start: &str, now: &str) -> Value {
    let points: Vec<Value> = metric.samples.iter().filter_map(|sample| point(sample, start, now)).collect();
    let name = metric.sample_name();
    let unit = match name.trim_end_matches("_total") {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "1",
    };
    let mut is = json!({ "name": name, "description": metric.help, "unit": unit });
    match metric.kind_name() {
        "counter" => {
            is["sum"] = json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true });
        }
        "histogram" => is["histogram"] = json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }),
        _ => is["gauge"] = json!({ "dataPoints": points }),
    }
    is
}

/// None if the value is infinite, which JSON cannot represent. An age is infinite if there was no event yet.
fn point(sample: &Sample, start: &str, now: &str) -> Option<Value> {
    let attributes: Vec<Value> = sample.labels().iter().map(|(key, value)| attribute(key, value)).collect();
    let mut point = json!({ "attributes": attributes, "timeUnixNano": now });
    match &sample.value {
        Figure::Count(count) => point["asInt"] = count.to_string().into(),
        Figure::Seconds(value) | Figure::Gauge(value) => {
            point["asDouble"] = Some(*value).filter(|value| value.is_finite())?.into();
        }
        Figure::Histogram(timed) => {
            let (bounds, counts): (Vec<f64>, Vec<u64>) = timed.histogram.in_seconds().unzip();
            let bounds: Vec<f64> = bounds.into_iter().filter(|bound| bound.is_finite()).collect();
            let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
            point["count"] = timed.histogram.count().to_string().into();
            point["sum"] = timed.seconds.into();
            (point["explicitBounds"], point["bucketCounts"]) = (bounds.into(), counts.into());
        }
    }
    if !matches!(sample.value, Figure::Gauge(_)) {
        point["startTimeUnixNano"] = start.into();
    }
    Some(point)
}
