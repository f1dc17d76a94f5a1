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
    /// It is the least part of --memory that the database of --at has
    #[arg(long, conflicts_with = "max")]
    min: bool,
    /// It is the most that the database of --at may have
    #[arg(long)]
    max: bool,
    #[command(flatten)]
    at: At,
}

/// Sets the limit, and prints the new state.
pub(crate) async fn run(args: MemoryArgs) -> Result<()> {
    // Freshet's own refusal reads like that of a server that does not know the statement.
    ensure!(args.min || args.size.0 >= BYTES_MIN, "a memory limit has at least {BYTES_MIN} bytes");
    let (bound, what) = match (args.min, args.max) {
        (true, _) => ("MIN ", "the least memory of the database"),
        (_, true) => ("MAX ", "the most memory of the database"),
        _ => ("", "memory"),
    };
    let (at, bytes) = ask(&args.at, &format!("FRESHET MEMORY {bound}{}", args.size.0)).await?;
    println!("{what} {bytes} bytes at {at}");
    Ok(())
}
