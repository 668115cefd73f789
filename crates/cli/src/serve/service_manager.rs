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

    /// Tells it a state, such as `READY=1`, and what an operator reads beside it.
    pub(super) fn tell(&self, state: &str, status: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        // A line ends a value.
        let status = status.lines().collect::<Vec<_>>().join("; ");
        let words = format!("{state}\nSTATUS={status}\n");
        if let Err(error) = socket.send_to_addr(words.as_bytes(), address) {
            tracing::warn!(%error, state, "the service manager does not hear of it");
        }
    }
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

    pub(super) fn tell(&self, _state: &str, _status: &str) {}
}
