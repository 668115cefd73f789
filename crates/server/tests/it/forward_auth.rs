//! A real nginx and a real Caddy ask over HTTP, with the configuration of the docs. What counts is what reached the service behind.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::routing::any;
use tokio::net::TcpListener;
use tollgate_server::Gateway;
use tollgate_testkit::{Caddy, Nginx};

use crate::common::guide::example;
use crate::common::http::{Answer, send, send_from};
use crate::common::{File, Served, without_redis};

fn configuration(gateway: &str) -> String {
    let nginx = example("nginx", "toml");
    nginx.replace("gateway = \"nginx\"", &format!("gateway = \"{gateway}\""))
}

/// The service behind, and how many requests each handler got.
#[derive(Clone, Default)]
struct Shop {
    logins: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Shop {
    async fn serve(&self) -> SocketAddr {
        let (logins, calls) = (Arc::clone(&self.logins), Arc::clone(&self.calls));
        let login = any(move || async move {
            logins.fetch_add(1, Ordering::SeqCst);
            "welcome"
        });
        let call = any(move || async move {
            calls.fetch_add(1, Ordering::SeqCst);
            "called"
        });
        let app = Router::new()
            .route("/login", login)
            .route("/api/{*rest}", call)
            .route(
                "/forbidden",
                any(|| async { (StatusCode::FORBIDDEN, "no") }),
            );
        let requests = Arc::clone(&self.requests);
        let count = move |request: Request, next: Next| {
            requests.fetch_add(1, Ordering::SeqCst);
            next.run(request)
        };
        let app = app.fallback(|| async { (StatusCode::NOT_FOUND, "nothing") });
        let app = app.layer(from_fn(count));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }

    fn logins(&self) -> usize {
        self.logins.swap(0, Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.swap(0, Ordering::SeqCst)
    }

    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

/// The directives of the guide, with the ports of the test.
fn directives(heading: &str, language: &str, shop: SocketAddr, server: SocketAddr) -> String {
    let text = example(heading, language);
    assert!(text.contains("127.0.0.1:8080") && text.contains("127.0.0.1:8082"));
    let text = text.replace("127.0.0.1:8080", &shop.to_string());
    text.replace("127.0.0.1:8082", &server.to_string())
}

async fn nginx(shop: SocketAddr, server: SocketAddr) -> Nginx {
    let directives = directives("nginx", "nginx", shop, server);
    let start = move || Nginx::start("", &directives);
    tokio::task::spawn_blocking(start).await.unwrap()
}

async fn caddy(shop: SocketAddr, server: SocketAddr) -> Caddy {
    let directives = directives("Caddy", "caddyfile", shop, server);
    let start = move || Caddy::start(&directives);
    tokio::task::spawn_blocking(start).await.unwrap()
}

fn wait(answer: &Answer) -> u64 {
    answer.field("retry-after")[0].parse().unwrap()
}

/// All that both gateways have in common.
async fn limits(front: SocketAddr, shop: &Shop) {
    // The method, the path and the address of the caller.
    for _ in 0..5 {
        let passed = send(front, "POST /login", "").await;
        assert_eq!(
            (passed.status, &*passed.body),
            (200, "welcome"),
            "{passed:?}"
        );
    }
    let refused = send(front, "POST /login", "").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!((1..=720).contains(&wait(&refused)), "{refused:?}");
    assert_eq!(refused.field("ratelimit-policy"), ["\"login\";q=5;w=3600"]);
    assert_eq!(refused.field("content-type"), ["application/problem+json"]);
    assert_eq!(refused.field("cache-control"), ["no-store"]);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(shop.logins(), 5);
    // Another method, and another caller.
    assert_eq!(send(front, "GET /login", "").await.status, 200);
    let other = send_from(Ipv4Addr::new(127, 0, 0, 2), front, "POST /login", "").await;
    assert_eq!(other.status, 200, "{other:?}");
    assert_eq!(shop.logins(), 2);

    // A caller cannot state another request, nor another caller.
    for lie in [
        "x-forwarded-for: 9.9.9.9\r\n",
        "x-real-ip: 9.9.9.9\r\nforwarded: for=9.9.9.9\r\n",
        "x-original-method: GET\r\nx-forwarded-method: GET\r\n",
        "x-original-uri: /free\r\nx-forwarded-uri: /free\r\n",
        "x-original-host: other\r\nx-forwarded-host: other\r\n",
        "x-limit-status: 204\r\n",
        // A refusal in the form of gRPC would have the status 200.
        "content-type: application/grpc\r\n",
    ] {
        let refused = send(front, "POST /login", lie).await;
        assert_eq!(refused.status, 429, "{lie}: {refused:?}");
    }
    // However the path is written: what reaches the handler is charged.
    for path in ["/login?x=1", "/login?x=/free", "/%6Cogin"] {
        let answer = send(front, &format!("POST {path}"), "").await;
        assert_eq!(answer.status, 429, "{path}: {answer:?}");
    }
    // Some services would read these as the path of the handler: none is passed on to any.
    shop.requests();
    for path in [
        "//login",
        "//shop/login",
        "/./login",
        "/free/../login",
        "/free/%2e%2e/login",
        "/login%2F",
        "/login%2F..%2Ffree",
        "/login;x=1",
        "/\\shop/login",
        "/login%00",
    ] {
        let answer = send(front, &format!("POST {path}"), "").await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
    }
    for line in ["GET /api%2fthings", "GET /free/../api/things"] {
        assert_eq!(send(front, line, "").await.status, 400, "{line}");
    }
    // A method in other letters, and a key of which services take the first or the last.
    assert_eq!(send(front, "post /login", "").await.status, 400);
    let twice = "x-api-key: fresh\r\nx-api-key: alice\r\n";
    assert_eq!(send(front, "GET /api/things", twice).await.status, 400);
    assert_eq!(shop.requests(), 0);
    assert_eq!(shop.logins(), 0);

    // The fields of the request.
    for key in ["alice", "bob"] {
        let field = format!("x-api-key: {key}\r\n");
        for _ in 0..20 {
            assert_eq!(send(front, "GET /api/things", &field).await.status, 200);
        }
        assert_eq!(send(front, "GET /api/things", &field).await.status, 429);
    }
    assert_eq!(shop.calls(), 40);
    // Without a key there is no identity, which this policy insists on.
    assert_eq!(send(front, "GET /api/things", "").await.status, 403);
    assert_eq!(shop.calls(), 0);

    // What the service says stays as it is.
    let forbidden = send(front, "GET /forbidden", "").await;
    assert_eq!((forbidden.status, &*forbidden.body), (403, "no"));
    assert_eq!(send(front, "GET /free", "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_limits_by_the_configuration_of_the_guide() {
    let file = File::toml(&configuration("nginx"));
    let server = Served::forward_auth(&file).await;
    let shop = Shop::default();
    let nginx = nginx(shop.serve().await, server.address).await;

    limits(nginx.address(), &shop).await;
    shop.requests();
    // Caddy passes these on encoded, to the server and to the service alike.
    for target in ["/login#x", "/free?x=1#&y=2"] {
        let answer = send(nginx.address(), &format!("POST {target}"), "").await;
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
    }
    assert_eq!(shop.requests(), 0);

    // A request that passes is told of its budget, too.
    let passed = send_from(
        Ipv4Addr::new(127, 0, 0, 3),
        nginx.address(),
        "POST /login",
        "",
    )
    .await;
    assert_eq!(passed.field("ratelimit-policy"), ["\"login\";q=5;w=3600"]);
    assert!(passed.field("ratelimit")[0].starts_with("\"login\";r=4;t="));
    // The server's own words to nginx.
    let question = "x-original-method: GET\r\nx-original-uri: /api/x\r\n";
    let refused = send(server.address, "GET /_limit", question).await;
    assert_eq!(
        (refused.status, refused.field("x-limit-status")),
        (403, vec!["403"])
    );

    // Without the server no request passes.
    let counts = server.gateway.counts();
    assert_eq!((counts.invalid, counts.undecided), (0, 0), "{counts:?}");
    assert!(counts.passed >= 48 && counts.refused >= 12, "{counts:?}");
    server.stop().await;
    assert_eq!(send(nginx.address(), "GET /free", "").await.status, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_limits_by_the_configuration_of_the_guide() {
    let file = File::toml(&configuration("caddy"));
    let server = Served::forward_auth(&file).await;
    let shop = Shop::default();
    let caddy = caddy(shop.serve().await, server.address).await;

    limits(caddy.address(), &shop).await;

    // The body of a refusal is the server's.
    let refused = send(caddy.address(), "POST /login", "").await;
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));

    server.stop().await;
    assert_eq!(send(caddy.address(), "GET /free", "").await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_could_not_be_decided_is_answered_503() {
    let denying = |gateway: &str| {
        let quotas = "quotas = \"5/h\"\n";
        let text = configuration(gateway);
        assert!(text.contains(quotas));
        File::toml(&text.replace(quotas, &format!("{quotas}on_failure = \"deny\"\n")))
    };
    let shop = Shop::default();
    let behind = shop.serve().await;
    let (of_nginx, of_caddy) = (denying("nginx"), denying("caddy"));
    let for_nginx = Served::forward_auth_with(&of_nginx, without_redis).await;
    let for_caddy = Served::forward_auth_with(&of_caddy, without_redis).await;
    let nginx = nginx(behind, for_nginx.address).await;
    let caddy = caddy(behind, for_caddy.address).await;

    for (front, server) in [(nginx.address(), &for_nginx), (caddy.address(), &for_caddy)] {
        let answer = send(front, "POST /login", "").await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.field("content-type"), ["application/problem+json"]);
        assert_eq!(answer.field("cache-control"), ["no-store"]);
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["status"], 503, "{answer:?}");
        // The policy says so, and not the gateway: without a policy a request passes.
        assert_eq!(shop.logins(), 0);
        assert_eq!(send(front, "GET /login", "").await.status, 200);
        assert_eq!(shop.logins(), 1);
        assert_eq!(server.gateway.counts().undecided, 1);
    }
}

/// Caddy passes a method on as it is, and the service behind may take `get` for GET or for no GET.
#[tokio::test(flavor = "multi_thread")]
async fn a_method_in_other_letters_is_neither_exempt_nor_uncovered() {
    let exempting = configuration("caddy").replace(
        "methods = [\"POST\"]",
        "exempt_methods = [\"GET\", \"OPTIONS\"]\nexempt_preflights = true",
    );
    for text in [configuration("caddy"), exempting] {
        let server = Served::forward_auth(&File::toml(&text)).await;
        let shop = Shop::default();
        let caddy = caddy(shop.serve().await, server.address).await;
        let preflight = "origin: a\r\naccess-control-request-method: PUT\r\n";
        for _ in 0..6 {
            for line in ["get /login", "Get /login", "post /login", "options /login"] {
                send(caddy.address(), line, preflight).await;
            }
        }
        assert_eq!(shop.logins(), 0);
        assert_eq!(send(caddy.address(), "GET /login", "").await.status, 200);
    }
}

/// A server that accepts and never answers, and the number of its connections.
async fn hung() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, connections)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_lets_no_request_pass_and_holds_none_for_ever() {
    let (server, connections) = hung().await;
    let shop = Shop::default();
    let behind = shop.serve().await;
    let nginx = nginx(behind, server).await;
    let caddy = caddy(behind, server).await;
    for (front, status) in [(nginx.address(), 500), (caddy.address(), 504)] {
        for line in ["POST /login", "GET /free"] {
            let before = connections.load(Ordering::SeqCst);
            let answer = send(front, line, "").await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(connections.load(Ordering::SeqCst) > before);
        }
    }
    assert_eq!(shop.requests(), 0);
}

#[tokio::test]
async fn a_question_that_states_no_request_lets_none_pass_and_is_counted() {
    let file = File::toml(&configuration("traefik"));
    let server = Served::forward_auth(&file).await;
    let whole = "x-forwarded-method: POST\r\nx-forwarded-uri: /login\r\n";
    let passed = send(server.address, "GET /", whole).await;
    assert_eq!((passed.status, &*passed.body), (204, ""), "{passed:?}");

    let senseless = send(server.address, "GET /", "x-forwarded-uri: /login\r\n").await;
    assert_eq!(
        (senseless.status, &*senseless.body),
        (400, "x-forwarded-method: is not stated\n")
    );
    assert_eq!(server.gateway.counts().invalid, 1);

    // The gateway asks as it asked before, so that its table stays until the next start.
    let without = "client_address = { x-forwarded-for = { hops = 1 } }\n[[policies]]\nname = 'a'\nquotas = '1/h'\n\
                   [[envoy]]\ndomain = 'd'\ndescriptor = [{ key = 'k' }]\npolicy = 'a'\n";
    for next in [without.to_owned(), configuration("nginx")] {
        file.write(&next);
        let refused = server.gateway.reload().unwrap_err().to_string();
        let reason = "[forward_auth]: the gateway that asks over HTTP changes with the next start of the server alone";
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(send(server.address, "GET /", whole).await.status, 204);
    }
    // Its policies change at once, and so do the paths that it lets pass.
    let odd = "x-forwarded-method: POST\r\nx-forwarded-uri: /a%2Fb\r\n";
    assert_eq!(send(server.address, "GET /", odd).await.status, 400);
    let gateway = "gateway = \"traefik\"";
    let lax = format!("{gateway}\nallow_ambiguous_paths = true");
    file.write(&configuration("traefik").replace(gateway, &lax));
    server.gateway.reload().unwrap();
    assert_eq!(send(server.address, "GET /", odd).await.status, 204);
    server.stop().await;
}

#[tokio::test]
async fn a_file_that_could_not_limit_is_refused_with_the_reason() {
    let forward = "[forward_auth]\ngateway = 'nginx'\n";
    let trusting = "client_address = { x-forwarded-for = { hops = 1 } }\n";
    let policy = |fields: &str| format!("[[policies]]\nname = 'a'\nquotas = '1/h'\n{fields}\n");
    let cases = [
        (
            format!("{trusting}{forward}{}", policy("on_demand = true")),
            "forward_auth: every policy is on_demand, so that no request would have a limit",
        ),
        (
            format!("{forward}{}", policy("")),
            "forward_auth: the peer of each question is the gateway, so that all callers would share its budget; say where it \
             states the caller's address, as in client_address = { x-forwarded-for = { networks = [\"127.0.0.1\"] } }",
        ),
        (
            format!(
                "{trusting}{forward}{}",
                policy("key = ['client-ip', { json-field = 'id' }]")
            ),
            "forward_auth: policy \"a\" has a key in the body, which a gateway does not show",
        ),
        (
            format!(
                "{trusting}{forward}{}",
                policy("once = { by = { json-field = 'id' } }")
            ),
            "forward_auth: policy \"a\" has once by a part of the body, which a gateway does not show; name a header or a part of the \
             query in `once.by`",
        ),
        (
            format!(
                "{trusting}{forward}{}",
                policy("classes = { by = { form-field = 'id' }, keep_for = ['a 20%'] }")
            ),
            "forward_auth: policy \"a\" has classes by a part of the body",
        ),
        (
            format!(
                "{trusting}{forward}{}",
                policy("per_message = { of = 'received' }")
            ),
            "forward_auth: policy \"a\" charges messages, and a gateway asks once for a stream",
        ),
        (
            format!(
                "{trusting}[forward_auth]\ngateway = 'haproxy'\n{}",
                policy("")
            ),
            "unknown variant `haproxy`, expected one of `nginx`, `caddy`, `traefik`",
        ),
        (
            format!("{trusting}{forward}{}", policy("quotas_by = 'x'")),
            "",
        ),
    ];
    for (text, reason) in cases {
        let file = File::toml(&text);
        let error = Gateway::start(file.path(), None, |builder| builder).unwrap_err();
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
}
