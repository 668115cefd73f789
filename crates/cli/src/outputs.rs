//! The files that a verb writes at its end: whether they can be written is found before a long log is read.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::failure::Failure;

/// Refuses files that cannot be written, and those that are read as well. No file changes.
pub(crate) fn prepare<'p>(
    outputs: impl IntoIterator<Item = &'p Path>,
    inputs: &[&Path],
) -> Result<(), Failure> {
    for output in outputs {
        let name = output.display();
        if inputs.iter().any(|input| is_same(input, output)) {
            return Err(Failure::usage(format_args!(
                "{name} is read, and would be overwritten; name another file"
            )));
        }
        try_to_write(output).map_err(|error| Failure::invalid(format_args!("{name}: {error}")))?;
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other && one.is_file(),
        _ => false,
    }
}

fn try_to_write(path: &Path) -> std::io::Result<()> {
    let found = fs::metadata(path);
    let is_there = found.is_ok();
    // The reader of a pipe would take this for all of it.
    if found.is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path)?;
    match is_there {
        true => Ok(()),
        false => fs::remove_file(path),
    }
}
