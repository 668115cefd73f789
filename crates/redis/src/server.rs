//! The address of a server, and the settings of its connections.

use std::fmt;
use std::net::IpAddr;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::error::ConnectError;

/// Host and port, in the form in which servers name each other.
pub(crate) type Address = (String, u16);

/// The settings for every server, whatever its URL says.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<i64>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// The papers for TLS, as PEM.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    fn is_empty(&self) -> bool {
        self.authority.is_none() && self.client.is_none()
    }
}

#[cfg(feature = "tls")]
impl TlsFiles {
    /// Checks that each PEM is of its kind. The library takes a file without any certificate for an authority that trusts no
    /// server.
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        let certificates = |name, pem: &[u8]| {
            let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            match parsed {
                Ok(all) if !all.is_empty() => Ok(()),
                _ => Err(ConnectError::setting(
                    name,
                    "holds no certificate in PEM form (`-----BEGIN CERTIFICATE-----`)",
                )),
            }
        };
        if let Some(authority) = &self.authority {
            certificates("certificate_authority", authority)?;
        }
        let Some((certificate, key)) = &self.client else {
            return Ok(());
        };
        certificates("client_certificate", certificate)?;
        PrivateKeyDer::from_pem_slice(key)
            .map(drop)
            .map_err(|_none| {
                ConnectError::setting(
                    "client_certificate's key",
                    "holds no private key in PEM form (`-----BEGIN PRIVATE KEY-----`)",
                )
            })
    }
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Papers")
            .field("authority", &self.authority.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

/// Says whether a URL asks for TLS.
pub(crate) fn wants_tls(url: &str) -> bool {
    url.starts_with("rediss:") || url.starts_with("valkeys:")
}

/// Reads a URL. An error never repeats it: it may hold a password.
pub(crate) fn parse(url: &str, papers: &TlsFiles) -> Result<ConnectionInfo, ConnectError> {
    let wants_tls = wants_tls(url);
    if wants_tls && !cfg!(feature = "tls") {
        return Err(ConnectError::setting(
            "url",
            "asks for TLS, which is built in with the feature `tls` of tollgate-redis (`redis-tls` of tollgate)",
        ));
    }
    let Ok(info) = url.into_connection_info() else {
        return Err(ConnectError::setting(
            "url",
            "is not of the form redis://[user:password@]host[:port][/database]",
        ));
    };
    if !wants_tls && !papers.is_empty() {
        return Err(ConnectError::setting(
            "url",
            "does not ask for TLS, but certificates are set: write rediss:// instead of redis://",
        ));
    }
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    let tcp = TcpSettings::default().set_nodelay(true);
    secure(
        info.set_tcp_settings(tcp).set_redis_settings(settings),
        papers,
    )
}

#[cfg(not(feature = "tls"))]
fn secure(info: ConnectionInfo, _papers: &TlsFiles) -> Result<ConnectionInfo, ConnectError> {
    Ok(info)
}

#[cfg(feature = "tls")]
fn secure(info: ConnectionInfo, papers: &TlsFiles) -> Result<ConnectionInfo, ConnectError> {
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(info);
    }
    choose_provider();
    papers.check()?;
    let certificates = redis::TlsCertificates {
        client_tls: papers
            .client
            .clone()
            .map(|(client_cert, client_key)| redis::ClientTlsConfig {
                client_cert,
                client_key,
            }),
        root_cert: papers.authority.clone(),
    };
    let Ok(client) = redis::Client::build_with_tls(info, certificates) else {
        return Err(ConnectError::setting(
            "certificates",
            "are not what PEM files of certificates and a private key hold",
        ));
    };
    Ok(client.get_connection_info().clone())
}

#[cfg(feature = "tls")]
pub(crate) fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may be quicker; then its choice holds.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The host of a URL that has a single word, if that may be a password: `redis://s3cret` in place of `redis://:s3cret@host`.
/// Certainly hosts are a name with a port or behind an `@`, addresses, `localhost`, and names of several parts in lower case.
pub(crate) fn only_word(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let word = rest.split(['/', '?']).next()?;
    let is_host = word.is_empty()
        || word.contains(['@', ':'])
        || word == "localhost"
        || (word.contains('.') && !word.contains(|c: char| c.is_ascii_uppercase()))
        || word.parse::<IpAddr>().is_ok();
    (!is_host).then_some(word)
}

/// Host and port of a URL, for logs.
pub(crate) fn shown(url: &str) -> String {
    if only_word(url).is_some() {
        return HIDDEN.to_owned();
    }
    match url.into_connection_info().map(|info| address(&info)) {
        Ok(Some((host, port))) => format!("{host}:{port}"),
        Ok(None) => "a socket of this host".to_owned(),
        Err(_) => "nowhere".to_owned(),
    }
}

const HIDDEN: &str = "the URL's host (not shown without a port, since it may be a password)";

/// The number of the database that a URL names.
pub(crate) fn database(url: &str) -> i64 {
    let info = url.into_connection_info();
    info.map_or(0, |info| info.redis_settings().db())
}

/// This server with the settings for every server.
pub(crate) fn with_credentials(info: ConnectionInfo, credentials: &Credentials) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone();
    if let Some(username) = &credentials.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &credentials.password {
        settings = settings.set_password(password);
    }
    if let Some(database) = credentials.database {
        settings = settings.set_db(database);
    }
    info.set_redis_settings(settings)
}

/// A server at another address, with these settings.
pub(crate) fn at(info: &ConnectionInfo, (host, port): Address) -> ConnectionInfo {
    let mut place = info.addr().clone();
    match &mut place {
        ConnectionAddr::TcpTls {
            host: old_host,
            port: old_port,
            ..
        } => (*old_host, *old_port) = (host, port),
        other => *other = ConnectionAddr::Tcp(host, port),
    }
    info.clone().set_addr(place)
}

/// Host and port of a server that has them.
pub(crate) fn address(info: &ConnectionInfo) -> Option<Address> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}
