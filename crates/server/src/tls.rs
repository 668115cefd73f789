//! TLS for the sockets on which gateways ask: a certificate, its key and the authority of clients, as files that are followed.

mod error;
mod files;
mod settings;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::runtime::Handle;

pub use self::error::TlsError;
pub use self::files::TlsFiles;
use self::settings::{FileContents, Settings};

/// The time between two looks at the files: that of the configuration.
const INTERVAL: Duration = Duration::from_secs(2);

impl TlsFiles {
    /// Reads the files now, and follows them from now on: a task of the present tokio runtime looks at them every two seconds and
    /// on `SIGHUP`. New connections have what the files say, and the others go on. Files that make no sense change nothing, and
    /// the log says why. Outside of a runtime only [`Tls::reload`] looks at the files.
    ///
    /// ```
    /// use tollgate_server::TlsFiles;
    ///
    /// let error = TlsFiles::new("none.pem", "none.key").load().unwrap_err();
    /// assert_eq!(error.path().to_str(), Some("none.pem"));
    /// ```
    ///
    /// # Errors
    ///
    /// If a file cannot be read, holds nothing of its kind, or the key is encrypted or another certificate's: with its path.
    pub fn load(self) -> Result<Tls, TlsError> {
        let contents = FileContents::read(&self)?;
        let settings = contents.settings(&self)?;
        let followed = Arc::new(Followed {
            files: self,
            settings: ArcSwap::from_pointee(settings),
            seen: Mutex::new(Seen {
                contents,
                fault: Lasting::default(),
                unreadable: Lasting::default(),
            }),
        });
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(look_again_and_again(Arc::downgrade(&followed))));
        }
        Ok(Tls(followed))
    }
}

/// A server's certificate with its key, and the authority of its clients if it asks them for certificates. Clones share them. The
/// files are followed until the last clone is dropped: see [`TlsFiles::load`].
///
/// ```
/// use tollgate_server::{Tls, TlsFiles};
///
/// fn read() -> Result<Tls, Box<dyn std::error::Error>> {
///     Ok(TlsFiles::new("server.pem", "server.key").load()?)
/// }
/// ```
#[derive(Clone)]
pub struct Tls(Arc<Followed>);

impl Tls {
    /// Looks at the files now. It is true if they have changed, so that new connections have something else from now on.
    ///
    /// ```
    /// use tollgate_server::Tls;
    ///
    /// fn renew(tls: &Tls) {
    ///     match tls.reload() {
    ///         Ok(is_new) => println!("renewed: {is_new}"),
    ///         Err(error) => println!("{error}; what was before holds"),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`TlsFiles::load`]. Then everything stays as it was.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.0.look()
    }

    /// The reason why the files as they were found last do not hold, if there is one: what was before holds. A fault is one when
    /// it has lasted for two looks, as the log has it.
    ///
    /// ```
    /// use tollgate_server::Tls;
    ///
    /// fn status(tls: &Tls) -> String {
    ///     tls.fault().map_or_else(|| "well".to_owned(), |fault| fault.to_string())
    /// }
    /// ```
    #[must_use]
    pub fn fault(&self) -> Option<TlsError> {
        self.0.fault()
    }

    /// The settings that a connection of this protocol has from now on.
    pub(crate) fn settings(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let settings = self.0.settings.load();
        Arc::clone(match protocol {
            Protocol::Http1 => &settings.http1,
            Protocol::Http2 => &settings.http2,
            Protocol::Browsers => &settings.browsers,
        })
    }
}

/// The protocol that a socket speaks inside TLS. A client that asks for others alone is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// HTTP/1.1 with clients that are never asked for a certificate.
    Browsers,
}

struct Followed {
    files: TlsFiles,
    settings: ArcSwap<Settings>,
    seen: Mutex<Seen>,
}

/// The findings of the latest looks.
struct Seen {
    /// The contents that were read last, right or wrong.
    contents: FileContents,
    /// The fault of these contents.
    fault: Lasting,
    /// The reason why the latest look could not read a file.
    unreadable: Lasting,
}

/// A fault that is told once it has lasted: a certificate and its key are often replaced one after the other.
#[derive(Default)]
struct Lasting {
    error: Option<TlsError>,
    is_told: bool,
}

impl Lasting {
    /// A look has found the fault. It is true if it is to be told now.
    fn find(&mut self, error: &TlsError) -> bool {
        let lasts = self.error.as_ref() == Some(error);
        if !lasts {
            (self.error, self.is_told) = (Some(error.clone()), false);
        }
        lasts && !std::mem::replace(&mut self.is_told, true)
    }

    /// The fault is over. It is true if it had been told.
    fn end(&mut self) -> bool {
        std::mem::take(self).is_told
    }

    fn told(&self) -> Option<&TlsError> {
        self.error.as_ref().filter(|_| self.is_told)
    }
}

impl Followed {
    fn look(&self) -> Result<bool, TlsError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.files.certificate.display();
        let now = match FileContents::read(&self.files) {
            Ok(now) => now,
            Err(error) => {
                if seen.unreadable.find(&error) {
                    tracing::error!(%file, %error, "the files for TLS cannot be read; the certificate before stays");
                }
                return Err(error);
            }
        };
        if seen.unreadable.end() {
            tracing::info!(%file, "the files for TLS can be read again");
        }
        let found = match &seen.fault.error {
            None if now == seen.contents => return Ok(false),
            Some(fault) if now == seen.contents => Err(fault.clone()),
            _ => now.settings(&self.files),
        };
        seen.contents = now;
        match found {
            Ok(settings) => {
                self.settings.store(Arc::new(settings));
                seen.fault = Lasting::default();
                tracing::info!(%file, "the certificate of new connections is another one");
                Ok(true)
            }
            Err(error) => {
                if seen.fault.find(&error) {
                    tracing::error!(%file, %error, "the files for TLS are refused; the certificate before stays");
                }
                Err(error)
            }
        }
    }

    fn fault(&self) -> Option<TlsError> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let told = seen.unreadable.told().or(seen.fault.told());
        told.cloned()
    }
}

/// Looks at the files until the last clone is dropped.
async fn look_again_and_again(followed: Weak<Followed>) {
    #[cfg(unix)]
    let mut hang_up = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    loop {
        #[cfg(unix)]
        match &mut hang_up {
            Some(hang_up) => drop(tokio::time::timeout(INTERVAL, hang_up.recv()).await),
            None => tokio::time::sleep(INTERVAL).await,
        }
        #[cfg(not(unix))]
        tokio::time::sleep(INTERVAL).await;
        let Some(followed) = followed.upgrade() else {
            return;
        };
        // A file on a network may take its time. The outcome stands in the log.
        drop(tokio::task::spawn_blocking(move || followed.look()).await);
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}
