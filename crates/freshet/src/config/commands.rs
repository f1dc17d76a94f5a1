//! `freshet config`: the possible contents of a configuration, and the import of PgBouncer's.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::config::definition::command;
use crate::config::{pgbouncer, show};

/// The text to print.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a file with all keys, commented out, with their defaults
    Default,
    /// Print the JSON schema of the file
    Schema,
    /// Print the tables of all settings and of those of a [[database]], in Markdown
    Reference,
    /// Print the file for what a pgbouncer.ini says
    Import(ImportArgs),
}

/// Options of `freshet config import`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// The pgbouncer.ini
    file: PathBuf,
    /// Write what has no counterpart as a comment; without this it is an error
    #[arg(long)]
    lenient: bool,
}

/// Prints.
pub(crate) fn run(command_: &ConfigCommand) -> Result<ExitCode> {
    let text = match command_ {
        ConfigCommand::Default => show::sample(&command()),
        ConfigCommand::Schema => show::schema(&command()),
        ConfigCommand::Reference => format!("{}\n{}", show::reference(&command()), show::reference_of_databases()),
        ConfigCommand::Import(args) => {
            let name = args.file.display().to_string();
            let text = std::fs::read_to_string(&args.file).with_context(|| format!("{name} cannot be read"))?;
            let import = pgbouncer::import(&text);
            if !args.lenient && !import.without_counterpart.is_empty() {
                for problem in &import.without_counterpart {
                    eprintln!("{name}:{problem}");
                }
                eprintln!("freshet: --lenient writes these as comments");
                return Ok(ExitCode::FAILURE);
            }
            import.to_toml(&name)
        }
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}
