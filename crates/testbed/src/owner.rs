//! The operating-system user of a server's processes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// User and group of the server's processes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `None` for the caller's own user.
    ids: Option<(u32, u32)>,
}

impl Owner {
    /// The caller's own user, or `postgres` (else `nobody`) if the caller is root, since servers refuse to run as root.
    pub fn detect() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { ids: None });
        }
        let passwd = fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        let ids = ["postgres", "nobody"].iter().find_map(|name| find_user(&passwd, name));
        let ids =
            ids.context("running as root, and the system has neither a user postgres nor nobody to run the server as")?;
        Ok(Self { ids: Some(ids) })
    }

    /// A command that runs as this user, without the caller's PostgreSQL environment and directory.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        // PGOPTIONS, PGDATA, PGPORT and the like would change the behaviour of the server or psql.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        // This user may have no access to the caller's directories. Without LC_ALL the log is in the caller's language.
        command.current_dir("/").env("HOME", "/nonexistent").env("LC_ALL", "C");
        command
    }

    /// Makes this user the owner of a path.
    pub fn take(self, path: &Path) -> Result<()> {
        if let Some((user, group)) = self.ids {
            std::os::unix::fs::chown(path, Some(user), Some(group))
                .with_context(|| format!("giving {} to the server's user", path.display()))?;
        }
        Ok(())
    }
}

fn find_user(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let user = fields.nth(1)?.parse().ok()?;
        Some((user, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_user_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8::/:/bin/sh\npostgres:x:101:104:a,b:/:/bin/sh\n";
        assert_eq!(find_user(passwd, "postgres"), Some((101, 104)));
        assert_eq!(find_user(passwd, "nobody"), None);
    }
}
