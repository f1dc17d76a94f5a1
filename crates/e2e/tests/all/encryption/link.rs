//! Lets clients and servers without TLS take part: a [`Link`] listens without TLS and connects with it, a [`Terminator`] listens with TLS and
//! connects without it. Both forward bytes and know only the start of the protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot::{Sender, channel};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::workshop::Authority;
use crate::support::frames;

/// How TLS begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negotiation {
    /// By SSLRequest.
    Request,
    /// At once, naming the protocol.
    Direct,
}

/// Whom a client of TLS trusts, and as whom it shows itself.
pub(super) struct Trust {
    config: ClientConfig,
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Trust {
    pub(super) fn authority(authority: &Authority) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&authority.cert)?)?;
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        Ok(Self { config: builder.with_root_certificates(roots).with_no_client_auth() })
    }

    /// The client's configuration, offering these protocols.
    pub(super) fn offering(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

/// The name in the certificates.
pub(super) fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a host name")
}

/// Plain on this side, TLS on the other.
pub(super) struct Link {
    pub(super) address: SocketAddr,
    _stop: Sender<()>,
}

impl Link {
    pub(super) fn to(target: SocketAddr, negotiation: Negotiation, trust: &Trust) -> Result<Self> {
        let protocols: &[&[u8]] = if negotiation == Negotiation::Direct { &[b"postgresql"] } else { &[] };
        let connector = TlsConnector::from(trust.offering(protocols));
        let (address, stop) = listen(move |client| carry(client, target, negotiation, connector.clone()))?;
        Ok(Self { address, _stop: stop })
    }
}

async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    negotiation: Negotiation,
    connector: TlsConnector,
) -> Result<()> {
    let mut server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    if negotiation == Negotiation::Request {
        server.write_all(&frames::ssl_request()).await?;
        ensure!(server.read_u8().await? == b'S', "no TLS");
    }
    let mut server = connector.connect(localhost(), server).await?;
    // Ends of connections without a close_notify are ends all the same.
    let _ = copy_bidirectional(&mut client, &mut server).await;
    Ok(())
}

/// TLS on this side, plain on the other: what stands before many servers.
pub(super) struct Terminator {
    pub(super) address: SocketAddr,
    _stop: Sender<()>,
}

impl Terminator {
    /// One that names these protocols; with `direct` TLS begins at once.
    pub(super) fn before(target: SocketAddr, tls: &Tls, negotiation: Negotiation, protocols: &[&[u8]]) -> Result<Self> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let chain = CertificateDer::pem_file_iter(&tls.cert)?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&tls.key)?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (address, stop) = listen(move |client| unwrap_tls(client, target, negotiation, acceptor.clone()))?;
        Ok(Self { address, _stop: stop })
    }
}

async fn unwrap_tls(
    mut client: TcpStream,
    target: SocketAddr,
    negotiation: Negotiation,
    acceptor: TlsAcceptor,
) -> Result<()> {
    client.set_nodelay(true)?;
    if negotiation == Negotiation::Request {
        let mut request = [0; 8];
        client.read_exact(&mut request).await?;
        ensure!(request == *frames::ssl_request(), "no SSLRequest");
        client.write_all(b"S").await?;
    }
    let mut client = acceptor.accept(client).await?;
    let mut server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    let _ = copy_bidirectional(&mut client, &mut server).await;
    Ok(())
}

/// Accepts connections on a thread of its own until the sender is dropped, and then ends them all.
fn listen<F, R>(serve: F) -> Result<(SocketAddr, Sender<()>)>
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = Result<()>> + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = channel();
    let runtime = Builder::new_current_thread().enable_all().build().context("runtime")?;
    std::thread::spawn(move || {
        let accept = async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((client, _)) = listener.accept().await {
                tokio::task::spawn_local(serve(client));
            }
        };
        let both = async {
            tokio::select! { () = accept => {}, _ = stopped => {} }
        };
        tokio::task::LocalSet::new().block_on(&runtime, both);
    });
    Ok((address, stop))
}

/// How long a client waits here for what has to come.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
