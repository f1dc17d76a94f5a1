//! TLS on both legs: the certificate that clients see, and the trust in the upstream's.

mod options;

pub use options::{ChannelBinding, RootCert, SslMode, SslNegotiation, TlsOptions};
