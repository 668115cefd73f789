//! The service manager that has started the program, told by systemd's protocol: a datagram to the socket that `NOTIFY_SOCKET`
//! names.

#[cfg(unix)]
use std::io;
#[cfg(unix)]
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if one has started the program and wants to hear of it.
#[derive(Debug)]
pub(super) struct ServiceManager {
    #[cfg(unix)]
    socket: Option<(UnixDatagram, SocketAddr)>,
}

#[cfg(unix)]
impl ServiceManager {
    pub(super) fn of_environment() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.map(|name| Ok((UnixDatagram::unbound()?, address(&name)?)));
        let socket = socket.transpose().unwrap_or_else(|error: io::Error| {
            tracing::warn!(%error, "NOTIFY_SOCKET names no socket: the service manager hears nothing");
            None
        });
        Self { socket }
    }

    /// True if one is told.
    pub(super) fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Tells it a state, such as `READY=1`, and what an operator reads beside it.
    pub(super) fn tell(&self, state: &str, status: &str) {
        self.send(&format!("{state}\nSTATUS={}\n", line(status)));
    }

    /// Tells it what an operator reads.
    pub(super) fn tell_status(&self, status: &str) {
        self.send(&format!("STATUS={}\n", line(status)));
    }

    fn send(&self, words: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        if let Err(error) = socket.send_to_addr(words.as_bytes(), address) {
            let state = words.lines().next();
            tracing::warn!(%error, state, "the service manager does not hear of it");
        }
    }
}

/// The words in one line, since a line ends a value.
#[cfg(unix)]
fn line(words: &str) -> String {
    words.lines().collect::<Vec<_>>().join("; ")
}

/// A path, or on Linux a name without a file, which begins with `@`.
#[cfg(unix)]
fn address(name: &std::ffi::OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        if let Some(name) = name.as_bytes().strip_prefix(b"@") {
            return SocketAddr::from_abstract_name(name);
        }
    }
    SocketAddr::from_pathname(name)
}

/// No other system has this protocol.
#[cfg(not(unix))]
impl ServiceManager {
    pub(super) fn of_environment() -> Self {
        Self {}
    }

    pub(super) fn is_there(&self) -> bool {
        false
    }

    pub(super) fn tell(&self, _state: &str, _status: &str) {}

    pub(super) fn tell_status(&self, _status: &str) {}
}
