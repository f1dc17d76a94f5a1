//! Files for one test: a users file, a certificate.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use freshet_testbed::Tls;

/// A directory that is removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn create(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("freshet-accounts-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// With a certificate of 127.0.0.1 that is its own root.
    pub(super) fn with_certificate(name: &str) -> Result<Self> {
        let folder = Self::create(name)?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        folder.write("cert.pem", &made.cert.pem())?;
        folder.write("key.pem", &made.signing_key.serialize_pem())?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that others cannot read; its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.0.join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path.display().to_string())
    }

    pub(super) fn tls(&self) -> Tls {
        Tls { cert: self.0.join("cert.pem"), key: self.0.join("key.pem"), client_ca: None }
    }

    /// The certificate as options of `freshet serve`.
    pub(super) fn options(&self) -> [String; 4] {
        let Tls { cert, key, .. } = self.tls();
        ["--tls-cert".into(), cert.display().to_string(), "--tls-key".into(), key.display().to_string()]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays lies in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
