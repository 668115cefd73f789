//! Signals to processes.

use std::process::{Child, Command};

use crate::Result;

/// Sends a signal to a process, as in `-STOP`.
pub(crate) fn signal(process: &Child, signal: &str) -> Result<()> {
    let mut kill = Command::new("kill");
    let status = kill.arg(signal).arg(process.id().to_string()).status()?;
    let is_sent = status.success().then_some(());
    is_sent.ok_or_else(|| format!("kill {signal} failed").into())
}
