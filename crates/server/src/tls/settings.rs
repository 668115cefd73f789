//! The settings of rustls that files of PEM make.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore};

use super::error::TlsError;
use super::files::TlsFiles;

/// The longest file that is read: thousands of certificates.
const MAX_BYTES: u64 = 4 << 20;

/// The contents of the files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authority: Option<Vec<u8>>,
}

/// The settings of connections, for each protocol inside TLS.
pub(super) struct Settings {
    pub(super) http1: Arc<ServerConfig>,
    pub(super) http2: Arc<ServerConfig>,
    /// HTTP/1.1 again, and no client is asked for a certificate.
    pub(super) browsers: Arc<ServerConfig>,
}

impl FileContents {
    pub(super) fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_authority: files.client_authority.as_deref().map(read).transpose()?,
        })
    }

    pub(super) fn settings(&self, files: &TlsFiles) -> Result<Settings, TlsError> {
        // Named, so that it does not matter which one the process has chosen.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate, &files.certificate)?;
        let key = private_key(&self.key, &files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::of(&files.certificate, error))?;
        // Not a clone of what gateways have: a session of a browser, which has shown no certificate, must not go on there.
        let browsers = builder.clone().with_no_client_auth();
        let browsers = browsers.with_single_cert(chain.clone(), key.clone_key());
        let mut browsers = browsers.map_err(|error| unfit(&error, files))?;
        let builder = match (&self.client_authority, &files.client_authority) {
            (Some(pem), Some(path)) => {
                builder.with_client_cert_verifier(verifier(pem, path, provider)?)
            }
            _ => builder.with_no_client_auth(),
        };
        let settings = builder.with_single_cert(chain, key);
        let mut http1 = settings.map_err(|error| unfit(&error, files))?;
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec()];
        browsers.alpn_protocols.clone_from(&http1.alpn_protocols);
        Ok(Settings {
            http1: Arc::new(http1),
            http2: Arc::new(http2),
            browsers: Arc::new(browsers),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(|error| TlsError::of(path, error))?;
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut content);
    match read.map(u64::try_from) {
        Ok(Ok(0..=MAX_BYTES)) => Ok(content),
        Ok(_) => Err(TlsError::of(
            path,
            format_args!("longer than {MAX_BYTES} bytes"),
        )),
        Err(error) => Err(TlsError::of(path, error)),
    }
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(TlsError::of(
            path,
            "holds no certificate in PEM form (`-----BEGIN CERTIFICATE-----`)",
        )),
    }
}

fn private_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // The forms of PKCS #8 and of OpenSSL before it.
    let encrypted: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    let is_encrypted = |form: &&[u8]| pem.windows(form.len()).any(|part| part == *form);
    if encrypted.iter().any(is_encrypted) {
        let reason = "the private key is encrypted, and no one is there to type a passphrase: decrypt it with `openssl pkey`";
        return Err(TlsError::of(path, reason));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error: pem::Error| {
        let reason = match error {
            pem::Error::NoItemsFound => {
                "holds no private key in PEM form (`-----BEGIN PRIVATE KEY-----`)"
            }
            _ => "is not PEM as a whole: look for a line that is cut or missing",
        };
        TlsError::of(path, reason)
    })
}

fn verifier(
    pem: &[u8],
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, path)? {
        roots.add(certificate).map_err(|error| {
            TlsError::of(
                path,
                format_args!("a certificate is not one of an authority: {error}"),
            )
        })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().map_err(|error| TlsError::of(path, error))
}

/// The reason why a certificate and a key do not go together.
fn unfit(error: &rustls::Error, files: &TlsFiles) -> TlsError {
    let certificate = files.certificate.display();
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::of(
            &files.key,
            format_args!("is not the key of the certificate in {certificate}"),
        ),
        rustls::Error::InvalidCertificate(reason) => TlsError::of(
            &files.certificate,
            format_args!("the certificate cannot be read: {reason}"),
        ),
        _ => TlsError::of(
            &files.key,
            format_args!("is not a key of RSA, ECDSA or Ed25519: {error}"),
        ),
    }
}
