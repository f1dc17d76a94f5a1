//! The server's kind and version, from its handshake.

use std::fmt;

/// MariaDB's prefix of its version, since old MySQL replicas take `10` for `1`.
const REPLICATION_PREFIX: &str = "5.5.5-";

/// A server's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerVersion {
    /// MariaDB rather than MySQL.
    pub is_mariadb: bool,
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
    /// The version as executable comments write it: 80015, 101106. None if it has another form than the server's own.
    pub number: Option<u32>,
    /// The whole version, as `SELECT version()` returns it.
    pub text: String,
}

impl ServerVersion {
    /// Parses the version of a handshake. Missing numbers are 0.
    pub fn parse(handshake: &[u8]) -> Self {
        let text = String::from_utf8_lossy(handshake);
        let stripped = text.strip_prefix(REPLICATION_PREFIX).unwrap_or(&text);
        // `10.11.6-MariaDB` and so on; the text behind the numbers does not begin with a digit.
        let mut numbers = stripped.splitn(3, '.').map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or(0)
        });
        let mut next = || numbers.next().unwrap_or(0);
        let (major, minor, patch) = (next(), next(), next());
        let is_whole = stripped.starts_with(&format!("{major}.{minor}.{patch}"));
        let number =
            (is_whole && major < 100 && minor < 100 && patch < 100).then(|| major * 10_000 + minor * 100 + patch);
        Self { is_mariadb: stripped.contains("MariaDB"), major, minor, patch, number, text: stripped.to_owned() }
    }

    /// Whether the version is at least this one.
    pub fn is_at_least(&self, major: u32, minor: u32, patch: u32) -> bool {
        (self.major, self.minor, self.patch) >= (major, minor, patch)
    }
}

/// `MariaDB 10.11.6`
impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_mariadb { "MariaDB" } else { "MySQL" };
        write!(f, "{name} {}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        let debian = ServerVersion::parse(b"5.5.5-10.11.6-MariaDB-0+deb12u1-log");
        assert_eq!((debian.is_mariadb, debian.to_string().as_str()), (true, "MariaDB 10.11.6"));
        assert_eq!(debian.text, "10.11.6-MariaDB-0+deb12u1-log");
        assert_eq!(ServerVersion::parse(b"11.4.2-MariaDB").to_string(), "MariaDB 11.4.2");
        let mysql = ServerVersion::parse(b"8.0.15");
        assert_eq!(mysql.to_string(), "MySQL 8.0.15");
        assert!(mysql.is_at_least(8, 0, 15) && mysql.is_at_least(5, 7, 99) && !mysql.is_at_least(8, 0, 20));
        assert_eq!(ServerVersion::parse(b"8.4").to_string(), "MySQL 8.4.0");
        let numbers: [(&[u8], _); 5] = [
            (b"8.0.15", Some(80_015)),
            (b"5.5.5-10.11.6-MariaDB", Some(101_106)),
            (b"8.0.36-28", Some(80_036)),
            (b"8.0.mysql_aurora.3.04.0", None),
            (b"8.4", None),
        ];
        for (text, number) in numbers {
            assert_eq!(ServerVersion::parse(text).number, number);
        }
        assert_eq!(ServerVersion::parse(b"\xff.x").to_string(), "MySQL 0.0.0");
    }
}
