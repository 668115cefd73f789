//! The program while Redis does not decide: `--on-failure` and `--deadline`, for each file and each gateway.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_server::proto::rate_limit_descriptor::Entry;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate_testkit::Standalone;
use tonic::transport::Channel;

use crate::serve::http::send;
use crate::serve::program::{FORWARD_AUTH, PATIENCE, RULES, Told, program, signal};

/// A file that allows two requests an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limits {
    /// One of envoy/ratelimit, which Envoy alone asks about.
    EnvoyRatelimit,
    /// One in TOML, about which Envoy asks, and nginx over HTTP.
    Toml,
    /// The same, whose policy denies without Redis.
    DenyingToml,
}

impl Limits {
    fn is_toml(self) -> bool {
        matches!(self, Self::Toml | Self::DenyingToml)
    }

    fn file_name(self) -> &'static str {
        match self {
            Self::EnvoyRatelimit => "ratelimit.yaml",
            Self::Toml | Self::DenyingToml => "gateway.toml",
        }
    }

    fn text(self, per_hour: u32) -> String {
        match self {
            Self::EnvoyRatelimit => format!(
                "domain: shop\n\
                 descriptors:\n\
                 - key: account\n  \
                   rate_limit: {{ unit: hour, requests_per_unit: {per_hour} }}\n"
            ),
            Self::Toml => {
                format!("{FORWARD_AUTH}{RULES}").replace("10/h", &format!("{per_hour}/h"))
            }
            Self::DenyingToml => {
                let limits = Self::Toml.text(per_hour);
                limits.replace("/h'", "/h'\non_failure = 'deny'")
            }
        }
    }
}

/// The program, with the budgets of a Redis.
struct Served {
    program: Child,
    log: Told,
    limits: Limits,
    path: PathBuf,
    gateways: Vec<Gateway>,
    _folder: TempDir,
}

/// A gateway that asks the program.
#[derive(Clone, Debug)]
enum Gateway {
    Envoy(RateLimitServiceClient<Channel>),
    Nginx(SocketAddr),
}

impl Served {
    async fn with(limits: Limits, redis: &Standalone, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(limits.file_name());
        fs::write(&path, limits.text(2)).unwrap();
        let url = redis.url();
        let mut arguments = vec![path.to_str().unwrap(), "--redis", &url];
        arguments.extend(["--listen", "127.0.0.1:0"]);
        if limits.is_toml() {
            arguments.extend(["--forward-auth", "127.0.0.1:0"]);
        }
        arguments.extend(options);
        let mut program = program(&arguments);
        let mut log = Told::by(&mut program);
        let envoy: SocketAddr = log.address("Envoy may ask");
        let channel = Channel::from_shared(format!("http://{envoy}")).unwrap();
        let envoy = RateLimitServiceClient::new(channel.connect().await.unwrap());
        let mut gateways = vec![Gateway::Envoy(envoy)];
        if limits.is_toml() {
            let address = log.address("a gateway may ask over HTTP");
            gateways.push(Gateway::Nginx(address));
        }
        Self {
            program,
            log,
            limits,
            path,
            gateways,
            _folder: folder,
        }
    }

    /// Allows three requests an hour from now on.
    fn reload(&mut self) {
        fs::write(&self.path, self.limits.text(3)).unwrap();
        signal(&self.program, "HUP");
        let _changed = self.log.line("→ 3/h");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _killed = self.program.kill();
        let _status = self.program.wait();
    }
}

impl Gateway {
    /// The code with which a request is answered, in the words of Envoy.
    async fn ask(&self) -> String {
        match self {
            Self::Envoy(client) => match client.clone().should_rate_limit(request()).await {
                Ok(answer) => format!("{:?}", answer.into_inner().overall_code()),
                Err(status) => format!("{:?}", status.code()),
            },
            Self::Nginx(address) => {
                let fields = "x-original-method: GET\r\nx-original-uri: /\r\n";
                let answer = send(*address, "GET /_limit", fields).await;
                // nginx passes on no other status than 401 and 403, and the field has the one for the caller.
                let code = match (answer.status, &*answer.field("x-limit-status")) {
                    (204, _) => "Ok",
                    (403, ["429"]) => "OverLimit",
                    (403, ["503"]) => "Unavailable",
                    _ => panic!("{answer:?}"),
                };
                code.to_owned()
            }
        }
    }
}

/// The request of Envoy about an account.
fn request() -> RateLimitRequest {
    let entry = Entry {
        key: "account".to_owned(),
        value: "acme".into(),
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry],
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_the_stated_rule_decides_for_each_gateway_and_after_a_reload_too() {
    use Limits::{DenyingToml, EnvoyRatelimit, Toml};
    let (passes, refused, unavailable) = ("Ok", "OverLimit", "Unavailable");
    for (limits, rule, expected) in [
        // What Envoy does then is Envoy's to say.
        (EnvoyRatelimit, None, [unavailable; 3]),
        (EnvoyRatelimit, Some("allow"), [passes; 3]),
        (EnvoyRatelimit, Some("local"), [passes, passes, refused]),
        (Toml, None, [passes; 3]),
        (Toml, Some("deny"), [unavailable; 3]),
        (DenyingToml, None, [unavailable; 3]),
        (DenyingToml, Some("allow"), [passes; 3]),
        (Toml, Some("local"), [passes, passes, refused]),
    ] {
        let mut redis = Standalone::start();
        let options: Vec<_> = rule
            .into_iter()
            .flat_map(|it| ["--on-failure", it])
            .collect();
        let mut served = Served::with(limits, &redis, &options).await;
        for gateway in &served.gateways {
            assert_eq!(gateway.ask().await, passes, "{limits:?}, {rule:?}");
        }

        redis.kill();

        for code in expected {
            for gateway in &served.gateways {
                assert_eq!(gateway.ask().await, code, "{limits:?}, {rule:?}");
            }
        }
        // A larger budget has room for one more; then it is as before.
        served.reload();
        for gateway in &served.gateways {
            let _one_more = gateway.ask().await;
            assert_eq!(gateway.ask().await, expected[2], "{limits:?}, {rule:?}");
        }
    }
}

/// An operator starts it so in an outage. Redis decides as soon as it is back.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_stated_rule_the_program_starts_while_redis_is_away() {
    let local = ["--on-failure", "local"];
    let counts = ["Ok", "Ok", "OverLimit"];
    for (limits, options, expected) in [
        (Limits::EnvoyRatelimit, &local[..], counts),
        (Limits::Toml, &local, counts),
        (Limits::DenyingToml, &[], ["Unavailable"; 3]),
    ] {
        let mut redis = Standalone::start();
        redis.kill();

        let served = Served::with(limits, &redis, options).await;

        for code in expected {
            for gateway in &served.gateways {
                assert_eq!(gateway.ask().await, code, "{limits:?}");
            }
        }
        redis.restart();
        let by_redis = async {
            while redis.command(&["DBSIZE"]) == ":0\r\n" {
                for gateway in &served.gateways {
                    let _code = gateway.ask().await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, by_redis).await.unwrap();
    }
}

/// The status with which the program ends because of this address of Redis, and what it says. It must not start.
fn refused(limits: &str, name: &str, redis: &str, options: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, limits).unwrap();
    let mut arguments = vec![path.to_str().unwrap(), "--redis", redis];
    arguments.extend(["--listen", "127.0.0.1:0", "--forward-auth", "127.0.0.1:0"]);
    arguments.extend(options);
    let mut program = program(&arguments);
    let log = BufReader::new(program.stderr.take().unwrap());
    let mut said = String::new();
    for line in log.lines() {
        said += &line.unwrap();
        if said.contains("Envoy may ask") {
            program.kill().unwrap();
        }
    }
    (program.wait().unwrap().code(), said)
}

/// Nobody has chosen what happens under a policy that states no rule.
#[test]
fn without_a_stated_rule_for_each_policy_the_program_ends_while_redis_is_away() {
    let mut redis = Standalone::start();
    let url = redis.url();
    redis.kill();
    let silent = Limits::Toml.text(2);
    let one_of_two = silent.replacen("/h'", "/h'\non_failure = 'deny'", 1);
    assert_ne!(silent, one_of_two);
    for limits in [&silent, &one_of_two] {
        let (code, said) = refused(limits, "gateway.toml", &url, &[]);

        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("nothing listens there"), "{said}");
        assert!(said.contains("on_failure in every policy of"), "{said}");
    }
}

/// No server that comes back would mend a wrong password, and with `allow` nothing would be limited until somebody looks.
#[test]
fn a_wrong_password_for_redis_is_refused_whatever_rule_is_stated() {
    let redis = Standalone::start();
    let _set = redis.command(&["CONFIG", "SET", "requirepass", "right"]);
    let url = redis.url().replace("redis://", "redis://:wrong@");
    for (limits, options) in [
        (Limits::Toml, &["--on-failure", "allow"][..]),
        (Limits::DenyingToml, &[]),
    ] {
        let (code, said) = refused(&limits.text(2), limits.file_name(), &url, options);

        assert_eq!(code, Some(1), "{limits:?}: {said}");
        assert!(
            said.contains("check user name and password"),
            "{limits:?}: {said}"
        );
        // No rule would help.
        assert!(
            !said.contains("to start without Redis"),
            "{limits:?}: {said}"
        );
        assert!(!said.contains("wrong@"), "{limits:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stalls_is_waited_for_until_the_stated_deadline_for_each_gateway() {
    for limits in [Limits::EnvoyRatelimit, Limits::Toml] {
        let redis = Standalone::start();
        let options = ["--deadline", "30s", "--on-failure", "deny"];
        let served = Served::with(limits, &redis, &options).await;
        for gateway in &served.gateways {
            assert_eq!(gateway.ask().await, "Ok", "{limits:?}");
        }

        redis.stall();
        let answers = served.gateways.iter().cloned().map(|gateway| {
            let answer = async move { gateway.ask().await };
            tokio::spawn(answer)
        });
        let answers: Vec<_> = answers.collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            answers.iter().all(|answer| !answer.is_finished()),
            "{limits:?}"
        );
        redis.go_on();

        for answer in answers {
            assert_eq!(answer.await.unwrap(), "Ok", "{limits:?}");
        }
        // Redis has counted both of each gateway.
        for gateway in &served.gateways {
            assert_eq!(gateway.ask().await, "OverLimit", "{limits:?}");
        }
    }
}
