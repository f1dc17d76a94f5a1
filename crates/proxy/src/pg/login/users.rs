//! The users file: who may log in, and the verifiers of their passwords.
//!
//! Lines of `"name" "verifier"`, a double quote within them doubled, as PgBouncer's `userlist.txt` has them; `#` or
//! `;` begins a comment line. The file is read as a whole or not at all, so that a half-written one never locks anyone
//! out, and a doubled name is an error rather than a guess. No error repeats what may be a password.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use freshet_net::pg::secret::{BadVerifier, Verifier};
use thiserror::Error;

/// Some 100,000 users.
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

/// Users with their verifiers.
#[derive(Debug, Default)]
pub(crate) struct UsersFile {
    verifiers: HashMap<String, Verifier>,
}

impl UsersFile {
    /// Reads the file.
    pub(crate) fn load(path: &Path) -> Result<Self, UsersError> {
        let text = read(path).map_err(|why| UsersError { path: path.to_owned(), why })?;
        Self::parse(&text).map_err(|(line, bad)| UsersError { path: path.to_owned(), why: Why::Line(line, bad) })
    }

    /// The user's verifier.
    pub(crate) fn get(&self, name: &str) -> Option<Verifier> {
        self.verifiers.get(name).cloned()
    }

    /// All verifiers, in no order.
    pub(crate) fn verifiers(&self) -> impl Iterator<Item = &Verifier> {
        self.verifiers.values()
    }

    /// The error names its line, the first being 1.
    fn parse(text: &[u8]) -> Result<Self, (usize, BadLine)> {
        let mut verifiers = HashMap::new();
        for (number, name, verifier) in pairs(text)? {
            let verifier = Verifier::parse(&verifier).map_err(|bad| (number, bad.into()))?;
            verifiers.insert(name, verifier);
        }
        Ok(Self { verifiers })
    }
}

/// Names with whatever stands behind them, for another family's file in this form.
pub(crate) fn load_pairs(path: &Path) -> Result<HashMap<String, String>, UsersError> {
    let text = read(path).map_err(|why| UsersError { path: path.to_owned(), why })?;
    let pairs = pairs(&text).map_err(|(line, bad)| UsersError { path: path.to_owned(), why: Why::Line(line, bad) })?;
    Ok(pairs.into_iter().map(|(_, name, secret)| (name, secret)).collect())
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
    // A pipe would keep us waiting for its writer.
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

/// As PostgreSQL and libpq judge key files: a file of root may be readable by its group.
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

/// The text in the double quotes that the line begins with, and what follows them.
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

    #[test]
    fn names_comments_and_quotes() {
        let text = format!(
            "# users\n\n  ; as PgBouncer\n\"app\" \"{SCRAM}\"\r\n\t\"o\"\"brien \" \t \"{MD5}\"  \n\"ünï # x\" \"{MD5}\""
        );
        let users = UsersFile::parse(text.as_bytes()).unwrap();
        assert_eq!(users.verifiers.len(), 3);
        for name in ["app", "o\"brien ", "ünï # x"] {
            assert!(users.get(name).is_some(), "{name}");
        }
        for name in ["", "APP", "app ", "o\"\"brien ", "# users"] {
            assert!(users.get(name).is_none(), "{name}");
        }
        assert!(UsersFile::parse(b"").unwrap().verifiers.is_empty());
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
            let (number, bad) = UsersFile::parse(&text).expect_err(&line.escape_ascii().to_string());
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
            let outcome = UsersFile::load(&path);
            assert_eq!(outcome.is_ok(), good, "{mode:o}: {outcome:?}");
            if let Err(error) = outcome {
                assert!(error.to_string().ends_with("chmod 600"), "{error}");
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(UsersFile::load(&path).unwrap_err().to_string().contains("No such file"));
        assert!(UsersFile::load(Path::new("/")).unwrap_err().to_string().contains("not a regular file"));
    }
}
