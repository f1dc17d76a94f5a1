//! TLS to the upstream, with libpq's meaning of the options.
//!
//! As in libpq, the root certificates decide whether the server's certificate is verified. If there are root certificates (`sslrootcert`,
//! `~/.postgresql/root.crt`), the certificate must come from one of them in every `sslmode`. `verify-ca` and `verify-full` require root certificates,
//! and only `verify-full` checks the name.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::TlsError;
use super::files::{self, KeyOf};
use super::options::{RootCert, SslMode, SslNegotiation, TlsOptions};
use super::trust::{self, Authorities, Usage};
use super::{ALPN, binding, name, provider};

/// The TLS configuration of connections to the upstream.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    pub(super) config: Arc<ClientConfig>,
    verifies_name: bool,
    direct: bool,
}

/// A connection to the upstream after the handshake.
#[derive(Debug)]
pub struct Connected<S> {
    /// The encrypted connection.
    pub stream: TlsStream<S>,
    /// `tls-server-end-point` of the server's certificate, for SCRAM-SHA-256-PLUS.
    pub end_point: Option<Vec<u8>>,
}

impl UpstreamTls {
    /// Reads the files that the options name.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        let provider = provider();
        let versions: &[&SupportedProtocolVersion] = if options.tls13_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let verifier = Arc::new(ServerVerifier::read(options, &provider)?);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match client_certificate(options, &provider)? {
            Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_sni = !options.no_sni;
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            verifies_name: options.mode == SslMode::VerifyFull,
            direct: options.negotiation == SslNegotiation::Direct,
        })
    }

    /// The same for servers of any protocol, such as HTTP.
    pub fn for_any_protocol(options: &TlsOptions) -> Result<Self, TlsError> {
        let mut tls = Self::new(options)?;
        Arc::make_mut(&mut tls.config).alpn_protocols.clear();
        Ok(tls)
    }

    /// The client's side of the handshake. `server_name` is the host name or address of the server. It has no time limit of its own.
    pub async fn connect<S>(&self, stream: S, server_name: &str) -> io::Result<Connected<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match ServerName::try_from(server_name) {
            Ok(name) => name.to_owned(),
            Err(_) if self.verifies_name => {
                let text = format!("\"{server_name}\" is no host name that a certificate could be verified for");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            // This name is never used: no server name is sent for an address.
            Err(_) => ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into()),
        };
        let stream = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await.map_err(explain)?;
        let (_, session) = stream.get_ref();
        if self.direct && session.alpn_protocol() != Some(ALPN) {
            // Without ALPN, an attacker could redirect the connection to a server of another protocol.
            let text = "direct SSL connection was established without ALPN protocol negotiation extension";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let end_point = session.peer_certificates().and_then(<[_]>::first).and_then(binding::end_point);
        Ok(Connected { stream, end_point })
    }
}

/// Adds to rustls's error a hint where to look.
fn explain(error: io::Error) -> io::Error {
    let hint = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "no authority that sslrootcert names has signed it"
        }
        Some(Error::AlertReceived(AlertDescription::UnknownCA)) => {
            "the server knows no authority that has signed the certificate shown to it (sslcert)"
        }
        Some(Error::AlertReceived(AlertDescription::ProtocolVersion) | Error::PeerIncompatible(_)) => {
            "the server offers nothing that is accepted here; TLS 1.2 or 1.3 is needed"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {hint}"))
}

fn client_certificate(options: &TlsOptions, provider: &CryptoProvider) -> Result<Option<CertifiedKey>, TlsError> {
    let Some(cert) = &options.cert else { return Ok(None) };
    let key = options.key.as_ref().ok_or_else(|| TlsError::KeyMissing { path: cert.clone() })?;
    files::certified_key(cert, key, KeyOf::Client, provider).map(Some)
}

/// Verifies the server's certificate as far as the mode asks for it.
#[derive(Debug)]
struct ServerVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// None: every certificate is accepted.
    trusted: Option<Trusted>,
    verifies_name: bool,
}

#[derive(Debug)]
struct Trusted {
    webpki: Arc<WebPkiServerVerifier>,
    authorities: Authorities,
}

impl ServerVerifier {
    fn read(options: &TlsOptions, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let verifies_name = options.mode == SslMode::VerifyFull;
        let trusted = match (&options.root_cert, options.mode) {
            (_, SslMode::Disable) => None,
            (Some(root), _) => Some(Trusted::read(root, options, provider)?),
            (None, SslMode::VerifyCa) => return Err(TlsError::NoRoot { mode: "verify-ca" }),
            (None, SslMode::VerifyFull) => return Err(TlsError::NoRoot { mode: "verify-full" }),
            (None, _) => None,
        };
        Ok(Self { algorithms: provider.signature_verification_algorithms, trusted, verifies_name })
    }
}

fn webpki(
    store: RootCertStore,
    crls: &[CertificateRevocationListDer<'static>],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
    builder.with_crls(crls.iter().cloned()).enforce_revocation_expiration().build()
}

impl Trusted {
    fn read(root: &RootCert, options: &TlsOptions, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let roots = match root {
            RootCert::System if options.mode != SslMode::VerifyFull => return Err(TlsError::WeakMode),
            RootCert::System => system_roots()?,
            RootCert::File(path) => files::certificates(path)?,
        };
        let mut store = RootCertStore::empty();
        for certificate in &roots {
            // One unreadable authority among the system's hundred does not make the others unusable.
            if let (Err(error), RootCert::File(path)) = (store.add(certificate.clone()), root) {
                return Err(TlsError::BadCertificate { path: path.clone(), reason: error.to_string() });
            }
        }
        let crls = options.crl.as_deref().map_or_else(|| Ok(Vec::new()), files::revocation_lists)?;
        let webpki = webpki(store, &crls, Arc::clone(provider)).map_err(|error| match &options.crl {
            Some(path) => TlsError::BadCrl { path: path.clone(), reason: error.to_string() },
            None => TlsError::NoSystemRoots { reason: error.to_string() },
        })?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { webpki, authorities: Authorities { roots, crls, algorithms } })
    }

    /// Verifies the chain only: webpki checks the name last, and by other rules than libpq's.
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if let Some(verdict) = self.authorities.judge(leaf, intermediates, Usage::Server, now) {
            return verdict;
        }
        let verify =
            |webpki: &WebPkiServerVerifier| match webpki.verify_server_cert(leaf, intermediates, name, &[], now) {
                Ok(_)
                | Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )) => Ok(()),
                Err(error) => Err(error),
            };
        verify(&self.webpki)?;
        let accepts =
            |roots| webpki(roots, &self.authorities.crls, provider()).is_ok_and(|webpki| verify(&webpki).is_ok());
        self.authorities.judge_again(now, accepts).map_err(Error::from)
    }
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let reason = found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(TlsError::NoSystemRoots { reason });
    }
    Ok(found.certs)
}

/// The host as written in the upstream's address. The comparison ignores case.
fn host(name: &ServerName<'_>) -> String {
    match name {
        ServerName::DnsName(name) => name.as_ref().to_owned(),
        ServerName::IpAddress(address) => IpAddr::from(*address).to_string(),
        _ => String::new(),
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        trusted.verify_chain(end_entity, intermediates, server_name, now)?;
        if self.verifies_name {
            let (_, parsed) = X509Certificate::from_der(end_entity).map_err(|_| CertificateError::BadEncoding)?;
            if !name::is_for(&parsed, &host(server_name)) {
                let (expected, presented) = (server_name.to_owned(), name::all(&parsed));
                return Err(CertificateError::NotValidForNameContext { expected, presented }.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        trust::verify_tls12(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        trust::verify_tls13(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
