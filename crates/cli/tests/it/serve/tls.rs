//! The files for TLS.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tollgate_testkit::Authority;

use crate::serve::program::{FORWARD_AUTH, PATIENCE, RULES, Told, file, outcome, program};

/// The arguments for TLS, with certificates in this folder.
pub(crate) fn papers(folder: &Path) -> Vec<String> {
    let authority = Authority::new();
    let (server, client) = (authority.server(), authority.client());
    let mut arguments = Vec::new();
    for (argument, name, content) in [
        ("--tls-client-ca", "authority.pem", authority.pem()),
        ("--tls-cert", "server.pem", &server.certificate),
        ("--tls-key", "server.key", &server.key),
        ("", "client.pem", &client.certificate),
        ("", "client.key", &client.key),
    ] {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        if !argument.is_empty() {
            arguments.extend([argument.to_owned(), path.to_str().unwrap().to_owned()]);
        }
    }
    arguments
}

#[test]
fn gateways_ask_the_program_over_tls_if_it_has_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), &format!("{FORWARD_AUTH}{RULES}"));
    let papers = papers(folder.path());
    let mut arguments = vec![&*file];
    for argument in ["--listen", "--forward-auth", "--status", "--admin"] {
        arguments.extend([argument, "127.0.0.1:0"]);
    }
    let token = folder.path().join("token");
    fs::write(&token, "a-token-of-this-test").unwrap();
    arguments.extend(["--admin-token-file", token.to_str().unwrap()]);
    arguments.extend(papers.iter().map(String::as_str));
    let mut program = program(&arguments);
    let mut log = Told::by(&mut program);
    let over_http: String = log.address("a gateway may ask over HTTP");
    let status: String = log.address("the status is told");
    let admin: String = log.address("operators may steer");
    // The exit code, and what it got.
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*"]);
        curl.args(["--write-out", "%{http_code}"]).args(arguments);
        let ran = curl.current_dir(folder.path()).output();
        let ran = ran.unwrap_or_else(|error| panic!("curl: {error}: run `tests/install.sh`"));
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
    };
    let question = format!("https://{over_http}/_limit");
    let stated = ["-H", "x-original-method: GET", "-H", "x-original-uri: /"];
    let trusting = ["--cacert", "authority.pem"];
    let known = ["--cert", "client.pem", "--key", "client.key"];

    let (code, answer) = curl(&[&[&*question], &stated[..], &trusting, &known].concat());
    assert_eq!((code, &*answer), (Some(0), "204"));
    let (code, answer) = curl(&[&[&*question], &stated[..], &trusting].concat());
    assert!(code != Some(0) && answer == "000", "{code:?} {answer}");
    let (code, _) = curl(&[&[&*question], &stated[..], &known].concat());
    assert_eq!(code, Some(60), "the authority is not one of the system");
    let plain = question.replace("https", "http");
    assert_ne!(curl(&[&[&*plain], &stated[..]].concat()).0, Some(0));
    // An operator's browser has no certificate.
    let state = format!("https://{admin}/api/state");
    let token = ["-H", "authorization: Bearer a-token-of-this-test"];
    let (code, answer) = curl(&[&[&*state], &trusting[..], &token].concat());
    assert!(code == Some(0) && answer.ends_with("200"), "{answer}");
    // The status is in the clear.
    let failed = "rate_limiting_gateway_failed_handshakes_total 3";
    let begun = Instant::now();
    loop {
        // A failure is counted after the client has heard of it.
        let (_, page) = curl(&[&format!("http://{status}/metrics")]);
        if page.contains(failed) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{page}");
    }
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn files_that_make_no_tls_are_told_at_the_start_and_by_a_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = &*file(folder.path(), RULES);
    let papers = papers(folder.path());
    let papers: Vec<_> = papers.iter().map(String::as_str).collect();
    let check = |arguments: &[&str]| {
        let checked = outcome(&[&[file, "--check"], arguments].concat());
        if checked.0 != Some(0) {
            let started = outcome(&[&[file, "--listen", "127.0.0.1:0"], arguments].concat());
            assert_eq!(started.0, checked.0, "{started:?}");
        }
        checked
    };
    assert_eq!(check(&papers), (Some(0), String::new()));
    // One without the other.
    for alone in [&papers[2..4], &papers[4..6], &papers[..2]] {
        let (status, said) = check(alone);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("--tls-"), "{said}");
    }
    // Each file in its turn is another one's.
    for (at, other, words) in [
        (1, 5, "holds no certificate in PEM form"),
        (3, 5, "holds no certificate in PEM form"),
        (5, 3, "holds no private key in PEM form"),
        (3, 1, "is not the key of the certificate in"),
    ] {
        let mut wrong = papers.clone();
        wrong[at] = papers[other];
        let (status, said) = check(&wrong);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(words), "{said}");
        let named = if (at, other) == (3, 1) {
            papers[5]
        } else {
            papers[other]
        };
        assert!(said.contains(&format!("error: {named}: ")), "{said}");
    }
    let mut missing = papers.clone();
    missing[3] = "/none/server.pem";
    let (status, said) = check(&missing);
    assert_eq!(status, Some(1));
    assert!(said.contains("/none/server.pem: No such file"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_signal_has_the_files_for_tls_read_again() {
    use crate::serve::program::signal;

    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), FORWARD_AUTH);
    let papers = papers(folder.path());
    let path = |name: &str| folder.path().join(name);
    let mut arguments = vec![&*file, "--listen", "127.0.0.1:0"];
    arguments.extend(["--forward-auth", "127.0.0.1:0"]);
    // Without the authority of clients.
    arguments.extend(papers[2..].iter().map(String::as_str));
    let mut program = program(&arguments);
    let mut log = Told::by(&mut program);
    let address: String = log.address("a gateway may ask over HTTP");
    // True if the server shows a certificate of this authority.
    let shows = |authority: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--noproxy", "*", "--cacert"]);
        curl.arg(path(authority)).arg(format!("https://{address}/"));
        let ran = curl.output();
        let ran = ran.unwrap_or_else(|error| panic!("curl: {error}: run `tests/install.sh`"));
        match ran.status.code() {
            Some(0) => true,
            // Authorities of one name: the signature is wrong, or it is not trusted.
            Some(35 | 60) => false,
            other => panic!("curl: {other:?}: {ran:?}"),
        }
    };
    let other = Authority::new();
    let next = other.server();
    fs::write(path("other.pem"), other.pem()).unwrap();
    assert!(shows("authority.pem") && !shows("other.pem"));

    // A certificate without its key is refused, and the one before stays.
    fs::write(path("server.pem"), &next.certificate).unwrap();
    signal(&program, "HUP");
    log.line("the files for TLS are refused; the certificate before stays");
    assert!(shows("authority.pem") && !shows("other.pem"));
    fs::write(path("server.key"), &next.key).unwrap();
    signal(&program, "HUP");
    log.line("the certificate of new connections is another one");
    assert!(!shows("authority.pem") && shows("other.pem"));
    program.kill().unwrap();
    program.wait().unwrap();
}
