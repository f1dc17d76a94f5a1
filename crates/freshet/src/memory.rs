//! `freshet memory SIZE`: gives a running Freshet another memory limit.

use anyhow::{Result, ensure};
use freshet_units::MemorySize;

use crate::running::{At, ask};

/// The same minimum as in the statement's grammar.
const BYTES_MIN: u64 = 1 << 20;

/// Options of `freshet memory`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MemoryArgs {
    /// What --memory is from now on: 512MiB, 2GiB. Where that is less, what has no room any more goes within moments
    size: MemorySize,
    #[command(flatten)]
    at: At,
}

/// Sets the limit, and prints the new state.
pub(crate) async fn run(args: MemoryArgs) -> Result<()> {
    // Freshet's own refusal reads like that of a server that does not know the statement.
    ensure!(args.size.0 >= BYTES_MIN, "a memory limit has at least {BYTES_MIN} bytes");
    let (at, bytes) = ask(&args.at, &format!("FRESHET MEMORY {}", args.size.0)).await?;
    println!("memory {bytes} bytes at {at}");
    Ok(())
}
