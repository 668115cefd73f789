//! The certificate of the server, as the arguments name it.

use std::path::PathBuf;

use clap::Args;
use tollgate_server::{Tls, TlsFiles};

use crate::failure::Failure;

/// The files for TLS on the sockets of gateways and of the admin.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS, for --listen, --forward-auth and --admin")]
pub(super) struct TlsArguments {
    /// The file with the certificate of this server, and those of its issuers behind it, as PEM. It is read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The file with the key of that certificate, as PEM and not encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The file with the certificates of an authority, as PEM: only gateways with a certificate of it are answered.
    /// Operators need none.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArguments {
    /// Reads the files, if there are any.
    pub(super) fn load(&self) -> Result<Option<Tls>, Failure> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let mut files = TlsFiles::new(certificate, key);
        if let Some(path) = &self.tls_client_ca {
            files = files.client_authority(path);
        }
        let tls = files.load().map_err(Failure::invalid)?;
        let asks_for_certificates = self.tls_client_ca.is_some();
        tracing::info!(asks_for_certificates, "gateways ask over TLS");
        Ok(Some(tls))
    }
}
