//! Certificates of an authority that only one test trusts.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

/// The names of this host.
pub(crate) const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// An authority of its own.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, as PEM.
#[derive(Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// An authority that has issued nothing yet.
    ///
    /// # Panics
    ///
    /// If there is no randomness for a key.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        Self {
            pem: issuer.pem(),
            issuer,
        }
    }

    /// The certificate of the authority, as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A new certificate of a server on this host.
    #[must_use]
    pub fn server(&self) -> Identity {
        self.server_until(&NAMES, None)
    }

    /// A new certificate of a client.
    #[must_use]
    pub fn client(&self) -> Identity {
        self.identity(&NAMES, None, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate of a server with these names, which expires with the beginning of the year, if there is one.
    pub(crate) fn server_until(&self, names: &[&str], year: Option<i32>) -> Identity {
        self.identity(names, year, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn identity(
        &self,
        names: &[&str],
        until_year: Option<i32>,
        usage: ExtendedKeyUsagePurpose,
    ) -> Identity {
        let names = names.iter().map(|name| (*name).to_owned());
        let mut params = CertificateParams::new(names.collect::<Vec<_>>()).expect("names");
        if let Some(year) = until_year {
            params.not_after = date_time_ymd(year, 1, 1);
        }
        params.distinguished_name = named("localhost");
        params.insert_extended_key_usage(usage);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A subject with the issuer's name would count as self-signed.
fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
