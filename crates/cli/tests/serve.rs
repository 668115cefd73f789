//! `tollgate serve`, run as an operator runs it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the server's tests take more of it"
)]
#[path = "../../server/tests/common/http.rs"]
mod http;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::{post, send};
use tokio::net::TcpStream;
use tollgate_server::proto::rate_limit_descriptor::Entry;
use tollgate_server::proto::rate_limit_response::Code;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate_testkit::{Authority, Standalone};
use tonic::transport::Channel;

const RULES: &str = "
[[policies]]
name = 'api'
quotas = '10/h'
on_demand = true

[[envoy]]
domain = 'shop'
descriptor = [{ key = 'account' }]
policy = 'api'
";

const FORWARD_AUTH: &str = "
client_address = { x-forwarded-for = { hops = 1 } }
[forward_auth]
gateway = 'nginx'
[[policies]]
name = 'pages'
quotas = '10/h'
";

fn program(arguments: &[&str]) -> Child {
    program_with(arguments, None)
}

/// The program with this token of the admin in its environment.
fn program_with(arguments: &[&str], token: Option<&str>) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("serve")
        .args(arguments)
        .env("NO_COLOR", "1")
        .env_remove("RUST_LOG")
        .env_remove("TOLLGATE_ADMIN_TOKEN")
        .envs(token.map(|token| ("TOLLGATE_ADMIN_TOKEN", token)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The status with which it ends, and what it says.
fn outcome(arguments: &[&str]) -> (Option<i32>, String) {
    outcome_with(arguments, None)
}

fn outcome_with(arguments: &[&str], token: Option<&str>) -> (Option<i32>, String) {
    let mut program = program_with(arguments, token);
    let mut said = String::new();
    program
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    (program.wait().unwrap().code(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_answers_until_it_is_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, format!("{FORWARD_AUTH}{RULES}")).unwrap();
    let redis = Standalone::start();
    let mut program = program(&[
        file.to_str().unwrap(),
        "--redis",
        &redis.url(),
        "--listen",
        "127.0.0.1:0",
        "--forward-auth",
        "127.0.0.1:0",
        "--status",
        "127.0.0.1:0",
        "--log",
        "json",
    ]);
    let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
    let mut told = |words: &str| loop {
        let line = log.next().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if line["fields"]["message"] == words {
            break line["fields"]["address"].as_str().unwrap().to_owned();
        }
    };
    let address = told("Envoy may ask");
    let over_http = told("a gateway may ask over HTTP");
    let status: SocketAddr = told("the status is told").parse().unwrap();

    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = RateLimitServiceClient::new(channel.connect().await.unwrap());
    let entry = Entry {
        key: "account".to_owned(),
        value: "acme".to_owned(),
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry],
        ..RateLimitDescriptor::default()
    };
    let request = RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    };
    let answer = client
        .should_rate_limit(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.statuses[0].limit_remaining, 9);

    let question = "x-original-method: GET\r\nx-original-uri: /\r\n";
    let passed = send(over_http.parse().unwrap(), "GET /_limit", question).await;
    assert_eq!(passed.status, 204, "{passed:?}");

    // Both budgets are in Redis, where a service finds them.
    let names = redis.command(&["KEYS", "*"]);
    for policy in ["tollgate:api:", "tollgate:pages:"] {
        assert!(names.contains(policy), "{names}");
    }

    let page = send(status, "GET /metrics", "").await;
    for figure in [
        "rate_limiting_gateway_questions_total{result=\"passed\"} 2",
        "rate_limiting_gateway_unknown_total{what=\"domain\"} 0",
        "rate_limiting_gateway_lost_reports_total 0",
        "rate_limiting_decisions_total{policy=\"api\",kind=\"enforced\",result=\"allowed\"} 1",
    ] {
        assert!(page.body.contains(figure), "{figure}: {}", page.body);
    }
    assert_eq!(send(status, "GET /livez", "").await.body, "lives\n");
    assert_eq!(send(status, "GET /readyz", "").await.status, 200);

    // A connection that says nothing is open, so that the end takes its time.
    let silent = TcpStream::connect(&*address).await.unwrap();
    let id = program.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    while send(status, "GET /readyz", "").await.status != 503 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((client, silent));
    let rest: Vec<_> = log.map(Result::unwrap).collect();
    assert!(program.wait().unwrap().success(), "{rest:?}");
    assert!(rest.last().unwrap().contains("stopped"), "{rest:?}");
}

#[test]
fn the_program_says_why_it_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, RULES.replace("policy = 'api'", "policy = 'apl'")).unwrap();
    let file = file.to_str().unwrap();
    let (status, said) = outcome(&[file]);
    assert_eq!(status, Some(1));
    let (status, checked) = outcome(&[file, "--check"]);
    assert_eq!(status, Some(1));
    let reason =
        format!("{file}:7: the rule at line 7: charges \"apl\", and the policies are: api");
    assert!(
        said.contains(&reason) && checked.contains(&reason),
        "{said}"
    );

    fs::write(file, RULES).unwrap();
    assert_eq!(outcome(&[file, "--check"]).0, Some(0));
    let (status, said) = outcome(&[file, "--listen", "192.0.2.1:1"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("--listen 192.0.2.1:1: "), "{said}");
    let (status, said) = outcome(&[file, "--redis", "http://localhost"]);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("the Redis backend's url is not of the form"),
        "{said}"
    );
    // The address and the table belong together.
    let (status, said) = outcome(&[file, "--forward-auth", "127.0.0.1:0"]);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("--forward-auth and the table [forward_auth]"),
        "{said}"
    );
    fs::write(file, format!("{FORWARD_AUTH}{RULES}")).unwrap();
    let (status, said) = outcome(&[file]);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("--forward-auth and the table [forward_auth]"),
        "{said}"
    );
    let (status, _) = outcome(&[]);
    assert_eq!(status, Some(2));
}

/// The arguments for TLS, with certificates in this folder.
fn papers(folder: &Path) -> Vec<String> {
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
    let file = folder.path().join("gateway.toml");
    fs::write(&file, format!("{FORWARD_AUTH}{RULES}")).unwrap();
    let papers = papers(folder.path());
    let mut arguments = vec![file.to_str().unwrap()];
    for argument in ["--listen", "--forward-auth", "--status", "--admin"] {
        arguments.extend([argument, "127.0.0.1:0"]);
    }
    let token = folder.path().join("token");
    fs::write(&token, "a-token-of-this-test").unwrap();
    arguments.extend(["--admin-token-file", token.to_str().unwrap()]);
    arguments.extend(papers.iter().map(String::as_str));
    let mut program = program(&arguments);
    let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
    let mut told = |words: &str| loop {
        let line = log.next().unwrap().unwrap();
        if let Some((_, address)) = line.split_once(&format!("{words} address=")) {
            break address.to_owned();
        }
    };
    let over_http = told("a gateway may ask over HTTP");
    let status = told("the status is told");
    let admin = told("operators may steer");
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
        assert!(begun.elapsed() < Duration::from_secs(30), "{page}");
    }
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn files_that_make_no_tls_are_told_at_the_start_and_by_a_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, RULES).unwrap();
    let file = file.to_str().unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_is_there_if_it_is_asked_for_with_a_token_that_is_nowhere_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, RULES).unwrap();
    let secret = folder.path().join("token");
    // The rest of the file does not count, nor do blanks around the token.
    fs::write(&secret, "  a-token-in-a-file \r\nand a remark\n").unwrap();
    let (file, secret) = (file.to_str().unwrap(), secret.to_str().unwrap());
    let arguments = [file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let with_file = [&arguments[..], &["--admin-token-file", secret]].concat();
    for (arguments, variable, token) in [
        (
            &arguments[..],
            Some("a-token-in-a-variable"),
            "a-token-in-a-variable",
        ),
        // The argument is meant before the variable.
        (
            &with_file[..],
            Some("a-token-in-a-variable"),
            "a-token-in-a-file",
        ),
        (&with_file[..], None, "a-token-in-a-file"),
    ] {
        let mut program = program_with(arguments, variable);
        let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
        let mut lines = Vec::new();
        let admin: SocketAddr = loop {
            let line = log.next().unwrap().unwrap();
            lines.push(line.clone());
            if let Some((_, address)) = line.split_once("operators may steer address=") {
                break address.parse().unwrap();
            }
        };
        let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
        let state = send(admin, "GET /api/state", &bearer(token)).await;
        assert_eq!(state.status, 200, "{state:?}");
        assert!(state.body.contains("\"name\":\"api\""), "{state:?}");
        let refused = send(admin, "GET /api/state", &bearer("another-token-of-16")).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        let body = "{\"policy\":\"api\",\"to\":\"off\"}";
        let switched = post(admin, "/api/switch", &bearer(token), body).await;
        assert_eq!(switched.status, 200, "{switched:?}");

        program.kill().unwrap();
        lines.extend(log.map(Result::unwrap));
        program.wait().unwrap();
        let told = lines.join("\n");
        assert!(
            told.contains("the admin was asked without its token"),
            "{told}"
        );
        assert!(told.contains("the admin has switched a policy"), "{told}");
        assert!(
            !told.contains("a-token-in") && !told.contains("another-token"),
            "{told}"
        );
    }
}

#[test]
fn the_admin_does_not_start_without_a_good_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, RULES).unwrap();
    let file = file.to_str().unwrap();
    let secret = folder.path().join("token");
    fs::write(&secret, "\na-token-on-the-second-line\n").unwrap();
    let secret = secret.to_str().unwrap();
    let admin = [file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

    let (status, said) = outcome(&admin);
    assert_eq!(status, Some(2));
    let words = "--admin needs a token: name a file by --admin-token-file, or set TOLLGATE_ADMIN_TOKEN; `openssl rand -hex 32` makes one";
    assert!(said.contains(words), "{said}");
    for token in ["", "fifteen-bytes-x", "  fifteen-bytes-x   "] {
        let (status, said) = outcome_with(&admin, Some(token));
        assert_eq!(status, Some(1));
        let words = "TOLLGATE_ADMIN_TOKEN: the admin's token is shorter than 16 bytes";
        assert!(said.contains(words) && !said.contains("fifteen"), "{said}");
    }
    let (status, said) = outcome_with(&admin, Some("a token with blanks"));
    assert_eq!(status, Some(1));
    assert!(
        said.contains("has blanks") && !said.contains("a token with"),
        "{said}"
    );
    let with_file = |path| [&admin[..], &["--admin-token-file", path]].concat();
    let (status, said) = outcome(&with_file(secret));
    assert_eq!(status, Some(1));
    assert!(
        said.contains(&format!("{secret}: the admin's token is shorter")),
        "{said}"
    );
    let (status, said) = outcome(&with_file("/nowhere/token"));
    assert_eq!(status, Some(1));
    assert!(said.contains("/nowhere/token: "), "{said}");
    // A token alone opens nothing.
    let (status, said) = outcome(&[file, "--admin-token-file", secret]);
    assert_eq!(status, Some(2));
    assert!(said.contains("--admin <ADDRESS>"), "{said}");
    // No argument takes the token itself.
    let (status, _) = outcome(&[file, "--admin-token", "a-token-as-an-argument"]);
    assert_eq!(status, Some(2));
    let taken = [file, "--listen", "127.0.0.1:0", "--admin", "192.0.2.1:1"];
    let (status, said) = outcome_with(&taken, Some("a-token-in-a-variable"));
    assert_eq!(status, Some(1));
    assert!(said.contains("--admin 192.0.2.1:1: "), "{said}");
}
