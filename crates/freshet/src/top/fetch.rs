//! Reads `/api/status`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use freshet_net::tls::{RootCert, SslMode, TlsOptions, UpstreamTls};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::TopArgs;

const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where the figures come from.
pub(super) struct Source {
    address: String,
    token: Option<String>,
    tls: Option<UpstreamTls>,
}

impl Source {
    pub(super) fn new(args: &TopArgs) -> Result<Self> {
        let read = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
        };
        let token = args.token_file.as_ref().map(read).transpose()?.map(|text| text.trim().to_owned());
        let options = |path: &std::path::PathBuf| TlsOptions {
            mode: SslMode::VerifyFull,
            root_cert: Some(RootCert::File(path.clone())),
            ..TlsOptions::default()
        };
        let tls = args.ca.as_ref().map(|path| UpstreamTls::new(&options(path))).transpose().context("--ca")?;
        Ok(Self { address: args.http.clone(), token, tls })
    }

    /// Reads it once: of one database, or of all.
    pub(super) async fn read(&self, database: Option<&str>) -> Result<Value> {
        let path = database.map_or("/api/status".to_owned(), |name| format!("/api/status?database={}", encoded(name)));
        let path = &path;
        let asked = async {
            let stream = TcpStream::connect(&self.address).await?;
            match &self.tls {
                None => self.ask(stream, path).await,
                Some(tls) => {
                    let name = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
                    self.ask(tls.connect(stream, name.trim_matches(['[', ']'])).await?.stream, path).await
                }
            }
        };
        let answer = timeout(PATIENCE, asked).await.context("no answer").and_then(|answer| answer);
        answer.with_context(|| format!("no Freshet answers at {} (--http)", self.address))
    }

    async fn ask(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> Result<Value> {
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let host = &self.address;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        let text = String::from_utf8(answer).context("the answer is no text")?;
        let (head, body) = text.split_once("\r\n\r\n").context("the answer is not HTTP")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        match status {
            "200" => {}
            "401" => bail!("it asks for a token (--token-file)"),
            _ => bail!("it answers {status} to {path}"),
        }
        let status: Value = serde_json::from_str(body).context("the answer is not Freshet's")?;
        ensure!(status.get("now").is_some(), "the answer is not Freshet's");
        Ok(status)
    }
}

/// Percent-encoded, byte by byte.
fn encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02X}");
        out
    })
}
