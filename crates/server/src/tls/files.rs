//! The names of the files that TLS is made of.

use std::path::PathBuf;

/// The files of PEM of which a server's TLS is made.
///
/// ```no_run
/// use tokio::net::TcpListener;
/// use tollgate_server::{Gateway, Listener, TlsFiles};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gateway = Gateway::start("gateway.toml", None, |builder| builder)?;
/// let tls = TlsFiles::new("server.pem", "server.key").load()?;
/// let listener = Listener::from(TcpListener::bind("[::]:8081").await?).tls(&tls);
/// gateway.serve(listener, std::future::pending()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "files are read by `load`"]
pub struct TlsFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_authority: Option<PathBuf>,
}

impl TlsFiles {
    /// The file of the server's certificate, with those of its issuers behind it, and the file of its private key.
    ///
    /// ```
    /// use tollgate_server::TlsFiles;
    ///
    /// let files = TlsFiles::new("/etc/tollgate/server.pem", "/etc/tollgate/server.key");
    /// ```
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: None,
        }
    }

    /// The file of the certificates of an authority: only clients with a certificate of it are answered. Lists of revoked
    /// certificates are not read, so let the certificates of clients live for a short time.
    ///
    /// ```
    /// use tollgate_server::TlsFiles;
    ///
    /// let files = TlsFiles::new("server.pem", "server.key").client_authority("gateways.pem");
    /// ```
    pub fn client_authority(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_authority = Some(path.into());
        self
    }
}
