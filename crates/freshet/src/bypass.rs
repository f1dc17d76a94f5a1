//! `freshet bypass on|off`: switches a running Freshet's cache off and on again.

use anyhow::Result;

use crate::running::{At, ask};

/// Options of `freshet bypass`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BypassArgs {
    /// on: all statements go to the database, at once and in all sessions, until Freshet is told off or starts again.
    /// off: the cache answers again; its results were invalidated by all changes meanwhile
    #[arg(value_enum)]
    state: State,
    #[command(flatten)]
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum State {
    On,
    Off,
}

/// Switches, and prints the new state.
pub(crate) async fn run(args: BypassArgs) -> Result<()> {
    let (sql, is) = match args.state {
        State::On => ("FRESHET BYPASS ON", "all statements go to the database"),
        State::Off => ("FRESHET BYPASS OFF", "the cache answers"),
    };
    let (at, state) = ask(&args.at, sql).await?;
    println!("bypass {state} at {at}: {is}");
    Ok(())
}
