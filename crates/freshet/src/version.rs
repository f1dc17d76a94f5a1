//! What this program was built from.

use std::env::consts::ARCH;

/// The version of the package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that script/build-release built. None: a build by hand.
const COMMIT: Option<&str> = option_env!("FRESHET_COMMIT");

/// The text of `--version`: version, commit, machine and C library, features.
pub(crate) fn long() -> String {
    let commit = COMMIT.unwrap_or("unknown (built by hand)");
    let library = if cfg!(target_env = "musl") { "musl, static" } else { "glibc" };
    let features = if cfg!(feature = "fault-injection") { "fault-injection" } else { "none" };
    format!("{VERSION}\ncommit: {commit}\nbuilt for: {ARCH} ({library})\nfeatures: {features}")
}
