//! The PostgreSQL programs on this machine that the server's user can run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::owner::Owner;

/// Newest first: without a version, the newest one is used.
const MAJORS: [u32; 6] = [18, 17, 16, 15, 14, 13];

/// The folder of this crate. A release (`script/build-release`) knows no folder of the machine that built it.
const SOURCE: Option<&str> =
    if option_env!("FRESHET_COMMIT").is_some() { None } else { Some(env!("CARGO_MANIFEST_DIR")) };

/// PostgreSQL as a kind of server.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

impl Postgres {
    /// Finds the programs of one major version, or of the newest installed one.
    ///
    /// Looked for in this order: the folder in `FRESHET_PG_<major>_BIN`, Debian's folders, and the folders of `script/setup`.
    pub fn find(major: Option<u32>) -> Result<Installation> {
        let owner = Owner::detect()?;
        let wanted: Vec<u32> = major.map_or_else(|| MAJORS.to_vec(), |major| vec![major]);
        let mut looked_at = Vec::new();
        for major in wanted {
            for bin in candidates(major) {
                match probe(owner, &bin, major) {
                    Ok(version) => return Ok(Installation { bin, owner, major, version }),
                    Err(error) => looked_at.push(format!("{}: {error:#}", bin.display())),
                }
            }
        }
        let name = major.map_or_else(|| "no PostgreSQL".to_owned(), |major| format!("no PostgreSQL {major}"));
        let how = if major == Some(18) { "script/setup test" } else { "script/setup demo" };
        bail!(
            "{name} that can be started here; run `{how}`, or set FRESHET_PG_<major>_BIN to the folder with initdb and \
             postgres.\nLooked at:\n  {}",
            looked_at.join("\n  ")
        )
    }
}

fn candidates(major: u32) -> Vec<PathBuf> {
    // A folder that is set explicitly is used or reported, never replaced silently.
    if let Some(bin) = std::env::var_os(format!("FRESHET_PG_{major}_BIN")) {
        return vec![PathBuf::from(bin)];
    }
    let mut found = vec![PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))];
    found.extend(unpacked(&format!("postgresql-{major}/bin")));
    found
}

/// Where `script/setup` may have unpacked a folder.
pub(crate) fn unpacked(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let here = std::env::current_dir().unwrap_or_default();
    for start in [Some(here.as_path()), SOURCE.map(Path::new)].into_iter().flatten() {
        for above in start.ancestors() {
            let folder = above.join(".testbed").join(folder);
            if folder.is_dir() && !found.contains(&folder) {
                found.push(folder);
            }
        }
    }
    found.push(Path::new("/var/tmp/freshet-testbed").join(folder));
    found
}

/// A program by its name, in the search path and in Debian's folders for servers. The caller can run it; whether the servers' user can is known when
/// it is started.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Runs `postgres --version` as the server's user: this proves that the path is accessible and the libraries exist.
fn probe(owner: Owner, bin: &Path, major: u32) -> Result<String> {
    let program = bin.join("postgres");
    ensure!(program.is_file(), "no program postgres");
    ensure!(bin.join("initdb").is_file(), "no program initdb");
    let output = owner.command(&program).arg("--version").output().context("the server's user cannot run it")?;
    ensure!(output.status.success(), "`postgres --version` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let version =
        String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("postgres (PostgreSQL) ").to_owned();
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    ensure!(digits == major.to_string(), "it is PostgreSQL {version}");
    Ok(version)
}

/// The programs of one PostgreSQL version.
#[derive(Clone, Debug)]
pub struct Installation {
    pub(crate) bin: PathBuf,
    pub(crate) owner: Owner,
    major: u32,
    version: String,
}

impl Installation {
    /// Major version, such as 18.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The full version as the server reports it, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The path of one of its programs, such as `pgbench`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}
