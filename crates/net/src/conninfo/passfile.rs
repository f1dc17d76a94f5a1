//! Passwords from a file: lines `host:port:database:user:password` (manual, "The Password File").

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::Secret;

/// The fields of a login that a line of the file is matched with.
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The contents of a password file.
pub(super) struct Passfile(Zeroizing<String>);

impl Passfile {
    /// Reads the file. As in libpq, a file that others can read is not used, and the caller warns of it.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let at = path.display();
        let read = || {
            let mut file = File::open(path)?;
            let metadata = file.metadata()?;
            let mut bytes = Zeroizing::new(Vec::new());
            if metadata.is_file() {
                file.read_to_end(&mut bytes)?;
            }
            std::io::Result::Ok((metadata, bytes))
        };
        let (metadata, bytes) = read().map_err(|why| format!("the password file {at} cannot be read: {why}"))?;
        if !metadata.is_file() {
            return Err(format!("the password file {at} is not a plain file and is not used"));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(format!("the password file {at} is open to others and is not used: chmod 600 {at}"));
        }
        Ok(Self(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())))
    }

    /// The password of the first line that matches.
    pub(super) fn password(&self, login: &Login<'_>) -> Option<Secret> {
        let port = login.port.to_string();
        let wanted = [login.host, &port, login.database, login.user];
        let found = self.0.lines().find_map(|line| {
            let line = line.trim_end_matches('\r');
            if line.starts_with('#') {
                return None;
            }
            let password = wanted.iter().try_fold(line, |rest, wanted| after_field(rest, wanted))?;
            Some(Secret::new(unescaped(password)))
        });
        found.filter(|password| !password.expose().is_empty())
    }
}

/// Returns the rest of the line if its first field is `*` or the wanted text, with `\` before `:` and `\`.
fn after_field<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let (mut line, mut wanted) = (line.chars(), wanted.chars());
    loop {
        let (escaped, c) = match line.next()? {
            '\\' => (true, line.next()?),
            c => (false, c),
        };
        match wanted.next() {
            None => return (c == ':' && !escaped).then_some(line.as_str()),
            Some(expected) if expected == c => {}
            Some(_) => return None,
        }
    }
}

/// The password: up to the next `:` that has no `\` before it.
fn unescaped(field: &str) -> String {
    let mut password = String::with_capacity(field.len());
    let mut rest = field.chars();
    while let Some(c) = rest.next() {
        match c {
            ':' => break,
            '\\' => password.push(rest.next().unwrap_or('\\')),
            c => password.push(c),
        }
    }
    password
}
