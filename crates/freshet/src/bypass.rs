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
    let sql = match args.state {
        State::On => "FRESHET BYPASS ON",
        State::Off => "FRESHET BYPASS OFF",
    };
    let (at, state) = ask(&args.at, sql).await?;
    let is = match (args.state, state.as_str()) {
        (State::Off, "off") => "the cache answers",
        (State::Off, _) => {
            "its cache stays off: a new process was asked to take over, or the database is being removed"
        }
        (State::On, _) => "all statements go to the database",
    };
    println!("bypass {state} at {at}: {is}");
    Ok(())
}
