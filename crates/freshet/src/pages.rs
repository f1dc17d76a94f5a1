//! `freshet pages`: manual pages and completions of shells, from the definition of the command line, for packages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;

/// Options of `freshet pages`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PagesArgs {
    /// The directory to write to; it is made
    directory: PathBuf,
}

/// Writes the pages and the completions.
pub(crate) fn write(args: &PagesArgs, command: &Command) -> Result<()> {
    let directory = &args.directory;
    let made = || -> Result<()> {
        fs::create_dir_all(directory)?;
        let name = command.get_name().to_owned();
        // The page of a sub-command is named freshet-check(1), as git's are.
        manual(directory, command.clone(), name.clone())?;
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = format!("{name}-{}", sub.get_name());
            manual(directory, sub.clone().disable_help_subcommand(true), name)?;
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command.clone(), &name, directory)?;
        }
        Ok(())
    };
    made().with_context(|| format!("{} cannot be written", directory.display()))
}

fn manual(directory: &Path, command: Command, name: String) -> io::Result<()> {
    let path = directory.join(format!("{name}.1"));
    let version = crate::version::VERSION;
    let page = clap_mangen::Man::new(command.name(name).version(version)).date("").source(format!("Freshet {version}"));
    page.render(&mut fs::File::create(path)?)
}
