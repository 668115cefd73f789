//! The signals of an operator, or of the service manager.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::time::Duration;

use tollgate_server::{Gateway, Tls};

use super::service_manager::ServiceManager;

/// Is ready at a signal that ends the program. It is heard from now on, also before this is asked.
pub(super) fn end() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// The time between two looks at how the latest reloads went.
const INTERVAL: Duration = Duration::from_secs(1);

/// Says that the server is ready, and how each reload went: those that a signal asks for, and those of the tasks that follow the
/// files. This is for an operator who asks the service manager.
pub(super) async fn tell_reloads(
    manager: &ServiceManager,
    gateway: &Gateway,
    tls: Option<&Tls>,
) -> Infallible {
    const READY: &str = "READY=1";
    let mut hang_ups = HangUps::heard();
    let mut told = status(gateway, tls);
    manager.tell(READY, &told);
    if !manager.is_there() {
        return pending().await;
    }
    loop {
        let is_asked = hang_ups.come_within(INTERVAL).await;
        if is_asked {
            manager.tell("RELOADING=1", "reads its files again");
        }
        // The files may be on a network.
        let now = tokio::task::block_in_place(|| {
            if is_asked {
                reload(gateway, tls);
            }
            status(gateway, tls)
        });
        if is_asked {
            manager.tell(READY, &now);
        } else if now != told {
            manager.tell_status(&now);
        }
        told = now;
    }
}

/// The signals that ask for a reload.
struct HangUps {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl HangUps {
    /// They are heard from now on.
    fn heard() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Is ready when one comes, and true then, or when none has come for this long.
    async fn come_within(&mut self, wait: Duration) -> bool {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal {
            return tokio::time::timeout(wait, signal.recv()).await.is_ok();
        }
        tokio::time::sleep(wait).await;
        false
    }
}

/// Looks at all files. The log says what comes of it, and so does `status`.
fn reload(gateway: &Gateway, tls: Option<&Tls>) {
    let _told = gateway.reload();
    if let Some(tls) = tls
        && tls.reload().is_err()
    {
        // A wrong file may be about to be replaced, and an operator asks now.
        let _told = tls.reload();
    }
}

/// Says in words what holds.
fn status(gateway: &Gateway, tls: Option<&Tls>) -> String {
    let configuration = gateway.fault().map(|error| {
        let why = if error.is_unreadable() {
            "the file cannot be read"
        } else {
            "the new one is refused"
        };
        format!("answers gateways by the configuration of before, since {why}: {error}")
    });
    let certificate = tls.and_then(Tls::fault);
    let certificate = certificate
        .map(|error| format!("answers gateways with the certificate of before: {error}"));
    let faults: Vec<_> = configuration.into_iter().chain(certificate).collect();
    if !faults.is_empty() {
        return faults.join("\n");
    }
    match gateway.limiter().policies().len() {
        1 => "answers gateways by 1 policy".to_owned(),
        policies => format!("answers gateways by {policies} policies"),
    }
}
