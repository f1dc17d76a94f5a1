//! The users file of MySQL and MariaDB: who may log in, and with which password.
//!
//! Lines of `"name" "password"`, in the form of PostgreSQL's users file. It holds the passwords themselves: Freshet ends
//! the client's exchange and logs in upstream with the same password, whatever plugins the two sides use, and no stored hash of
//! these plugins would do for that.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use freshet_net::pg::secret::Secret;

use crate::pg::login::{UsersError, load_pairs};

/// Users with their passwords.
pub(crate) struct Users {
    path: PathBuf,
    passwords: RwLock<HashMap<String, Secret>>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Users {
    /// Reads the file.
    pub(crate) fn load(path: &Path) -> Result<Self, UsersError> {
        Ok(Self { path: path.to_owned(), passwords: RwLock::new(read(path)?) })
    }

    /// Reads it again. On an error all stays as it was.
    pub(crate) fn reload(&self) -> Result<(), UsersError> {
        let fresh = read(&self.path)?;
        *self.passwords.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The user's password.
    pub(crate) fn password(&self, name: &[u8]) -> Option<Secret> {
        let name = std::str::from_utf8(name).ok()?;
        self.passwords
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .map(|secret| Secret::new(secret.expose().to_owned()))
    }
}

fn read(path: &Path) -> Result<HashMap<String, Secret>, UsersError> {
    Ok(load_pairs(path)?.into_iter().map(|(name, password)| (name, Secret::new(password))).collect())
}
