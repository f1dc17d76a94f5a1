//! Headers for the collector, which may be secret. They are never logged, and `Debug` does not show them.

use std::fmt;
use std::path::Path;

/// The variable of all OpenTelemetry exporters: `name=value,name=value`, values percent-encoded.
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// The largest file that is accepted.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// Headers that the exporter sets itself.
const OWN: [&str; 5] = ["host", "content-length", "content-type", "transfer-encoding", "connection"];

/// Lines of a request's head.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Headers(String);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Headers")
    }
}

impl Headers {
    /// The headers of the file, otherwise those of the environment. The error does not repeat values.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(path) = file else {
            return std::env::var(VARIABLE).map_or(Ok(Self::default()), |text| Self::of_variable(&text));
        };
        let say = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
        if std::fs::metadata(path).map_err(say)?.len() > FILE_BYTES_MAX {
            return Err(format!("{} is larger than 16 KiB", path.display()));
        }
        let text = std::fs::read_to_string(path).map_err(say)?;
        Self::of_file(&text).map_err(|line| format!("{}: line {line} is not \"name: value\"", path.display()))
    }

    /// The error is the number of the malformed line.
    fn of_file(text: &str) -> Result<Self, usize> {
        let mut headers = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let added = line.split_once(':').and_then(|(name, value)| headers.add(name.trim(), value.trim()));
            added.ok_or(at + 1)?;
        }
        Ok(headers)
    }

    fn of_variable(text: &str) -> Result<Self, String> {
        let mut headers = Self::default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let added =
                pair.split_once('=').and_then(|(name, value)| headers.add(name.trim(), &decoded(value.trim())?));
            added.ok_or_else(|| format!("{VARIABLE} is not name=value,name=value"))?;
        }
        Ok(headers)
    }

    fn add(&mut self, name: &str, value: &str) -> Option<()> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_good = !name.is_empty()
            && name.bytes().all(is_name)
            && !OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
            && value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        is_good.then(|| self.0.extend([name, ": ", value, "\r\n"]))
    }

    /// The lines.
    pub(super) fn lines(&self) -> &str {
        &self.0
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'%' {
            let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok())?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = behind.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_from_a_file_and_a_variable() {
        let file = Headers::of_file("# for the collector\nAuthorization: Bearer a:b\n\nx-team:shop\n");
        assert_eq!(file.map(|headers| headers.0), Ok("Authorization: Bearer a:b\r\nx-team: shop\r\n".to_owned()));
        let variable = Headers::of_variable("authorization=Bearer%20a,x=1");
        assert_eq!(variable.map(|headers| headers.0), Ok("authorization: Bearer a\r\nx: 1\r\n".to_owned()));
        for text in ["none", "a b: c", ": c", "ok: 1\nHost: other"] {
            assert!(Headers::of_file(text).is_err(), "{text}");
        }
        for text in ["none", "a=%0d%0ab", "a=%zz", "content-length=1"] {
            assert!(Headers::of_variable(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", Headers::of_file("a: secret")), "Ok(Headers)");
    }
}
