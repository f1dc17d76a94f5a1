//! Test suites of other projects: what passes or is answered directly must pass or be answered equally through Freshet.
//!
//! They take long and are for `make test-long`. `script/setup-suites` unpacks them from package registries:
//!
//! * `drivers`: the tests of pgx, asyncpg, psycopg2 and go-sql-driver/mysql. Each runs directly, then through Freshet. A test that passes directly
//!   must pass through Freshet, unless it is listed as a known difference, with the reason.
//! * `regression`: PostgreSQL's regression files. Each statement is sent by itself to two servers directly and to a third through Freshet, and each
//!   read several times, so that repetitions may be served from the cache. The answers are compared message by message.
//! * `mariadb`: files of MariaDB's `main` suite, in the same way.
//!
//! Not included, because no registry that the tests may use has them: the tests of psycopg 3, `PyMySQL`, node-postgres and mysql2, whose packages
//! come without them, and PostgreSQL's isolation suite, which is only in the source package of PostgreSQL; its archive cannot be downloaded.

mod comparing;
mod drivers;
mod mariadb;
mod regression;

use std::path::{Path, PathBuf};

/// The folder of a suite, if it was unpacked.
fn unpacked(suite: &str) -> Option<PathBuf> {
    let folder = testbed().join("suites").join(suite);
    folder.join("origin").is_file().then_some(folder)
}

/// Where `script/setup` puts what it installs.
fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testbed")
}
