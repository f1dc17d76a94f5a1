//! Certificates for the tests: of ordinary form by rcgen, of the manual's form by openssl.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

/// A directory of certificates, removed at the end.
pub(super) struct Workshop {
    directory: PathBuf,
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Workshop {
    pub(super) fn open() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("freshet-tls-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        Self { directory }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Runs openssl in the directory; returns what it prints.
    pub(super) fn openssl(&self, arguments: &str) -> String {
        let mut command = Command::new("openssl");
        command.current_dir(&self.directory).args(arguments.split_whitespace());
        let output = command.output().expect("openssl can be run");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The pair of files that openssl has written under a name.
    pub(super) fn pair(&self, name: &str) -> Pair {
        let pair = Pair { cert: self.path(&format!("{name}.crt")), key: self.path(&format!("{name}.key")) };
        fs::set_permissions(&pair.key, fs::Permissions::from_mode(0o600)).unwrap();
        pair
    }

    /// `openssl req -new -x509`, as the manual makes a quick certificate.
    pub(super) fn quick(&self, name: &str, common_name: &str, more: &str) -> Pair {
        let out = format!("-subj /CN={common_name} -keyout {name}.key -out {name}.crt");
        self.openssl(&format!("req -new -x509 -days 365 -nodes {more} {out}"));
        self.pair(name)
    }

    /// The manual's root: a request signed by its own key, with `v3_ca`.
    pub(super) fn manual_root(&self, name: &str) -> Pair {
        self.openssl(&format!("req -new -nodes -out {name}.csr -keyout {name}.key -subj /CN={name}.authority"));
        self.write("ca.cnf", "[v3_ca]\nbasicConstraints = critical,CA:true\n");
        let files = format!("-in {name}.csr -extfile ca.cnf -extensions v3_ca -signkey {name}.key -out {name}.crt");
        self.openssl(&format!("x509 -req -days 3650 {files}"));
        self.pair(name)
    }

    /// The manual's `openssl x509 -req -CA root.crt`: version 1 here, where later versions of OpenSSL make version 3.
    pub(super) fn manual_leaf(&self, name: &str, common_name: &str, root: &str) -> Pair {
        self.openssl(&format!("req -new -nodes -out {name}.csr -keyout {name}.key -subj /CN={common_name}"));
        let files = format!("-in {name}.csr -CA {root}.crt -CAkey {root}.key -CAcreateserial -out {name}.crt");
        self.openssl(&format!("x509 -req -days 365 {files}"));
        self.pair(name)
    }

    /// A certificate made by rcgen, signed by another or by itself.
    pub(super) fn made(&self, name: &str, params: &CertificateParams, by: Option<&Pair>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let cert = match by {
            Some(by) => params.signed_by(&key, &issuer(by)).unwrap(),
            None => params.self_signed(&key).unwrap(),
        };
        self.write(&format!("{name}.key"), key.serialize_pem());
        self.write(&format!("{name}.crt"), cert.pem());
        self.pair(name)
    }

    /// An authority's self-signed certificate with its old name and key, valid in other years.
    pub(super) fn renewed(&self, name: &str, of: &Pair, years: [i32; 2]) -> Pair {
        let key = KeyPair::from_pem(&fs::read_to_string(&of.key).unwrap()).unwrap();
        let mut params = authority(of.cert.file_stem().unwrap().to_str().unwrap());
        [params.not_before, params.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
        let cert = self.write(&format!("{name}.crt"), params.self_signed(&key).unwrap().pem());
        Pair { cert, key: of.key.clone() }
    }

    /// An authority.
    pub(super) fn authority(&self, name: &str, by: Option<&Pair>) -> Pair {
        self.made(name, &authority(name), by)
    }

    /// A certificate for names, valid now.
    pub(super) fn leaf(&self, name: &str, names: &[&str], by: &Pair) -> Pair {
        self.made(name, &leaf(name, names), Some(by))
    }

    /// A certificate followed by the one that signed it.
    pub(super) fn chain(&self, name: &str, parts: &[&Pair]) -> Pair {
        let text: String = parts.iter().map(|pair| fs::read_to_string(&pair.cert).unwrap()).collect();
        Pair { cert: self.write(&format!("{name}.chain"), text), key: parts[0].key.clone() }
    }

    /// A revocation list of an authority.
    pub(super) fn crl(&self, name: &str, by: &Pair, revoked: &[u8], next_year: i32) -> PathBuf {
        let revoked = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&[*serial]),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(next_year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.write(name, params.signed_by(&issuer(by)).unwrap().pem().unwrap())
    }
}

pub(super) fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub(super) fn leaf(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// The issuer that [`Workshop::authority`] has made.
fn issuer(pair: &Pair) -> Issuer<'static, KeyPair> {
    let name = pair.cert.file_stem().unwrap().to_str().unwrap();
    let key = KeyPair::from_pem(&fs::read_to_string(&pair.key).unwrap()).unwrap();
    Issuer::new(authority(name), key)
}
