//! The web endpoints of a running Freshet, as `freshet top`, `freshet probe` and `freshet doctor` ask them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use freshet_net::tls::{RootCert, SslMode, TlsOptions, UpstreamTls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where the endpoints are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndpointArgs {
    /// Where the running Freshet has its endpoints (its option --http): host:port
    #[arg(long, default_value = "127.0.0.1:9127", env = "FRESHET_HTTP")]
    pub(crate) http: String,
    /// File with the token that it asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Use TLS, and trust certificates of this authority (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// The endpoints.
pub(crate) struct Endpoint {
    address: String,
    token: Option<String>,
    tls: Option<UpstreamTls>,
    answer_bytes_max: u64,
}

impl Endpoint {
    pub(crate) fn new(args: &EndpointArgs) -> Result<Self> {
        let endpoint = Self::plain(args.http.clone(), ANSWER_BYTES_MAX);
        endpoint.with(args.token_file.as_deref(), args.ca.as_deref().map(|path| (path, SslMode::VerifyFull)))
    }

    /// Those of a Freshet on this machine with this configuration. Its own certificate is the only one that is trusted; it need not name this
    /// address.
    pub(crate) fn local(address: String, token_file: Option<&Path>, cert: Option<&Path>) -> Result<Self> {
        Self::plain(address, ANSWER_BYTES_MAX).with(token_file, cert.map(|path| (path, SslMode::VerifyCa)))
    }

    /// Without TLS and token; a longer answer is cut off.
    pub(crate) fn plain(address: String, answer_bytes_max: u64) -> Self {
        Self { address, token: None, tls: None, answer_bytes_max }
    }

    fn with(self, token_file: Option<&Path>, trusted: Option<(&Path, SslMode)>) -> Result<Self> {
        let read =
            |path: &Path| std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()));
        let token = token_file.map(read).transpose()?.map(|text| text.trim().to_owned());
        let options = |(path, mode): (&Path, SslMode)| TlsOptions {
            mode,
            root_cert: Some(RootCert::File(path.to_owned())),
            ..TlsOptions::default()
        };
        let tls = trusted.map(|trusted| UpstreamTls::new(&options(trusted))).transpose().context("--ca")?;
        Ok(Self { token, tls, ..self })
    }

    /// The status and the body of the answer to a GET.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String)> {
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

    async fn ask(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> Result<(u16, String)> {
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let host = &self.address;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        stream.take(self.answer_bytes_max).read_to_end(&mut answer).await?;
        let text = String::from_utf8(answer).context("the answer is no text")?;
        let (head, body) = text.split_once("\r\n\r\n").context("the answer is not HTTP")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("the answer is not HTTP")?;
        Ok((status, body.to_owned()))
    }
}
