//! The collector's address.

/// A base URL, as in `OTEL_EXPORTER_OTLP_ENDPOINT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) is_https: bool,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of the header `Host`.
    pub(super) authority: String,
    /// The path without a slash at its end.
    path: String,
}

impl Endpoint {
    /// Parses a URL. The error does not repeat its text, which may contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let form = "a URL such as http://127.0.0.1:4318 is expected";
        let (scheme, rest) = url.trim().split_once("://").ok_or(form)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("{form}: http or https")),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("credentials belong into otlp_headers_file, not into the URL".to_owned());
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'));
        if !is_plain(rest) {
            return Err(format!("{form}, without a query"));
        }
        let default = if is_https { 443 } else { 80 };
        let port_at = authority.rfind(':').filter(|at| !authority.get(*at..).is_some_and(|port| port.contains(']')));
        let (host, port) = match port_at {
            Some(at) => (authority.get(..at), authority.get(at + 1..).and_then(|port| port.parse().ok())),
            None => (Some(authority), Some(default)),
        };
        let host = host.unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.filter(|port| *port > 0 && !host.is_empty()).ok_or(form)?;
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { is_https, host, port, authority: authority.to_owned(), path })
    }

    /// The path of a signal: `traces`, `metrics`.
    pub(super) fn path_of(&self, signal: &str) -> String {
        format!("{}/v1/{signal}", self.path)
    }
}

/// A URL for people: the path may have a token of the collector. None: it is no URL of a collector.
pub(crate) fn shown(url: &str) -> Option<String> {
    let Endpoint { is_https, authority, path, .. } = Endpoint::parse(url).ok()?;
    let (scheme, path) = (if is_https { "https" } else { "http" }, if path.is_empty() { "" } else { "/***" });
    Some(format!("{scheme}://{authority}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_understood() {
        let read = |url: &str| Endpoint::parse(url).map(|end| (end.host.clone(), end.port, end.path_of("traces")));
        let is = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        assert_eq!(read("http://127.0.0.1:4318"), is("127.0.0.1", 4318, "/v1/traces"));
        assert_eq!(read("https://otlp.example.com/otlp/"), is("otlp.example.com", 443, "/otlp/v1/traces"));
        assert_eq!(read("HTTP://[::1]:4318/"), is("::1", 4318, "/v1/traces"));
        assert_eq!(read("http://[::1]"), is("::1", 80, "/v1/traces"));
        for url in
            ["", "localhost:4318", "grpc://a", "http://", "http://:80", "http://a:b", "http://a b", "http://a/?b"]
        {
            assert!(read(url).is_err(), "{url}");
        }
        let hidden = ["https://otlp.example.com/abc123/otlp", "http://127.0.0.1:4318/"].map(shown);
        assert_eq!(hidden, ["https://otlp.example.com/***", "http://127.0.0.1:4318"].map(|url| Some(url.to_owned())));
        let with_password = read("http://user:secret@a").unwrap_err();
        assert!(with_password.contains("otlp_headers_file") && !with_password.contains("secret"), "{with_password}");
    }
}
