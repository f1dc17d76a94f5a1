//! Manual pages and completions of shells from the definition of a command line, for packages.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

/// Writes the pages and the completions to a directory, which is made.
pub fn write(directory: &Path, command: &Command, version: &'static str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let name = command.get_name().to_owned();
    // The page of a sub-command is named freshet-check(1), as git's are.
    manual(directory, command.clone(), name.clone(), version)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{name}-{}", sub.get_name());
        manual(directory, sub.clone().disable_help_subcommand(true), name, version)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), &name, directory)?;
    }
    Ok(())
}

fn manual(directory: &Path, command: Command, name: String, version: &'static str) -> io::Result<()> {
    let path = directory.join(format!("{name}.1"));
    let page = clap_mangen::Man::new(command.name(name).version(version)).date("").source(format!("Freshet {version}"));
    page.render(&mut fs::File::create(path)?)
}
