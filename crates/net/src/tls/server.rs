//! TLS with clients: the certificate that Freshet presents to them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::TlsError;
use super::files::{self, KeyOf};
use super::trust::{self, Authorities, Usage};
use super::{ALPN, binding, name, provider};

/// The files of `--tls-cert`, `--tls-key` and `--tls-client-ca`, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate, followed by the intermediate certificates of its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of client certificates. If set, clients are asked for a certificate, and the one they present is verified.
    pub client_ca: Option<PathBuf>,
}

/// The TLS configuration for clients, reloadable.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    /// The protocols of which a client that names any must name one.
    protocols: &'static [&'static [u8]],
    current: RwLock<Current>,
}

/// The contents of the files when they were last read successfully.
#[derive(Clone, Debug)]
struct Current {
    config: Arc<ServerConfig>,
    end_point: Option<Vec<u8>>,
}

/// A client's connection after the handshake.
#[derive(Debug)]
pub struct Accepted<S> {
    /// The encrypted connection.
    pub stream: TlsStream<S>,
    /// `tls-server-end-point` of the certificate presented to this client, for SCRAM-SHA-256-PLUS.
    pub end_point: Option<Vec<u8>>,
    /// Common name of the client's verified certificate.
    pub client_name: Option<String>,
    /// Whether the client agreed on the protocol `postgresql`, as direct TLS demands.
    pub alpn: bool,
}

impl ServerTls {
    /// Reads the files.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        Self::load_for(files, &[ALPN])
    }

    /// The same for clients of any protocol, such as HTTP.
    pub fn load_for_any_protocol(files: ServerFiles) -> Result<Self, TlsError> {
        Self::load_for(files, &[])
    }

    fn load_for(files: ServerFiles, protocols: &'static [&'static [u8]]) -> Result<Self, TlsError> {
        let current = RwLock::new(Current::read(&files, protocols)?);
        Ok(Self { files, protocols, current })
    }

    /// Reads the files again, for new connections. On an error the old configuration stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = Current::read(&self.files, self.protocols)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The server's side of the handshake. It has no time limit of its own.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<Accepted<S>> {
        let Current { config, end_point } = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let (_, session) = stream.get_ref();
        let client_name = session.peer_certificates().and_then(<[_]>::first).and_then(common_name);
        let alpn = session.alpn_protocol() == Some(ALPN);
        Ok(Accepted { stream, end_point, client_name, alpn })
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    name::common_name(&parsed).map(ToOwned::to_owned)
}

impl Current {
    fn read(files: &ServerFiles, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let provider = provider();
        let key = files::certified_key(&files.cert, &files.key, KeyOf::Server, &provider)?;
        let end_point = key.cert.first().and_then(binding::end_point);
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match &files.client_ca {
            Some(path) => builder.with_client_cert_verifier(Arc::new(ClientVerifier::read(path, provider)?)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), end_point })
    }
}

/// Verifies the certificate that a client presents, but requires none: the login decides whether a certificate is required.
#[derive(Debug)]
struct ClientVerifier {
    webpki: Arc<dyn ClientCertVerifier>,
    authorities: Authorities,
}

fn webpki(
    store: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).allow_unauthenticated().build()
}

impl ClientVerifier {
    fn read(path: &Path, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let roots = files::certificates(path)?;
        let bad = |reason: String| TlsError::BadCertificate { path: path.into(), reason };
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|error| bad(error.to_string()))?;
        }
        let algorithms = provider.signature_verification_algorithms;
        let webpki = webpki(store, provider).map_err(|error| bad(error.to_string()))?;
        Ok(Self { webpki, authorities: Authorities { roots, crls: Vec::new(), algorithms } })
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.authorities.algorithms
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(verdict) = self.authorities.judge(end_entity, intermediates, Usage::Client, now) {
            return verdict.map(|()| ClientCertVerified::assertion());
        }
        let verify = |webpki: &dyn ClientCertVerifier| webpki.verify_client_cert(end_entity, intermediates, now);
        let verified = verify(&*self.webpki)?;
        self.authorities
            .judge_again(now, |roots| webpki(roots, provider()).is_ok_and(|webpki| verify(&*webpki).is_ok()))?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        trust::verify_tls12(message, cert, dss, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        trust::verify_tls13(message, cert, dss, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
