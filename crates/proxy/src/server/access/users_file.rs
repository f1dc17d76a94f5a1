//! The users file: users who may log in, with their passwords or verifiers.
//!
//! Each line is `"name" "secret"`, with doubled quotes inside, as in PgBouncer's `userlist.txt`. A line that begins with `#` or `;` is a comment. The
//! file is read as a whole or not at all, so that a half-written file never locks out users. A duplicate name is an error. Error messages do not
//! repeat text that may be a password.
//!
//! PostgreSQL's users have verifiers. Those of MySQL and MariaDB have the passwords themselves: the client authenticates to Freshet, which logs in
//! upstream with the same password, whatever plugins the two sides use. No stored hash of these plugins would suffice for that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use freshet_net::postgres::secret::{BadVerifier, Secret, Verifier};
use thiserror::Error;

/// Enough for some 100,000 users.
const BYTES_MAX: u64 = 16 << 20;

/// Why a users file cannot be used.
#[derive(Debug, Error)]
#[error("users file {}: {why}", path.display())]
pub struct UsersError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, Error)]
enum Why {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("others than its owner can read it: chmod 600")]
    Permissions,
    #[error("larger than {BYTES_MAX} bytes")]
    TooLarge,
    #[error("not a regular file")]
    Irregular,
    #[error("line {0}: {1}")]
    Line(usize, BadLine),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum BadLine {
    #[error("not \"name\" \"verifier\", both in double quotes")]
    Form,
    #[error("not valid UTF-8")]
    Encoding,
    #[error("the same user as in line {0}")]
    Duplicate(usize),
    #[error("{0}")]
    Verifier(#[from] BadVerifier),
}

/// Users with their secrets.
pub(crate) struct UsersFile<S> {
    path: PathBuf,
    read_secret: fn(String) -> Result<S, BadVerifier>,
    secrets: ArcSwap<HashMap<String, S>>,
}

impl<S> fmt::Debug for UsersFile<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsersFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl UsersFile<Verifier> {
    /// Reads a file of verifiers.
    pub(crate) fn of_verifiers(path: &Path) -> Result<Self, UsersError> {
        Self::load(path, |text| Verifier::parse(&text))
    }
}

impl UsersFile<Secret> {
    /// Reads a file of passwords.
    pub(crate) fn of_passwords(path: &Path) -> Result<Self, UsersError> {
        Self::load(path, |text| Ok(Secret::new(text)))
    }
}

impl<S: Clone> UsersFile<S> {
    fn load(path: &Path, read_secret: fn(String) -> Result<S, BadVerifier>) -> Result<Self, UsersError> {
        let secrets = ArcSwap::from_pointee(load(path, read_secret)?);
        Ok(Self { path: path.to_owned(), read_secret, secrets })
    }

    /// Reads the file again. On an error nothing changes.
    pub(crate) fn reload(&self) -> Result<(), UsersError> {
        self.secrets.store(Arc::new(load(&self.path, self.read_secret)?));
        Ok(())
    }

    /// The user's secret.
    pub(crate) fn get(&self, name: &str) -> Option<S> {
        self.secrets.load().get(name).cloned()
    }

    /// All secrets, in any order.
    pub(crate) fn secrets(&self) -> Vec<S> {
        self.secrets.load().values().cloned().collect()
    }
}

fn load<S>(path: &Path, read_secret: fn(String) -> Result<S, BadVerifier>) -> Result<HashMap<String, S>, UsersError> {
    let text = read(path).map_err(|why| UsersError { path: path.to_owned(), why })?;
    parse(&text, read_secret).map_err(|(line, bad)| UsersError { path: path.to_owned(), why: Why::Line(line, bad) })
}

/// An error names the line, counted from 1.
fn parse<S>(
    text: &[u8],
    read_secret: fn(String) -> Result<S, BadVerifier>,
) -> Result<HashMap<String, S>, (usize, BadLine)> {
    let mut secrets = HashMap::new();
    for (number, name, secret) in pairs(text)? {
        secrets.insert(name, read_secret(secret).map_err(|bad| (number, bad.into()))?);
    }
    Ok(secrets)
}

/// Number, name and secret of a line.
type Pair = (usize, String, String);

fn pairs(text: &[u8]) -> Result<Vec<Pair>, (usize, BadLine)> {
    let mut pairs = Vec::new();
    let mut lines = HashMap::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = std::str::from_utf8(line).map_err(|_| (number, BadLine::Encoding))?.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (name, secret) = fields(line).ok_or((number, BadLine::Form))?;
        match lines.entry(name.clone()) {
            Entry::Occupied(first) => return Err((number, BadLine::Duplicate(*first.get()))),
            Entry::Vacant(vacant) => vacant.insert(number),
        };
        pairs.push((number, name, secret));
    }
    Ok(pairs)
}

fn read(path: &Path) -> Result<Vec<u8>, Why> {
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Why::Irregular);
    }
    let file = File::open(path)?;
    if is_open_to_others(&file.metadata()?) {
        return Err(Why::Permissions);
    }
    let mut text = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > BYTES_MAX { Err(Why::TooLarge) } else { Ok(text) }
}

/// The check of PostgreSQL and libpq for key files: a file of root may be readable by its group.
fn is_open_to_others(file: &Metadata) -> bool {
    file.mode() & if file.uid() == 0 { 0o037 } else { 0o077 } != 0
}

/// The name and the verifier.
fn fields(line: &str) -> Option<(String, String)> {
    let (name, rest) = quoted(line)?;
    if !rest.starts_with(char::is_whitespace) || name.is_empty() {
        return None;
    }
    let (verifier, rest) = quoted(rest.trim_start())?;
    rest.is_empty().then_some((name, verifier))
}

/// The text in double quotes at the start of the line, and the rest of the line.
fn quoted(line: &str) -> Option<(String, &str)> {
    let mut rest = line.strip_prefix('"')?;
    let mut text = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        text.push_str(part);
        let Some(more) = behind.strip_prefix('"') else { return Some((text, behind)) };
        text.push('"');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SCRAM: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                         wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    const MD5: &str = "md5d41d8cd98f00b204e9800998ecf8427e";

    const VERIFIER: fn(String) -> Result<Verifier, BadVerifier> = |text| Verifier::parse(&text);

    #[test]
    fn names_comments_and_quotes() {
        let text = format!(
            "# users\n\n  ; as PgBouncer\n\"app\" \"{SCRAM}\"\r\n\t\"o\"\"brien \" \t \"{MD5}\"  \n\"ünï # x\" \"{MD5}\""
        );
        let users = parse(text.as_bytes(), VERIFIER).unwrap();
        assert_eq!(users.len(), 3);
        for name in ["app", "o\"brien ", "ünï # x"] {
            assert!(users.contains_key(name), "{name}");
        }
        for name in ["", "APP", "app ", "o\"\"brien ", "# users"] {
            assert!(!users.contains_key(name), "{name}");
        }
        assert!(parse(b"", VERIFIER).unwrap().is_empty());
    }

    #[test]
    fn bad_lines_are_named() {
        let form = |line: &str| (line.to_owned().into_bytes(), BadLine::Form);
        let cases = [
            form("app"),
            form("app md5"),
            form("\"app\""),
            form("\"app"),
            form("\"app\" \""),
            form(&format!("\"\" \"{MD5}\"")),
            form(&format!("\"app\"\"{MD5}\"")),
            form(&format!("\"app\" {MD5}")),
            form(&format!("\"app\" \"{MD5}\" \"more\"")),
            form(&format!("\"app\" \"{MD5}\" # more")),
            (b"\"\xff\" \"x\"".to_vec(), BadLine::Encoding),
            (b"\"app\" \"hunter2\"".to_vec(), BadLine::Verifier(BadVerifier::Unknown)),
            (b"\"app\" \"\"".to_vec(), BadLine::Verifier(BadVerifier::Unknown)),
            (b"\"app\" \"SCRAM-SHA-256$hunter2\"".to_vec(), BadLine::Verifier(BadVerifier::Scram)),
            (format!("\"good\" \"{MD5}\"").into_bytes(), BadLine::Duplicate(1)),
        ];
        for (line, expected) in cases {
            let text = [format!("\"good\" \"{MD5}\"\n#\n").as_bytes(), &line, b"\n"].concat();
            let (number, bad) = parse(&text, VERIFIER).expect_err(&line.escape_ascii().to_string());
            assert_eq!((number, bad), (3, expected), "{}", line.escape_ascii());
            assert!(!bad.to_string().contains("hunter2"), "{bad}");
        }
    }

    #[test]
    fn files_that_others_can_read_are_refused() {
        let path = std::env::temp_dir().join(format!("freshet-users-{}", std::process::id()));
        fs::write(&path, format!("\"app\" \"{MD5}\"\n")).unwrap();
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        for (mode, good) in
            [(0o600, true), (0o400, true), (0o640, is_root), (0o660, false), (0o604, false), (0o644, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let outcome = UsersFile::of_verifiers(&path);
            assert_eq!(outcome.is_ok(), good, "{mode:o}: {outcome:?}");
            if let Err(error) = outcome {
                assert!(error.to_string().ends_with("chmod 600"), "{error}");
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(UsersFile::of_verifiers(&path).unwrap_err().to_string().contains("No such file"));
        assert!(UsersFile::of_verifiers(Path::new("/")).unwrap_err().to_string().contains("not a regular file"));
    }
}
