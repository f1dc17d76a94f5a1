//! `freshet advise`: how the statements that pass a running Freshet could become cacheable.

use anyhow::{Context, Result};

use crate::running::{At, rows};

/// Options of `freshet advise`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    at: At,
    /// How many statements to list
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

/// Prints the list. The statement on which the database has spent most time comes first.
pub(crate) async fn run(args: AdviseArgs) -> Result<()> {
    let (at, rows) = rows(&args.at, "SHOW ADVICE").await?;
    if rows.is_empty() {
        println!("{at}: no statement passes for a reason that can be mended");
    }
    for row in rows.iter().take(args.limit) {
        let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or_default()).collect();
        let [digest, query, passed, seconds, _, detail, remedy] =
            cells.as_slice().try_into().ok().context("an unexpected answer to SHOW ADVICE")?;
        let query: String = query.split_whitespace().collect::<Vec<_>>().join(" ");
        println!(
            "{seconds} s at the database, passed {passed} times: {query}\n  digest  {digest}\n  why     {detail}\n  remedy  {remedy}\n"
        );
    }
    if rows.len() > args.limit {
        println!("… and {} more (--limit)", rows.len() - args.limit);
    }
    Ok(())
}
