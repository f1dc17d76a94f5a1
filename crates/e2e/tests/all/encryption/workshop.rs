//! Certificates for the tests, in a directory that is removed at the end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Tls;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

pub(super) struct Workshop {
    directory: PathBuf,
}

/// Who signs certificates.
pub(super) struct Authority {
    pub(super) cert: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // What stays lies in the temporary directory.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Workshop {
    pub(super) fn open() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("freshet-tls-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory)?;
        Ok(Self { directory })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    pub(super) fn authority(&self, name: &str) -> Result<Authority> {
        let mut params = params(&format!("{name}.authority"), &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let cert = self.write(&format!("{name}.crt"), &params.self_signed(&key)?.pem())?;
        Ok(Authority { cert, issuer: Issuer::new(params, key) })
    }

    /// A certificate with the name it is filed under as its common name.
    pub(super) fn leaf(&self, name: &str, hosts: &[&str], by: &Authority) -> Result<Tls> {
        self.signed(name, &params(name, hosts)?, by)
    }

    /// As the manual makes them: no alternative name.
    pub(super) fn common_name_only(&self, name: &str, host: &str, by: &Authority) -> Result<Tls> {
        self.signed(name, &params(host, &[])?, by)
    }

    pub(super) fn expired(&self, name: &str, hosts: &[&str], by: &Authority) -> Result<Tls> {
        let mut params = params(name, hosts)?;
        params.not_after = date_time_ymd(2020, 1, 1);
        self.signed(name, &params, by)
    }

    fn signed(&self, name: &str, params: &CertificateParams, by: &Authority) -> Result<Tls> {
        let key = KeyPair::generate()?;
        self.write(&format!("{name}.crt"), &params.signed_by(&key, &by.issuer)?.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())?;
        self.pair(name)
    }

    /// `openssl req -new -x509`: the manual's quick certificate, which is its own root.
    pub(super) fn quick(&self, name: &str, common_name: &str) -> Result<Tls> {
        let files = format!("-keyout {name}.key -out {name}.crt");
        self.openssl(&format!("req -new -x509 -days 365 -nodes -text -subj /CN={common_name} {files}"))?;
        self.pair(name)
    }

    /// The manual's root and a certificate that it signed, by the manual's commands word for word. Returns the root too.
    pub(super) fn manual(&self, name: &str, common_name: &str) -> Result<(Tls, PathBuf)> {
        let root = format!("{name}-root");
        self.write("ca.cnf", "[v3_ca]\nbasicConstraints = critical,CA:true\n")?;
        self.openssl(&format!("req -new -nodes -text -out {root}.csr -keyout {root}.key -subj /CN=root.{name}"))?;
        let files = format!("-in {root}.csr -extfile ca.cnf -extensions v3_ca -signkey {root}.key -out {root}.crt");
        self.openssl(&format!("x509 -req -text -days 3650 {files}"))?;
        self.openssl(&format!("req -new -nodes -text -out {name}.csr -keyout {name}.key -subj /CN={common_name}"))?;
        let files = format!("-in {name}.csr -CA {root}.crt -CAkey {root}.key -CAcreateserial -out {name}.crt");
        self.openssl(&format!("x509 -req -text -days 365 {files}"))?;
        Ok((self.pair(name)?, self.path(&format!("{root}.crt"))))
    }

    fn pair(&self, name: &str) -> Result<Tls> {
        let (cert, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        Ok(Tls { cert, key, client_ca: None })
    }

    fn openssl(&self, arguments: &str) -> Result<()> {
        let mut command = Command::new("openssl");
        command.current_dir(&self.directory).args(arguments.split_whitespace());
        let output = command.output().context("openssl")?;
        ensure!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

fn params(common_name: &str, hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

/// A file's name for a connection string.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}
