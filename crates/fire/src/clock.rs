//! A server whose clock can be set: libfaketime reads how far it is ahead from a file.
//!
//! Servers are started by the testkit from the binary that the environment names, so that this names a script in its
//! place. The environment is the process's own: whoever wants such servers is a process of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Result;

const FILE: &str = "TOLLGATE_FIRE_CLOCK";
const SERVER: &str = "TOLLGATE_REDIS_SERVER";

/// The script and the file.
#[derive(Debug)]
pub struct Clockwork {
    folder: TempDir,
}

impl Clockwork {
    /// Makes both. An error says what to install.
    ///
    /// # Errors
    ///
    /// If libfaketime is not there.
    pub fn new() -> Result<Self> {
        let library = library().ok_or(
            "there is no libfaketime to set a server's clock with: install it (`apt-get install faketime`)",
        )?;
        let folder = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
        let clockwork = Self { folder };
        let server = tollgate_testkit::server_binary();
        // With the C library's own malloc: the server's asks for the time while it is set up, and libfaketime for memory
        // before it can tell.
        let script = format!(
            "#!/bin/sh\nexport LD_PRELOAD='{} libc.so.6' FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n\
             exec {server} \"$@\"\n",
            library.display(),
            clockwork.file().display(),
        );
        fs::write(clockwork.script(), script)?;
        fs::set_permissions(clockwork.script(), fs::Permissions::from_mode(0o755))?;
        set(&clockwork.file(), 0)?;
        Ok(clockwork)
    }

    /// Lets a process start servers whose clock it can set.
    pub fn give_to(&self, command: &mut Command) {
        command.env(FILE, self.file()).env(SERVER, self.script());
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("server")
    }
}

/// The file that this process's servers read, if it was given one.
pub(crate) fn file() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

/// Sets the clock to so many µs ahead. At once for whoever reads it: the file is replaced, not written.
pub(crate) fn set(file: &Path, ahead_us: i64) -> Result<()> {
    let (sign, us) = (
        if ahead_us < 0 { '-' } else { '+' },
        ahead_us.unsigned_abs(),
    );
    let (whole, rest) = (us / 1_000_000, us % 1_000_000);
    let next = file.with_extension("next");
    fs::write(&next, format!("{sign}{whole}.{rest:06}\n"))?;
    Ok(fs::rename(next, file)?)
}

/// Where Debian, Fedora and Arch put it, below a folder for the machine's kind or not.
fn library() -> Option<PathBuf> {
    let below = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/lib64")];
    folders.extend(below("/usr/lib").map(|entry| entry.path()));
    let mut places = folders
        .into_iter()
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    places.find(|place| place.exists())
}
