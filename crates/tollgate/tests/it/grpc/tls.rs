//! Callers with certificates.

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, DnValue, IsCa, Issuer, KeyPair,
    SanType,
};
use tollgate::key::PeerCertificate;
use tollgate::{OnMissing, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::{Order, OrdersClient, OrdersServer, Shop};
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};

use crate::grpc::serving::incoming;

/// The authority that signs all certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = Certificate::from_pem(params.self_signed(&key).unwrap().pem());
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    fn vouch(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem(), key.serialize_pem())
    }

    /// A caller whose names are all made of this one.
    fn caller(&self, name: &str) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let uri = format!("spiffe://shop/{name}");
        params.subject_alt_names = vec![
            SanType::URI(Ia5String::try_from(uri).unwrap()),
            SanType::DnsName(Ia5String::try_from(format!("{name}.Shop")).unwrap()),
        ];
        self.vouch(&params)
    }
}

#[tokio::test]
async fn callers_are_told_apart_by_the_names_in_their_certificates() {
    for key in [
        PeerCertificate::common_name(),
        PeerCertificate::dns_name(),
        PeerCertificate::uri(),
    ] {
        let policy = Policy::new("per-caller", Quota::per_hour(1)).key(key);
        let codes = calls(RateLimitLayer::new(policy), &["alice", "bob", "alice"]).await;
        assert_eq!(
            codes,
            [Code::Ok, Code::Ok, Code::ResourceExhausted],
            "{key:?}"
        );
    }
}

#[tokio::test]
async fn the_address_of_a_caller_is_known_behind_tls() {
    let policy = Policy::new("per-address", Quota::per_hour(2)).on_missing(OnMissing::Deny);
    let codes = calls(RateLimitLayer::new(policy), &["alice", "bob", "alice"]).await;
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::ResourceExhausted]);
}

#[tokio::test]
async fn a_caller_without_such_a_name_has_none() {
    let policy = Policy::new("per-caller", Quota::per_hour(9))
        .key(PeerCertificate::common_name())
        .on_missing(OnMissing::Deny);
    let codes = calls(RateLimitLayer::new(policy), &[""]).await;
    assert_eq!(codes, [Code::PermissionDenied]);
}

/// A subject alternative name that is the URI of these bytes.
fn uri_of(bytes: &[u8]) -> CustomExtension {
    let length = u8::try_from(bytes.len()).unwrap();
    let names = [&[0x30, length + 2, 0x86, length], bytes].concat();
    CustomExtension::from_oid_content(&[2, 5, 29, 17], names)
}

#[tokio::test]
async fn a_name_that_cannot_be_read_is_ambiguous_and_passes_no_policy() {
    let named = |name: DnValue| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut broken = CertificateParams::default();
    broken.custom_extensions = vec![uri_of(b"spiffe://shop/\xff")];
    let unreadable = [
        (
            PeerCertificate::common_name(),
            named(DnValue::BmpString("eve".try_into().unwrap())),
        ),
        (
            PeerCertificate::common_name(),
            named(DnValue::TeletexString("eve".try_into().unwrap())),
        ),
        (PeerCertificate::uri(), broken.clone()),
        (PeerCertificate::dns_name(), broken),
    ];
    for (key, params) in unreadable {
        let policy = Policy::new("per-caller", Quota::per_hour(1))
            .key(key)
            .on_missing(OnMissing::Pass);
        let authority = Authority::new();
        let callers = [authority.vouch(&params), authority.vouch(&params)];

        let codes = calls_of(&authority, RateLimitLayer::new(policy), callers).await;

        assert_eq!(codes, [Code::Ok, Code::ResourceExhausted], "{key:?}");
    }
}

/// Has these callers call, each on a connection of its own. One without name has a certificate without names.
async fn calls(layer: RateLimitLayer, callers: &[&str]) -> Vec<Code> {
    let authority = Authority::new();
    let identities = callers.iter().map(|caller| match *caller {
        "" => {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            authority.vouch(&params)
        }
        name => authority.caller(name),
    });
    calls_of(&authority, layer, identities).await
}

async fn calls_of(
    authority: &Authority,
    layer: RateLimitLayer,
    identities: impl IntoIterator<Item = Identity>,
) -> Vec<Code> {
    let own = CertificateParams::new(["shop.test".to_owned()]).unwrap();
    let tls = ServerTlsConfig::new()
        .identity(authority.vouch(&own))
        .client_ca_root(authority.certificate.clone());
    let server = Server::builder()
        .tls_config(tls)
        .unwrap()
        .layer(layer)
        .add_service(OrdersServer::new(Shop::default()));
    let (address, incoming) = incoming().await;
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut codes = Vec::new();
    for identity in identities {
        let tls = ClientTlsConfig::new()
            .domain_name("shop.test")
            .ca_certificate(authority.certificate.clone())
            .identity(identity);
        let endpoint = Endpoint::new(format!("https://{address}")).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
        let receipt = OrdersClient::new(channel).place(Order::default()).await;
        codes.push(receipt.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    codes
}
