//! `tollgate completions` and `tollgate man`: the parts of an installation beside the program itself, made of the same arguments.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Failure;

/// Writes the completions of the program for a shell.
///
/// Exit codes: 0 they are written; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Writes the manual: the page tollgate(1), or into a folder a page for the program and one for each verb.
///
/// Exit codes: 0 it is written; 1 a page cannot be written; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate man | man -l -
  tollgate man --out /usr/local/share/man/man1")]
pub(crate) struct ManArguments {
    /// The folder for all pages; it has to be there.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(asked: &CompletionsArguments, mut program: Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut program, "tollgate", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

pub(crate) fn man(asked: &ManArguments, mut program: Command) -> Result<String, Failure> {
    program.build();
    let Some(folder) = &asked.out else {
        let page = page(&program, "tollgate")?;
        return Ok(String::from_utf8_lossy(&page).into_owned());
    };
    let verbs = program
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help");
    let mut told = vec![write(folder, &program, "tollgate")?];
    for verb in verbs {
        let name = format!("tollgate-{}", verb.get_name());
        told.push(write(folder, verb, &name)?);
    }
    Ok(told.concat())
}

fn write(folder: &Path, command: &Command, name: &str) -> Result<String, Failure> {
    let path = folder.join(format!("{name}.1"));
    let written = fs::write(&path, page(command, name)?);
    let path = path.display();
    written.map_err(|error| Failure::invalid(format_args!("{path}: {error}")))?;
    Ok(format!("{path}\n"))
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).title(name.to_uppercase());
    man.render(&mut page).map_err(Failure::invalid)?;
    Ok(page)
}
