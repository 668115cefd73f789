//! The name in the caller's certificate.

use std::sync::Arc;

use http::Extensions;
use tonic::transport::CertificateDer;
#[cfg(unix)]
use tonic::transport::server::UdsConnectInfo;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::spelling::Spelling;
use super::{KeyExtractor, KeyMissing, KeyShape};
use crate::{Key, RequestView};

/// A name in the certificate that the caller showed when it connected to tonic's server. Missing if it showed none, or one
/// without such a name. [Ambiguous](KeyMissing::ambiguous) if the certificate or the name cannot be read: the service behind may read
/// it differently.
///
/// The server must ask for certificates and check them: with tonic, `ServerTlsConfig::client_ca_root`. The certificate is
/// read for every call.
///
/// ```
/// use tollgate::key::PeerCertificate;
/// use tollgate::{OnMissing, Policy, Quota};
///
/// let policy = Policy::new("per-service", Quota::per_second(100))
///     .key(PeerCertificate::uri())
///     .on_missing(OnMissing::Deny);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PeerCertificate(Name);

#[derive(Clone, Copy, Debug)]
enum Name {
    Common,
    Dns,
    Uri,
}

impl PeerCertificate {
    /// The subject's common name. If it has several, the most specific, which stands last.
    ///
    /// ```
    /// use tollgate::key::PeerCertificate;
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy = Policy::new("per-machine", Quota::per_second(100)).key(PeerCertificate::common_name());
    /// ```
    #[must_use]
    pub const fn common_name() -> Self {
        Self(Name::Common)
    }

    /// The first DNS name among the alternative names of the subject, in lower case.
    ///
    /// ```
    /// use tollgate::key::PeerCertificate;
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy = Policy::new("per-host", Quota::per_second(100)).key(PeerCertificate::dns_name());
    /// ```
    #[must_use]
    pub const fn dns_name() -> Self {
        Self(Name::Dns)
    }

    /// The first URI among the alternative names of the subject: a SPIFFE identity.
    #[must_use]
    pub const fn uri() -> Self {
        Self(Name::Uri)
    }

    /// Returns the name, `None` if there is none, or an error if it cannot be read.
    fn find(self, certificate: &X509Certificate<'_>) -> Result<Option<Key>, X509Error> {
        if matches!(self.0, Name::Common) {
            let last = certificate.subject().iter_common_name().last();
            return last.map(|name| name.as_str().map(Key::from)).transpose();
        }
        let names = certificate.subject_alternative_name()?;
        let names = names.iter().flat_map(|names| &names.value.general_names);
        for name in names {
            match (self.0, name) {
                (Name::Dns, GeneralName::DNSName(name)) => {
                    return Ok(Some(Key::from(name.to_ascii_lowercase())));
                }
                (Name::Uri, GeneralName::URI(uri)) => return Ok(Some(Key::from(*uri))),
                // It may be of either kind.
                (_, GeneralName::Invalid(..)) => return Err(X509Error::InvalidExtensions),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl KeyExtractor for PeerCertificate {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let shown = certificates(request.extensions());
        let missing = KeyMissing::new(match self.0 {
            Name::Common => "common name in the certificate of the caller",
            Name::Dns => "DNS name in the certificate of the caller",
            Name::Uri => "URI in the certificate of the caller",
        });
        // The first is the caller's own, and those that follow vouch for it.
        match shown.as_deref().and_then(|shown| shown.first()) {
            None => Err(missing),
            Some(own) => match X509Certificate::from_der(own).map(|(_, own)| self.find(&own)) {
                Ok(Ok(found)) => found.ok_or(missing),
                Ok(Err(_)) => Err(missing.ambiguous("the name in the certificate cannot be read")),
                Err(_) => Err(missing.ambiguous("the certificate cannot be read")),
            },
        }
    }

    fn shape(&self) -> KeyShape {
        match self.0 {
            Name::Dns => KeyShape::Spelled(Spelling::Name),
            Name::Common | Name::Uri => KeyShape::Bytes,
        }
    }
}

fn certificates(extensions: &Extensions) -> Option<Arc<Vec<CertificateDer<'static>>>> {
    if let Some(tls) = extensions.get::<TlsConnectInfo<TcpConnectInfo>>() {
        return tls.peer_certs();
    }
    #[cfg(unix)]
    if let Some(tls) = extensions.get::<TlsConnectInfo<UdsConnectInfo>>() {
        return tls.peer_certs();
    }
    None
}
