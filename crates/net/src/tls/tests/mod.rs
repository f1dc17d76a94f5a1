//! Both sides against each other over a pipe, with certificates of each kind that is met around PostgreSQL.

mod expiry;
mod files;
mod handshake;
mod names;
mod trust;
mod workshop;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio_rustls::TlsAcceptor;

use super::*;
use workshop::{Pair, Workshop};

type Outcome = (io::Result<Accepted<DuplexStream>>, io::Result<Connected<DuplexStream>>);

const HOST: &str = "db.example";

/// A handshake between two configurations; both ends of a failure are awaited.
async fn shake(server: &ServerTls, client: &UpstreamTls, name: &str) -> Outcome {
    let (near, far) = tokio::io::duplex(64 * 1024);
    tokio::join!(server.accept(far), client.connect(near, name))
}

/// A handshake with a server that is configured by hand.
async fn shake_with(config: rustls::ServerConfig, client: &UpstreamTls, name: &str) -> io::Result<()> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (_, client) = tokio::join!(acceptor.accept(far), client.connect(near, name));
    client.map(drop)
}

fn serve(pair: &Pair) -> ServerTls {
    ServerTls::load(ServerFiles { cert: pair.cert.clone(), key: pair.key.clone(), client_ca: None }).unwrap()
}

fn serve_with_ca(pair: &Pair, ca: &Pair) -> ServerTls {
    let client_ca = Some(ca.cert.clone());
    ServerTls::load(ServerFiles { cert: pair.cert.clone(), key: pair.key.clone(), client_ca }).unwrap()
}

fn options(mode: SslMode, root: Option<&Pair>) -> TlsOptions {
    let root_cert = root.map(|pair| RootCert::File(pair.cert.clone()));
    TlsOptions { mode, root_cert, ..TlsOptions::default() }
}

fn upstream(mode: SslMode, root: Option<&Pair>) -> UpstreamTls {
    UpstreamTls::new(&options(mode, root)).unwrap()
}

/// What the client says of a server's certificate; the name is `db.example`.
async fn verdict(pair: &Pair, client: &UpstreamTls) -> Result<(), String> {
    shake(&serve(pair), client, HOST).await.1.map(drop).map_err(|error| error.to_string())
}

fn config(pair: &Pair, versions: &[&'static rustls::SupportedProtocolVersion]) -> rustls::ServerConfig {
    config_of(
        super::files::certified_key(&pair.cert, &pair.key, super::files::KeyOf::Server, &provider()).unwrap(),
        versions,
    )
}

fn config_of(
    key: rustls::sign::CertifiedKey,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ServerConfig {
    let builder = rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
    builder.with_no_client_auth().with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
}

fn missing() -> PathBuf {
    PathBuf::from("/nonexistent/file.pem")
}
