//! The instructions of a server, counted by valgrind's callgrind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The file in the server's folder with the counts.
const COUNTS: &str = "counts";

/// Has glibc copy and fill memory in blocks, of any length: valgrind counts an instruction for each byte of `rep movsb` and
/// `rep stosb`, while a processor moves 32 bytes or more at a time.
const COPIES_IN_BLOCKS: &str = "glibc.cpu.x86_rep_movsb_threshold=1099511627776:glibc.cpu.x86_rep_stosb_threshold=1099511627776";

/// The binary under callgrind, also if it is a script that starts the server.
pub(crate) fn counted(binary: &str, folder: &Path) -> Command {
    let counts = folder.join(COUNTS);
    let mut command = Command::new("valgrind");
    command
        .env("GLIBC_TUNABLES", COPIES_IN_BLOCKS)
        .args(["--tool=callgrind", "--trace-children=yes"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(binary);
    command
}

/// The instructions of a process since the last call of this function, or since its start.
///
/// # Panics
///
/// If they are not counted.
pub(crate) fn since_the_last(pid: u32, folder: &Path) -> u64 {
    let dump = Command::new("callgrind_control")
        .arg("--dump")
        .arg(pid.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(
        dump.is_ok_and(|dump| dump.success()),
        "callgrind_control cannot reach the server"
    );
    let files = fs::read_dir(folder).expect("the server's folder");
    let dumps = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.file_stem() == Some(COUNTS.as_ref()) && path.extension().is_some());
    dumps
        .filter_map(|path| {
            let dump = fs::read_to_string(&path).ok()?;
            fs::remove_file(path).ok()?;
            total(&dump)
        })
        .sum()
}

/// The count of one dump.
fn total(dump: &str) -> Option<u64> {
    let mut lines = dump.lines();
    lines.find_map(|line| line.strip_prefix("totals: ")?.parse().ok())
}
