//! The state file: the rules that SQL has created, so that they survive a restart.
//!
//! It has the form of the configuration file, `[[rule]]` tables alone, and Freshet writes it. It is written to a file beside it, which then takes its place: a
//! crash leaves the old file or the new one, and never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use freshet_proxy::RuleText;

use crate::config::fault::lines;
use crate::config::file::{self, Contents};

const HEAD: &str = "# Freshet writes this file: the rules that CREATE CACHE has made. SHOW RULES AS TOML shows them.\n";

/// Reads the file at the start. One that cannot be read, or has anything else in it, is moved aside, and there are no such rules.
pub(super) fn read(path: &Path) -> Vec<RuleText> {
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Vec::new();
    }
    let wrong = match file::read(path, &[]) {
        Ok(Contents { entries, rules }) => {
            if entries.is_empty() && rules.len() <= RULES_MAX && rules.iter().all(RuleText::is_of_sql) {
                return rules;
            }
            format!("{}: not the rules that CREATE CACHE makes", path.display())
        }
        Err(faults) => lines(&faults),
    };
    let aside = beside(path, "broken");
    match fs::rename(path, &aside) {
        Ok(()) => tracing::warn!("{wrong}; moved to {}, and none of its rules is in force", aside.display()),
        Err(error) => tracing::warn!("{wrong}; none of its rules is in force, and it cannot be moved: {error}"),
    }
    Vec::new()
}

/// The most rules that SQL may create: each costs a comparison for each new statement.
pub(super) const RULES_MAX: usize = 1000;

/// Replaces the file.
pub(super) fn write(path: &Path, rules: &[RuleText]) -> io::Result<()> {
    let text: String = rules.iter().flat_map(RuleText::toml).map(|line| line + "\n").collect();
    let new = beside(path, "new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(HEAD.as_bytes())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // So that the new name survives a crash of the machine.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use freshet_proxy::Caching;

    use super::*;

    #[test]
    fn rules_come_back_and_a_broken_file_goes_aside() {
        let directory = std::env::temp_dir().join(format!("freshet-state-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("state.toml");
        assert_eq!(read(&path), []);
        let rule = |name: &str, ttl| RuleText {
            name: Some(name.to_owned()),
            digest: Some("0123456789abcdef".to_owned()),
            cache: Caching::Always,
            ttl,
            ..RuleText::default()
        };
        let rules = [rule("a \"b\" \\ é", Some(1_500_000_000)), rule("c", None)];
        write(&path, &rules).expect("written");
        assert_eq!(read(&path), rules);
        for broken in ["[[rule]]\ndigest = 5\n", "memory = \"1GiB\"", "[[rule]]\nuser = \"a\"\ncache = \"always\"\n"] {
            fs::write(&path, broken).expect("written");
            assert_eq!(read(&path), [], "{broken}");
            assert!(!path.exists() && fs::read_to_string(beside(&path, "broken")).expect("it") == broken, "{broken}");
        }
        assert!(write(&directory.join("nowhere/state.toml"), &rules).is_err());
        fs::remove_dir_all(&directory).expect("removed");
    }
}
