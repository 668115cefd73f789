//! The program from its start to its end.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tollgate_server::proto::rate_limit_descriptor::Entry;
use tollgate_server::proto::rate_limit_response::Code;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate_testkit::Standalone;
use tonic::transport::Channel;

use crate::serve::http::send;
use crate::serve::program::{FORWARD_AUTH, RULES, Told, file, outcome, program, signal};

#[tokio::test(flavor = "multi_thread")]
async fn the_program_answers_until_it_is_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), &format!("{FORWARD_AUTH}{RULES}"));
    let redis = Standalone::start();
    let mut program = program(&[
        &file,
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
    let mut log = Told::by(&mut program);
    let mut told = |words: &str| {
        let line: serde_json::Value = serde_json::from_str(&log.line(words)).unwrap();
        assert_eq!(line["fields"]["message"], words);
        line["fields"]["address"].as_str().unwrap().to_owned()
    };
    let address = told("Envoy may ask");
    let over_http = told("a gateway may ask over HTTP");
    let status: SocketAddr = told("the status is told").parse().unwrap();

    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = RateLimitServiceClient::new(channel.connect().await.unwrap());
    let entry = Entry {
        key: "account".to_owned(),
        value: "acme".into(),
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
    signal(&program, "TERM");
    while send(status, "GET /readyz", "").await.status != 503 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((client, silent));
    let rest = log.all();
    assert!(program.wait().unwrap().success(), "{rest:?}");
    assert!(rest.last().unwrap().contains("stopped"), "{rest:?}");
}

#[test]
fn the_program_says_why_it_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(
        folder.path(),
        &RULES.replace("policy = 'api'", "policy = 'apl'"),
    );
    let file = &*file;
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
