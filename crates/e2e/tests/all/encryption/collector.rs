//! OpenTelemetry's collector behind TLS: spans arrive at one whose certificate is right, and at no other.

use anyhow::{Result, ensure};

use super::link::{Negotiation, Terminator};
use super::workshop::Workshop;
use super::{READ, SCHEMA};
use crate::support::collector::Collector;
use crate::support::{Database, PATIENCE, Pair, Version, eventually};

const TRACED: &str = "/*traceparent='00-5bd66ef5095369c7b0d1f8f400000001-c532cb4000000001-01'*/";

#[test]
fn the_certificate_is_verified() -> Result<()> {
    let workshop = Workshop::open()?;
    let (authority, stranger) = (workshop.authority("known")?, workshop.authority("unknown")?);
    let tls = workshop.leaf("collector", &["localhost"], &authority)?;
    let collector = Collector::start()?;
    let terminator = Terminator::before(collector.address, &tls, Negotiation::Direct, &[])?;
    let port = terminator.address.port();
    let known = authority.cert.display().to_string();
    let unknown = stranger.cert.display().to_string();
    let (right, other_name) = (format!("https://localhost:{port}/token"), format!("https://127.0.0.1:{port}/token"));
    for (url, authorities, is_right) in
        [(&right, &unknown, false), (&other_name, &known, false), (&right, &known, true)]
    {
        let options = ["--otlp-interval", "100ms", "--otlp-endpoint", url, "--otlp-ca-file", authorities];
        let pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &options)?;
        if !pair.freshet.is_there() {
            return Ok(());
        }
        pair.connect()?.query(&format!("{READ} {TRACED}"))?;
        eventually(PATIENCE, || {
            let failures = pair.freshet.metrics()?.count("freshet_otlp_failures_total");
            let spans = collector.spans().len();
            ensure!(
                if is_right { spans == 1 && failures == 0 } else { failures > 1 },
                "{spans} spans, {failures} failures"
            );
            Ok(())
        })?;
        let log = pair.freshet.log();
        ensure!(is_right || (collector.asked() == 0 && log.to_lowercase().contains("certificate")), "{url}: {log}");
        ensure!(!log.contains("token"), "{log}");
    }
    let paths = collector.requests().iter().all(|request| request.head.starts_with("POST /token/v1/"));
    ensure!(paths, "{:?}", collector.requests());
    Ok(())
}
