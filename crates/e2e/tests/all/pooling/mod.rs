//! Transaction pooling: sessions share server connections, and each sees its own state only.
//!
//! * `mysql`: MySQL and MariaDB.
//! * `postgres`: PostgreSQL.

mod mysql;
pub(crate) mod postgres;

use anyhow::{Result, ensure};

use crate::support::{Freshet, PATIENCE, eventually};

/// Waits until sessions wait for a server that takes connections.
pub(crate) fn until_sessions_wait(freshet: &Freshet) -> Result<()> {
    eventually(PATIENCE, || {
        ensure!(freshet.log().contains("sessions wait for up to"), "nobody waits; the log:\n{}", freshet.log());
        Ok(())
    })
}

/// Waits until these seconds are more than now.
fn until_more(seconds: impl Fn() -> Result<f64>) -> Result<()> {
    let before = seconds()?;
    eventually(PATIENCE, || {
        ensure!(seconds()? > before, "time stands still");
        Ok(())
    })
}
