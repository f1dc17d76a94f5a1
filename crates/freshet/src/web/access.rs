//! Access to the endpoints: the token, TLS, and the limits of a request.
//!
//! A browser cannot send a bearer token when it opens a page. So the token is also accepted as a password, which a browser asks for and then sends
//! with each request of the page.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, REFERRER_POLICY, TRANSFER_ENCODING,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use freshet_net::tls::ServerTls;
use subtle::ConstantTimeEq as _;

use super::args::WebArgs;
use crate::access::states;

/// Shorter tokens could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TARGET_BYTES_MAX: usize = 2048;
const HEADER_BYTES_MAX: usize = 16 << 10;
/// No request needs a body.
const BODY_BYTES_MAX: u64 = 1024;
const PROBES: [&str; 4] = ["/livez", "/readyz", "/cachez", "/health"];
/// How often the files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The page loads everything from here.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// The token and the certificate. They are read again when they change.
#[derive(Debug)]
pub(super) struct Access {
    token_file: Option<PathBuf>,
    token: RwLock<Option<String>>,
    files: Vec<PathBuf>,
    pub(super) tls: Option<ServerTls>,
}

impl Access {
    /// Reads the files.
    pub(super) fn load(args: &WebArgs) -> Result<Self> {
        let tls = args.tls();
        let token_file = args.http_token_file.clone();
        let tls_files = tls.iter().flat_map(|files| [files.cert.clone(), files.key.clone()]);
        let files = tls_files.chain(token_file.clone()).collect();
        let token = RwLock::new(read_token(token_file.as_ref())?);
        let tls = tls.map(ServerTls::load_for_any_protocol).transpose().context("--http-tls-cert")?;
        Ok(Self { token_file, token, files, tls })
    }

    /// Reads the files again after each change. Never returns.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut seen = states(&self.files);
        while !self.files.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = states(&self.files);
            if now == seen {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    seen = now;
                    tracing::info!("the token and the certificate of --http were read again");
                }
                // The files may be half written, so they are tried again.
                Err(error) => tracing::debug!("not read again, the earlier one stays in use: {error:#}"),
            }
        }
    }

    fn reload(&self) -> Result<()> {
        let token = read_token(self.token_file.as_ref())?;
        if let Some(tls) = &self.tls {
            tls.reload().context("--http-tls-cert")?;
        }
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    fn permits(&self, headers: &HeaderMap) -> bool {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = &*token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| given(value.to_str().ok()?));
        given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into())
    }
}

fn read_token(path: Option<&PathBuf>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text =
        fs::read_to_string(path).with_context(|| format!("--http-token-file: {} cannot be read", path.display()))?;
    let token = text.trim();
    ensure!(
        token.len() >= TOKEN_BYTES_MIN,
        "--http-token-file: the token in {} has less than {TOKEN_BYTES_MIN} characters",
        path.display()
    );
    Ok(Some(token.to_owned()))
}

/// The token in the header: RFC 6750, or the password of RFC 7617.
fn given(authorization: &str) -> Option<String> {
    let (scheme, rest) = authorization.split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(rest.trim().to_owned()),
        "basic" => {
            let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
            text.split_once(':').map(|(_, password)| password.to_owned())
        }
        _ => None,
    }
}

/// Checks each request to an endpoint.
pub(super) async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let is_probe = PROBES.contains(&request.uri().path());
    let mut response = match excess(&request) {
        Some(status) => (status, format!("{status}\n")).into_response(),
        None if is_probe || access.permits(request.headers()) => next.run(request).await,
        None => {
            let text = "this needs the token of --http-token-file\n";
            let ask = [(WWW_AUTHENTICATE, "Basic realm=\"Freshet\", Bearer")];
            (StatusCode::UNAUTHORIZED, ask, text).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The status for a request that is too large.
fn excess(request: &Request) -> Option<StatusCode> {
    let headers = request.headers();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let length = headers.get(CONTENT_LENGTH).map(|value| value.to_str().ok().and_then(|text| text.parse::<u64>().ok()));
    if target > TARGET_BYTES_MAX {
        Some(StatusCode::URI_TOO_LONG)
    } else if bytes > HEADER_BYTES_MAX {
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    } else if length.is_some_and(|length| length.is_none_or(|n| n > BODY_BYTES_MAX))
        || headers.contains_key(TRANSFER_ENCODING)
    {
        Some(StatusCode::PAYLOAD_TOO_LARGE)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_as_such_or_as_a_password() {
        let basic = format!("basic {}", STANDARD.encode("anyone:a:token"));
        for (header, is) in [
            ("Bearer a:token", Some("a:token")),
            (basic.as_str(), Some("a:token")),
            ("Basic a:token", None),
            ("Digest a:token", None),
            ("Bearer", None),
            ("", None),
        ] {
            assert_eq!(given(header).as_deref(), is, "{header}");
        }
    }
}
