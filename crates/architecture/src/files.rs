//! The source files of a crate, and the code in them that ships.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The folder of all crates.
#[must_use]
pub fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The source files of a crate, those of its unit tests included.
///
/// # Errors
///
/// Fails if a folder cannot be read.
pub fn sources(of_crate: &str) -> io::Result<Vec<PathBuf>> {
    below(&crates().join(of_crate).join("src"))
}

/// The source files in a folder and in those below it.
pub(crate) fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// The lines of code of a file, up to its unit tests. Comments are not code, and neither is a line that is a text.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn product_code(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let product = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = product.unwrap_or_default().lines().map(str::trim);
    let code = lines.filter(|line| !line.starts_with("//") && !line.starts_with('"'));
    Ok(code.collect::<Vec<_>>().join("\n"))
}
