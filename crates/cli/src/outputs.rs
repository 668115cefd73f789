//! The files that a verb writes at its end: whether they can be written is found before a long log is read, and those that a server
//! reads are never there in part.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process;

use crate::failure::Failure;

/// Refuses files that cannot be written, and those that are read as well. No file changes.
pub(crate) fn prepare<'p>(
    outputs: impl IntoIterator<Item = &'p Path>,
    inputs: &[&Path],
) -> Result<(), Failure> {
    for output in outputs {
        if inputs.iter().any(|input| is_same(input, output)) {
            let name = output.display();
            return Err(Failure::usage(format_args!(
                "{name} is read, and would be overwritten; name another file"
            )));
        }
        try_to_write(output).map_err(|error| unwritten(output, &error))?;
    }
    Ok(())
}

/// Writes a file whole or not at all: beside it a new one, which then takes its name. Another program that reads it finds the old
/// one until then. Mode and owner stay as they were. A pipe or a device is written as it is.
pub(crate) fn replace(path: &Path, content: &str) -> Result<(), Failure> {
    try_to_replace(path, content).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let name = path.display();
    match folder_of(path) {
        Some(folder) if error.kind() == ErrorKind::NotFound && !folder.exists() => {
            let folder = folder.display();
            Failure::invalid(format_args!("{name}: there is no folder {folder}"))
        }
        _ => Failure::invalid(format_args!("{name}: {error}")),
    }
}

fn folder_of(path: &Path) -> Option<&Path> {
    path.parent()
        .map(|folder| match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        })
}

fn try_to_replace(path: &Path, content: &str) -> io::Result<()> {
    let found = fs::metadata(path).ok();
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return fs::write(path, content);
    }
    // A link stays, and what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", process::id()));
    // One that a process of this number left behind.
    let _gone = fs::remove_file(&beside);
    let written = write_beside(&beside, content, found.as_ref());
    let written = written.and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _gone = fs::remove_file(&beside);
    }
    written?;
    // The new name is on the disk as well.
    #[cfg(unix)]
    if let Some(folder) = folder_of(&path) {
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Writes a new file to the disk, with the mode and the owner of the one that it replaces.
fn write_beside(path: &Path, content: &str, replaced: Option<&Metadata>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    if let Some(replaced) = replaced {
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, fchown};
            // Only root may give files away.
            let _given = fchown(&file, Some(replaced.uid()), Some(replaced.gid()));
        }
        file.set_permissions(replaced.permissions())?;
    }
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other && one.is_file(),
        _ => false,
    }
}

fn try_to_write(path: &Path) -> io::Result<()> {
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
