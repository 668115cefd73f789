//! The causes of a failed TLS handshake, and the setting to change.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use tollgate_core::{BackendError, FailureKind};

/// The error of TLS, if it was TLS that failed.
pub(crate) fn failure(error: &RedisError) -> Option<BackendError> {
    let what = match tls_error(error)? {
        TlsError::InvalidCertificate(certificate) => distrusted(certificate),
        TlsError::AlertReceived(alert) => return Some(refused(*alert)),
        TlsError::InvalidMessage(_) => {
            "the server does not speak TLS: check the port, or write redis:// instead of rediss://"
        }
        TlsError::NoCertificatesPresented => "the server shows no certificate",
        _ => "the TLS handshake failed",
    };
    Some(BackendError::new(FailureKind::Unreachable, what))
}

fn distrusted(error: &CertificateError) -> &'static str {
    match error {
        // The second comes from an authority with the right name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is from an authority that is not trusted here: set that authority as certificate_authority"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name: write the host in the URL as it stands in the certificate"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired, or the clock of this host is wrong"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet, or the clock of this host is wrong"
        }
        CertificateError::Revoked => "the server's certificate has been revoked",
        _ => "the server's certificate cannot be trusted",
    }
}

/// The server ends the handshake, mostly because of our certificate.
fn refused(alert: AlertDescription) -> BackendError {
    let what = match alert {
        AlertDescription::CertificateRequired => {
            "the server asks for a client's certificate: set client_certificate"
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::DecryptError => {
            "the server does not accept our certificate: look at client_certificate"
        }
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => {
            let what = "the server offers no safe version of TLS, or no safe cipher";
            return BackendError::new(FailureKind::Unreachable, what);
        }
        _ => {
            let what = "the server ended the TLS handshake";
            return BackendError::new(FailureKind::Unreachable, what);
        }
    };
    BackendError::new(FailureKind::Unauthenticated, what)
}

/// The library wraps it in a box of its own, inside an error of the network.
fn tls_error(error: &RedisError) -> Option<&TlsError> {
    let inner = error.source()?;
    let inner = match inner.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(shared) => &**shared as &(dyn Error + 'static),
        None => inner,
    };
    inner.downcast_ref().or_else(|| {
        let network: &io::Error = inner.downcast_ref()?;
        network.get_ref()?.downcast_ref()
    })
}
