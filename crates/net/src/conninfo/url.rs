//! The form `postgres://user:password@host:port,host:port/database?name=value` (manual, "Connection URIs").
//!
//! This is not a URL by the standards, so no general URL parser is used: there may be several hosts, each with its port, every part may be missing,
//! and a socket's directory may take the place of a host. The rules are those of `conninfo_uri_parse_options` in libpq.

use super::ConninfoError;
use super::settings::{Settings, showable};

/// What follows `postgres://` or `postgresql://`, if the text begins so.
pub(super) fn strip_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"))
}

/// Sets the options that the URL names; `text` is what follows the scheme.
pub(super) fn parse(text: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    let mut rest = text;
    if let Some((credentials, after)) = text.split_once('@')
        && !credentials.contains('/')
    {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        set("user", user, settings)?;
        set("password", password, settings)?;
        rest = after;
    }
    let rest = hosts(rest, settings)?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    set("dbname", path.strip_prefix('/').unwrap_or_default(), settings)?;
    parameters(query, settings)
}

/// Sets an option to a part of the URL. An empty part sets nothing, so the environment's value applies.
fn set(name: &'static str, part: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    if part.is_empty() { Ok(()) } else { settings.set(name, decode(part, name)?) }
}

/// Reads `host:port,host:port` and returns what follows, from the `/` or `?` on.
fn hosts<'a>(text: &'a str, settings: &mut Settings) -> Result<&'a str, ConninfoError> {
    let mut rest = text;
    let (mut hosts, mut ports) = (String::new(), String::new());
    loop {
        let (host, after) = match rest.strip_prefix('[') {
            Some(inner) => bracketed(inner)?,
            None => split_before(rest, &[':', '/', '?', ',']),
        };
        if host.contains('@') {
            return Err(ConninfoError::AtSign);
        }
        hosts.push_str(host);
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            let (port, after) = split_before(after, &['/', '?', ',']);
            ports.push_str(port);
            rest = after;
        }
        let Some(next) = rest.strip_prefix(',') else { break };
        hosts.push(',');
        ports.push(',');
        rest = next;
    }
    set("host", &hosts, settings)?;
    set("port", &ports, settings)?;
    Ok(rest)
}

/// The IPv6 address before `]`, and what follows.
fn bracketed(text: &str) -> Result<(&str, &str), ConninfoError> {
    let (host, after) = text.split_once(']').ok_or(ConninfoError::Bracket)?;
    if host.is_empty() || !(after.is_empty() || after.starts_with([':', '/', '?', ','])) {
        return Err(ConninfoError::Bracket);
    }
    Ok((host, after))
}

fn split_before<'a>(text: &'a str, ends: &[char]) -> (&'a str, &'a str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Reads `name=value&name=value`. These options replace those of the URL's other parts.
fn parameters(query: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    let mut rest = query;
    while !rest.is_empty() {
        let (pair, after) = rest.split_once('&').unwrap_or((rest, ""));
        rest = after;
        let (name, value) = pair.split_once('=').ok_or(ConninfoError::Query)?;
        if value.contains('=') {
            return Err(ConninfoError::Query);
        }
        let name = decode(name, "option")?;
        let value = decode(value, &name)?;
        // The form of JDBC.
        if name == "ssl" && value == "true" {
            settings.set("sslmode", "require".into())?;
        } else {
            settings.set(&name, value)?;
        }
    }
    Ok(())
}

/// Resolves `%XX`. Unlike in web forms, `+` is itself. Spaces are allowed around a part, but not in it.
fn decode(part: &str, name: &str) -> Result<String, ConninfoError> {
    let part = part.trim_matches(' ');
    if part.contains(' ') {
        return Err(ConninfoError::Spaces);
    }
    let mut bytes = part.bytes();
    let mut decoded = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = digit().zip(digit()).ok_or(ConninfoError::Percent)?;
            let byte = u8::try_from(high * 16 + low).ok().filter(|byte| *byte != 0).ok_or(ConninfoError::Percent)?;
            decoded.push(byte);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).map_err(|_| ConninfoError::Text(showable(name)))
}
