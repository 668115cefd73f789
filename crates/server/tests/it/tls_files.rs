//! Files of which no TLS can be made: each is told with its path and with what would do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use tollgate_server::TlsFiles;
use tollgate_testkit::{Authority, Identity, Log};

const ENCRYPTED: &str =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGj\n-----END ENCRYPTED PRIVATE KEY-----\n";
const ENCRYPTED_OLD: &str = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIGj\n-----END RSA PRIVATE KEY-----\n";
const GARBLED: &str = "-----BEGIN CERTIFICATE-----\nMIGj\n-----END CERTIFICATE-----\n";
const GARBLED_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIGj\n-----END PRIVATE KEY-----\n";

#[test]
fn each_file_that_makes_no_tls_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let Identity { certificate, key } = authority.server();
    let other = authority.server().key;
    let cut = &key[..key.len() - 30];
    let long = "x".repeat((4 << 20) + 1);
    let ca = authority.pem();
    let path = |name: &str| folder.path().join(name);
    let no_certificate = "holds no certificate in PEM form (`-----BEGIN CERTIFICATE-----`)";
    let no_key = "holds no private key in PEM form (`-----BEGIN PRIVATE KEY-----`)";
    let encrypted = "the private key is encrypted, and no one is there to type a passphrase: decrypt it with `openssl pkey`";
    let mismatch = format!(
        "is not the key of the certificate in {}",
        path("c").display()
    );
    for (contents, told, reason) in [
        ([&*certificate, &key, ca], "", ""),
        (["", &key, ca], "c", no_certificate),
        ([&key, &key, ca], "c", no_certificate),
        ([GARBLED, &key, ca], "c", "the certificate cannot be read: "),
        ([&long, &key, ca], "c", "longer than 4194304 bytes"),
        ([&certificate, "", ca], "k", no_key),
        ([&certificate, &certificate, ca], "k", no_key),
        ([&certificate, cut, ca], "k", "is not PEM as a whole"),
        (
            [&certificate, GARBLED_KEY, ca],
            "k",
            "is not a key of RSA, ECDSA or Ed25519: ",
        ),
        ([&certificate, ENCRYPTED, ca], "k", encrypted),
        ([&certificate, ENCRYPTED_OLD, ca], "k", encrypted),
        ([&certificate, &other, ca], "k", &mismatch),
        ([&certificate, &key, ""], "a", no_certificate),
        ([&certificate, &key, &key], "a", no_certificate),
        (
            [&certificate, &key, GARBLED],
            "a",
            "a certificate is not one of an authority: ",
        ),
    ] {
        for (name, content) in ["c", "k", "a"].iter().zip(contents) {
            fs::write(path(name), content).unwrap();
        }
        let files = TlsFiles::new(path("c"), path("k")).client_authority(path("a"));
        let loaded = files.load().map(drop).map_err(|error| error.to_string());
        match told {
            "" => assert_eq!(loaded, Ok(())),
            file => {
                let words = format!("{}: {reason}", path(file).display());
                let error = loaded.unwrap_err();
                assert!(error.starts_with(&words), "{error}\n{words}");
            }
        }
    }
    for missing in ["c", "k", "a"] {
        fs::write(path("c"), &certificate).unwrap();
        fs::write(path("k"), &key).unwrap();
        fs::write(path("a"), ca).unwrap();
        fs::remove_file(path(missing)).unwrap();
        let files = TlsFiles::new(path("c"), path("k")).client_authority(path("a"));
        let error = files.load().unwrap_err();
        assert_eq!(error.path(), path(missing));
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_as_that_once_it_lasts_and_the_certificate_stays() {
    let log = Log::default();
    let _guard = log.listen();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let Identity { certificate, key } = Authority::new().server();
    fs::write(path("c"), &certificate).unwrap();
    fs::write(path("k"), &key).unwrap();
    let tls = TlsFiles::new(path("c"), path("k")).load().unwrap();

    // One look is not enough: a key may be replaced after its certificate.
    fs::rename(path("k"), path("away")).unwrap();
    tls.reload().unwrap_err();
    assert_eq!((tls.fault(), log.text()), (None, String::new()));
    for _ in 0..3 {
        let error = tls.reload().unwrap_err();
        assert_eq!(
            (error.path(), tls.fault()),
            (&*path("k"), Some(error.clone()))
        );
    }
    fs::rename(path("away"), path("k")).unwrap();
    assert_eq!((tls.reload(), tls.fault()), (Ok(false), None));
    // Its content is at fault.
    fs::write(path("k"), "").unwrap();
    for _ in 0..3 {
        tls.reload().unwrap_err();
    }
    assert!(
        tls.fault()
            .unwrap()
            .to_string()
            .contains("holds no private key")
    );
    fs::write(path("k"), &key).unwrap();
    assert_eq!((tls.reload(), tls.fault()), (Ok(true), None));

    let lines = log.text();
    let lines: Vec<_> = lines.lines().collect();
    let words = [
        "the files for TLS cannot be read; the certificate before stays",
        "the files for TLS can be read again",
        "the files for TLS are refused; the certificate before stays",
        "the certificate of new connections is another one",
    ];
    assert_eq!(lines.len(), words.len(), "{lines:?}");
    for (line, words) in lines.iter().zip(words) {
        assert!(line.contains(words), "{line}");
    }
}
