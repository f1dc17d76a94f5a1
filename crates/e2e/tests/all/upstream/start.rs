//! A Freshet that finds its upstream without a URL: by variables, by files in the home directory, by defaults.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use crate::support::{LISTEN, program};

/// A home directory, removed at the end.
pub(super) struct Home(pub(super) PathBuf);

impl Home {
    pub(super) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("freshet-home-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Writes a file with these permissions.
    pub(super) fn write(&self, name: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What stays lies in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `freshet serve` with this `--upstream`, if any, these variables and this home directory, and nothing else that says
/// where a server is.
pub(super) fn command(upstream: Option<&str>, variables: &[(&str, &str)], home: &Path) -> Result<Option<Command>> {
    let Some(program) = program()? else { return Ok(None) };
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.env_remove("FRESHET_UPSTREAM").env("HOME", home).envs(variables.iter().copied());
    command.args(["--log", "debug", "serve"]).args(LISTEN);
    if let Some(upstream) = upstream {
        command.args(["--upstream", upstream]);
    }
    Ok(Some(command))
}
