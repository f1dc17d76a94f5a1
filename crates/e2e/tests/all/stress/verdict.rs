//! What is expected of a run, and the seed of its random numbers.

use std::env;
use std::fmt::Debug;
use std::time::SystemTime;

use anyhow::{Result, ensure};

/// The run must have found no violation.
pub(crate) fn expect_none(run: &impl Debug, violations: &[String]) -> Result<()> {
    ensure!(violations.is_empty(), "{run:?}: {} violations, the first:\n{}", violations.len(), violations[0]);
    Ok(())
}

/// The run must have found the fault, unless this Freshet was built without the switches.
pub(crate) fn expect_some(run: &impl Debug, outcome: Result<Vec<String>>) -> Result<()> {
    match outcome {
        Ok(violations) => {
            ensure!(!violations.is_empty(), "{run:?}: the fault was not found");
            println!("{run:?}: found:\n{}", violations[0]);
            Ok(())
        }
        Err(error) if format!("{error:#}").contains("--test-fault") => {
            ensure!(env::var_os("FRESHET_TEST_STRICT").is_none(), "built without fault-injection: {error:#}");
            println!("{run:?}: skipped, Freshet is built without the feature fault-injection");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// That of `FRESHET_STRESS_SEED`, or a new one.
pub(crate) fn seed() -> Result<u64> {
    Ok(match env::var("FRESHET_STRESS_SEED") {
        Ok(text) => text.parse()?,
        Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64,
    })
}
