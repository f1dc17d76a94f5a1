//! One request to the collector: HTTP/1.1 on a connection of its own.
//!
//! There is at most one request a second, so a connection is not kept open: it would save nothing and could break meanwhile. Only the first line of
//! the answer matters.

use std::io;
use std::time::Duration;

use freshet_net::tls::{RootCert, SslMode, TlsOptions, UpstreamTls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::otlp::args::OtlpArgs;
use crate::otlp::endpoint::Endpoint;
use crate::otlp::headers::Headers;

/// Time limit for the answer (the default of `OTEL_EXPORTER_OTLP_TIMEOUT`).
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer's first line.
const LINE_BYTES_MAX: usize = 1024;

/// Why a request has failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may succeed later.
    Later(String),
    /// The collector will never accept it.
    Refused(String),
}

/// The connection data of the collector.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Endpoint,
    tls: Option<UpstreamTls>,
    args: OtlpArgs,
}

impl Collector {
    /// None if there is no collector. An error if the certificate's authorities or the URL cannot be used.
    pub(super) fn of(args: &OtlpArgs) -> Result<Option<Self>, String> {
        let Some(url) = args.endpoint() else { return Ok(None) };
        let endpoint = Endpoint::parse(&url)?;
        let root = args.otlp_ca_file.clone().map_or(RootCert::System, RootCert::File);
        let options = TlsOptions { mode: SslMode::VerifyFull, root_cert: Some(root), ..TlsOptions::default() };
        let tls = endpoint.is_https.then(|| UpstreamTls::for_any_protocol(&options)).transpose();
        let tls = tls.map_err(|error| error.to_string())?;
        Ok(Some(Self { endpoint, tls, args: args.clone() }))
    }

    /// The collector's name in messages.
    pub(super) fn authority(&self) -> &str {
        &self.endpoint.authority
    }

    /// Sends one signal: `traces`, `metrics`.
    pub(super) async fn post(&self, signal: &str, body: &str) -> Result<(), Failure> {
        // The file is read each time, since credentials are replaced while Freshet runs.
        let headers = Headers::read(self.args.otlp_headers_file.as_deref()).map_err(Failure::Later)?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: OTel-OTLP-Exporter-Freshet/{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n{}\r\n",
            self.endpoint.path_of(signal),
            self.endpoint.authority,
            env!("CARGO_PKG_VERSION"),
            body.len(),
            headers.lines(),
        );
        let line = timeout(TIMEOUT, self.exchange(head.as_bytes(), body.as_bytes())).await;
        let line = line.map_err(|_| Failure::Later(format!("no answer within {TIMEOUT:?}")))?;
        judge(&line.map_err(|error| Failure::Later(error.to_string()))?)
    }

    async fn exchange(&self, head: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
        let tcp = TcpStream::connect((self.endpoint.host.as_str(), self.endpoint.port)).await?;
        match &self.tls {
            Some(tls) => ask(tls.connect(tcp, &self.endpoint.host).await?.stream, head, body).await,
            None => ask(tcp, head, body).await,
        }
    }
}

/// Sends a request and reads the first line of the answer.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(head).await?;
    stream.write_all(body).await?;
    stream.flush().await?;
    let (mut line, mut piece) = (Vec::new(), [0; 256]);
    while !line.contains(&b'\n') && line.len() < LINE_BYTES_MAX {
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            break;
        }
        line.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(line)
}

/// By the rules of OTLP/HTTP ("Failures"): requests with these statuses may succeed later, others will not.
fn judge(line: &[u8]) -> Result<(), Failure> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    match words.next().and_then(|status| status.parse::<u16>().ok()).filter(|_| is_http) {
        Some(200..300) => Ok(()),
        Some(status @ (429 | 502 | 503 | 504)) => Err(Failure::Later(format!("HTTP status {status}"))),
        Some(status) => Err(Failure::Refused(format!("HTTP status {status}"))),
        None => Err(Failure::Later("the answer is not HTTP".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_their_status() {
        let judged = |line: &str| match judge(line.as_bytes()) {
            Ok(()) => "taken",
            Err(Failure::Later(_)) => "later",
            Err(Failure::Refused(_)) => "refused",
        };
        for (line, is) in [
            ("HTTP/1.1 200 OK\r\n", "taken"),
            ("HTTP/1.1 503 Service Unavailable\r\n", "later"),
            ("HTTP/1.1 429\r\n", "later"),
            ("HTTP/1.1 400 Bad Request\r\n", "refused"),
            ("HTTP/1.1 404 Not Found\r\n", "refused"),
            ("SSH-2.0-OpenSSH\r\n", "later"),
            ("HTTP/1.1 OK\r\n", "later"),
            ("", "later"),
        ] {
            assert_eq!(judged(line), is, "{line}");
        }
    }
}
