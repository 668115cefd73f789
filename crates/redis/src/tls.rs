//! TLS over a socket of ours.

use std::fmt;
use std::io;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
#[cfg(feature = "tls")]
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

use crate::error::ConnectError;
use crate::server::TlsFiles;
#[cfg(feature = "tls")]
use crate::server::choose_provider;
use crate::stream::{AnyStream, Stream};

/// The terms of TLS for all servers of a backend.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    config: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// The terms that these files state.
    pub(crate) fn of(files: &TlsFiles) -> Result<Self, ConnectError> {
        files.check()?;
        let unreadable = || {
            ConnectError::setting(
                "certificates",
                "are not what PEM files of certificates and a private key hold",
            )
        };
        let mut trusted = RootCertStore::empty();
        match &files.authority {
            Some(pem) => {
                let authorities = CertificateDer::pem_slice_iter(pem);
                trusted.add_parsable_certificates(authorities.filter_map(Result::ok));
            }
            None => {
                let known = rustls_native_certs::load_native_certs().certs;
                trusted.add_parsable_certificates(known);
            }
        }
        choose_provider();
        let config = ClientConfig::builder().with_root_certificates(trusted);
        let config = match &files.client {
            None => Ok(config.with_no_client_auth()),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(certificate).collect();
                let key = PrivateKeyDer::from_pem_slice(key);
                match (chain, key) {
                    (Ok(chain), Ok(key)) => config.with_client_auth_cert(chain, key),
                    _ => return Err(unreadable()),
                }
            }
        };
        let config = config.map_err(|_why| unreadable())?;
        Ok(Self {
            config: Some(Arc::new(config)),
        })
    }

    /// Shakes hands with this host.
    pub(crate) async fn over(
        &self,
        stream: Stream<TcpStream>,
        host: &str,
    ) -> io::Result<Box<dyn AnyStream>> {
        let config = self.config.clone();
        let config = config.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = tokio_rustls::TlsConnector::from(config);
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

// A URL that asks for TLS is refused before.
#[cfg(not(feature = "tls"))]
impl Tls {
    #[expect(clippy::unnecessary_wraps, reason = "it is as with TLS")]
    pub(crate) fn of(_files: &TlsFiles) -> Result<Self, ConnectError> {
        Ok(Self::default())
    }

    #[expect(clippy::unused_async, reason = "it is as with TLS")]
    pub(crate) async fn over(
        &self,
        _stream: Stream<TcpStream>,
        _host: &str,
    ) -> io::Result<Box<dyn AnyStream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
