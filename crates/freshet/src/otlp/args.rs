//! The options of OpenTelemetry.

use std::path::PathBuf;
use std::time::Duration;

use freshet_units::{Share, Span};

use crate::otlp::endpoint::Endpoint;
use crate::otlp::headers::Headers;

/// The shortest interval of metrics.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Options of `freshet serve` about OpenTelemetry.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "OpenTelemetry")]
#[expect(clippy::struct_field_names, reason = "they are the names of the options")]
pub(crate) struct OtlpArgs {
    /// Export metrics and spans of statements to this collector, by OTLP over HTTP as JSON, such as `http://127.0.0.1:4318`; /v1/metrics
    /// and /v1/traces are appended. If not given, that of OTEL_EXPORTER_OTLP_ENDPOINT, if there is one
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(super) otlp_endpoint: Option<String>,
    /// Share of the statements that get a span, of those that go to the database and whose comment has no traceparent; a
    /// traceparent decides for its statement, hits included
    #[arg(long, default_value = "0", value_name = "0..1")]
    pub(crate) otlp_sample: Share,
    /// How often metrics are exported
    #[arg(long, default_value = "60s")]
    pub(super) otlp_interval: Span,
    /// File with headers for the collector, a line "name: value" for each, such as its credentials; it is read before each export
    #[arg(long, value_name = "FILE")]
    pub(super) otlp_headers_file: Option<PathBuf>,
    /// Authorities of the collector's certificate, PEM; those of the operating system if not given
    #[arg(long, value_name = "FILE")]
    pub(super) otlp_ca_file: Option<PathBuf>,
}

impl OtlpArgs {
    /// The collector's URL: the option, otherwise the variable of all OpenTelemetry programs. A variable with an unusable value is ignored, since it
    /// may be meant for another program.
    pub(super) fn endpoint(&self) -> Option<String> {
        let of_all = || of_environment().filter(|url| Endpoint::parse(url).is_ok());
        self.otlp_endpoint.clone().or_else(of_all).filter(|url| !url.is_empty())
    }

    /// Why the variable's collector cannot be used, if so.
    pub(super) fn ignored(&self) -> Option<String> {
        of_environment().filter(|url| self.otlp_endpoint.is_none() && !url.is_empty() && Endpoint::parse(url).is_err())
    }

    pub(super) fn interval(&self) -> Duration {
        self.otlp_interval.0
    }

    /// Faults of the options, each with its key.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let endpoint = self.endpoint().map(|url| Endpoint::parse(&url));
        let is_there = endpoint.is_some();
        let is_https = endpoint.as_ref().is_some_and(|endpoint| endpoint.as_ref().is_ok_and(|found| found.is_https));
        let needs = |wrong: bool, key, other: &str| wrong.then(|| (key, format!("{other} must be given as well")));
        let has_file = self.otlp_headers_file.is_some();
        let headers = || is_there.then(|| Headers::read(self.otlp_headers_file.as_deref()).err()).flatten();
        let faults = [
            endpoint.and_then(Result::err).map(|why| ("otlp_endpoint", why)),
            needs(has_file && !is_there, "otlp_headers_file", "otlp_endpoint"),
            needs(
                self.otlp_ca_file.is_some() && !is_https,
                "otlp_ca_file",
                "an otlp_endpoint that begins with https://",
            ),
            (self.otlp_interval.0 < INTERVAL_MIN).then(|| ("otlp_interval", "at least 100ms is expected".to_owned())),
            headers().map(|why| ("otlp_headers_file", why)),
        ];
        faults.into_iter().flatten().collect()
    }
}

fn of_environment() -> Option<String> {
    std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok()
}
