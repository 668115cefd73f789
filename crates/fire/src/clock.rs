//! Servers whose clocks can be set: libfaketime reads the offset of each from a file.
//!
//! The testkit starts servers from the binary that the environment names, so the environment names a script in its place. The
//! environment belongs to a whole process: a test with such servers is a process of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Result;

const FOLDER: &str = "TOLLGATE_FIRE_CLOCKS";
const SERVER: &str = "TOLLGATE_REDIS_SERVER";

/// The script, and the files beside it.
#[derive(Debug)]
pub struct Clockwork {
    folder: TempDir,
}

impl Clockwork {
    /// Makes both. An error tells the package to install.
    ///
    /// # Errors
    ///
    /// If libfaketime is missing.
    pub fn new() -> Result<Self> {
        let library = library().ok_or(
            "there is no libfaketime to set a server's clock with: install it (`apt-get install faketime`)",
        )?;
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
        let clockwork = Self { folder };
        let server = tollgate_testkit::server_binary();
        // Nodes of a cluster keep the clock that they are started with; the testkit's own library, which has no memory between
        // calls, is enough for them. The others run with the C library's malloc: the server's own malloc asks for the time
        // while it is set up, and libfaketime needs memory before it can tell the time. The file begins with the offset that
        // the testkit's own library would be told.
        let script = format!(
            "#!/bin/sh\n\
             case \" $* \" in *\" --cluster-enabled \"*) exec {server} \"$@\" ;; esac\n\
             for word; do [ \"$before\" = --port ] && port=$word; before=$word; done\n\
             clock={folder}/$port ahead=${{TOLLGATE_CLOCK_AHEAD:-0}}\n\
             case $ahead in -*) ;; *) ahead=+$ahead ;; esac\n\
             [ -e \"$clock\" ] || echo \"$ahead\" > \"$clock\"\n\
             export LD_PRELOAD='{library} libc.so.6' FAKETIME_TIMESTAMP_FILE=\"$clock\"\n\
             export FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n\
             exec {server} \"$@\"\n",
            folder = clockwork.clocks().display(),
            library = library.display(),
        );
        fs::write(clockwork.script(), script)?;
        fs::set_permissions(clockwork.script(), fs::Permissions::from_mode(0o755))?;
        fs::create_dir(clockwork.clocks())?;
        Ok(clockwork)
    }

    /// Lets a process start servers whose clock it can set.
    pub fn give_to(&self, command: &mut Command) {
        command
            .env(FOLDER, self.clocks())
            .env(SERVER, self.script());
    }

    fn clocks(&self) -> PathBuf {
        self.folder.path().join("clocks")
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("server")
    }
}

/// The folder of the clocks of this process's servers, if it has one.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Sets all clocks back to the servers' first offsets: ports may be used again.
pub(crate) fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// Sets the clock of the server on this port to this many µs ahead, at once for every reader: the file is replaced, not
/// overwritten.
pub(crate) fn set(folder: &Path, port: u16, ahead_us: i64) -> Result<()> {
    let sign = if ahead_us < 0 { '-' } else { '+' };
    let us = ahead_us.unsigned_abs();
    let (whole, rest) = (us / 1_000_000, us % 1_000_000);
    let file = folder.join(port.to_string());
    let next = file.with_extension("next");
    fs::write(&next, format!("{sign}{whole}.{rest:06}\n"))?;
    Ok(fs::rename(next, file)?)
}

/// The place where Debian, Fedora and Arch install it, below a folder for the machine's kind or not.
fn library() -> Option<PathBuf> {
    let below = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/lib64")];
    folders.extend(below("/usr/lib").map(|entry| entry.path()));
    let mut places = folders
        .into_iter()
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    places.find(|place| place.exists())
}
