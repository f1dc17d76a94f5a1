//! TLS on both legs: the certificate that clients see ([`ServerTls`]), and the trust in the upstream's ([`UpstreamTls`]).
//!
//! The measure is what works with PostgreSQL itself. Two things of it do not come with rustls and are written out here:
//! libpq's rules for whom a certificate is for ([`name`]), and certificates of forms that the manual's own commands make
//! and rustls refuses ([`trust`]). A certificate's hash for channel binding is in [`binding`].
//!
//! There is no session resumption: PostgreSQL and libpq have none either, and without it each connection sees the
//! certificates and authorities that are valid now.

mod binding;
mod client;
mod error;
mod files;
mod name;
mod options;
mod server;
#[cfg(test)]
mod tests;
mod trust;

pub use client::{Connected, UpstreamTls};
pub use error::TlsError;
pub use options::{ChannelBinding, RootCert, SslMode, SslNegotiation, TlsOptions};
pub use server::{Accepted, ServerFiles, ServerTls};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The application protocol that direct TLS has to name (manual: "SSL Session Encryption").
const ALPN: &[u8] = b"postgresql";

/// Named wherever rustls asks: a default for the whole process would be a decision for its other parts too.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
