//! The hosts that a certificate is valid for, by libpq's rules (`fe-secure-common.c`, `pgtls_verify_peer_name_matches_certificate_guts`).
//!
//! rustls reads `subjectAltName` alone. libpq takes the subject's common name if there is no alternative name of the host's kind. Certificates made
//! by the commands in PostgreSQL's manual have only a common name.

use std::net::IpAddr;

use x509_parser::prelude::{GeneralName, X509Certificate};

/// The first common name of the subject. None also if it holds a zero byte, which C programs would take for its end.
pub(super) fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    (!name.contains('\0')).then_some(name)
}

/// Whether a certificate is valid for a host, given as a name or as an address.
pub(super) fn is_for(certificate: &X509Certificate<'_>, host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    let mut common_name_counts = true;
    let alternative = certificate.subject_alternative_name().ok().flatten();
    for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
        let (matches, of_host_kind) = match name {
            GeneralName::DNSName(name) => (matches_name(name, host), address.is_none()),
            GeneralName::IPAddress(bytes) => (address.is_some_and(|a| is_address(a, bytes)), address.is_some()),
            _ => (false, false),
        };
        if matches {
            return true;
        }
        common_name_counts &= !of_host_kind;
    }
    common_name_counts && common_name(certificate).is_some_and(|name| matches_name(name, host))
}

/// All names of a certificate that are compared with the host, for an error message.
pub(super) fn all(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.iter().flat_map(|extension| &extension.value.general_names).map(ToString::to_string);
    names.chain(common_name(certificate).map(ToOwned::to_owned)).collect()
}

fn is_address(address: IpAddr, bytes: &[u8]) -> bool {
    match address {
        IpAddr::V4(address) => address.octets() == bytes,
        IpAddr::V6(address) => address.octets() == bytes,
    }
}

/// A wildcard matches exactly one label, the first.
fn matches_name(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(domain) = pattern.strip_prefix("*.").filter(|domain| !domain.is_empty()) else { return false };
    host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
}
