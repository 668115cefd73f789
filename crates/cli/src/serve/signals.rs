//! The signals of an operator, or of the service manager.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;

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

/// Says that the server is ready, and of each reload how it went. The files are followed without it: this is for an operator who
/// asks the service manager.
pub(super) async fn tell_reloads(
    manager: &ServiceManager,
    gateway: &Gateway,
    tls: Option<&Tls>,
) -> Infallible {
    const READY: &str = "READY=1";
    #[cfg(unix)]
    let hang_up = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
    manager.tell(READY, "answers gateways");
    #[cfg(unix)]
    if let Ok(mut hang_up) = hang_up {
        while hang_up.recv().await.is_some() {
            manager.tell("RELOADING=1", "reads its files again");
            let status = tokio::task::block_in_place(|| reload(gateway, tls));
            manager.tell(READY, &status);
        }
    }
    pending().await
}

/// Looks at all files, and says in words what holds.
#[cfg(unix)]
fn reload(gateway: &Gateway, tls: Option<&Tls>) -> String {
    let configuration = gateway.reload().err().map(|error| {
        format!(
            "answers gateways by the configuration of before, since the new one is refused: {error}"
        )
    });
    let certificate = tls.and_then(|tls| tls.reload().err()).map(|error| {
        format!(
            "answers gateways with the certificate of before, since the new one is refused: {error}"
        )
    });
    let faults: Vec<_> = configuration.into_iter().chain(certificate).collect();
    match faults.is_empty() {
        true => "answers gateways".to_owned(),
        false => faults.join("\n"),
    }
}
