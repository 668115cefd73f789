//! Requests that nginx sends from one location to another: each is charged once, and its answer has the fields.

use tollgate_testkit::Standalone;

use crate::nginx::client::Ask;
use crate::nginx::served::{Gate, PATIENT};

const LIMITS: &str = "policies = [{ name = 'a', quotas = '100/h' }]";

/// Ways from one location to the next, by all that nginx has for it. The module is called in all locations.
const LOCATIONS: &str = r#"
location /try { try_files /nowhere/$uri @behind; }
location /tried { root /nowhere; try_files /x /fallback; }
location /error { return 404; error_page 404 = @behind; }
location /failed { error_page 502 504 = /fallback; proxy_pass http://127.0.0.1:9; }
location /rewritten { rewrite ^ /fallback last; }
location /broken { rewrite ^ /fallback break; proxy_pass http://127.0.0.1:8080; }
location /executed { content_by_lua_block { ngx.exec("/fallback") } }
location /named { content_by_lua_block { ngx.exec("@behind") } }
location /sent { content_by_lua_block { ngx.req.set_uri("/fallback", false) ngx.exec("/try") } }
location /answered { error_page 404 /fallback; return 404; }
location /asking { auth_request /asked; proxy_pass http://127.0.0.1:8080; }
location = /asked { internal; proxy_pass http://127.0.0.1:8080/asked; }
location @behind { proxy_pass http://127.0.0.1:8080; }
location / {"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_nginx_redirects_within_itself_is_charged_once() {
    let redis = Standalone::start();
    let calls = "access_by_lua_block { require(\"tollgate\").access() }\n";
    let fields = "header_filter_by_lua_block { require(\"tollgate\").fields() }\n";
    // Both stand in the server block, for all locations.
    let server = format!("{calls}{fields}{LOCATIONS}");
    let words = [
        (calls, ""),
        (fields, ""),
        ("location / {", &*server),
        PATIENT,
    ];
    let gate = Gate::start_with(LIMITS, &redis, &words).await;
    let paths = [
        "/plain",
        "/try",
        "/tried",
        "/error",
        "/failed",
        "/rewritten",
        "/broken",
        "/executed",
        "/named",
        "/sent",
        "/answered",
        "/asking",
    ];
    for (turn, path) in paths.iter().enumerate() {
        let answer = Ask::new(format!("GET {path}")).send(gate.address()).await;
        assert!(
            [200, 404].contains(&answer.status) && answer.body == "served",
            "{path}: {answer:?} {}",
            gate.nginx.log()
        );
        let left = 99 - turn;
        let states = answer.field("ratelimit");
        assert_eq!(states.len(), 1, "{path}: {answer:?}");
        assert!(
            states[0].starts_with(&format!("\"a\";r={left};")),
            "{path}: {answer:?}"
        );
    }
    assert!(!gate.nginx.log().contains("[lua]"), "{}", gate.nginx.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_location_that_is_reached_within_nginx_alone_asks_for_itself() {
    let redis = Standalone::start();
    // The module is not called in the first location.
    let words = [
        (
            "location / {",
            "location /outer { try_files /nowhere @inner; }\nlocation @inner {",
        ),
        PATIENT,
    ];
    let limits = "policies = [{ name = 'a', quotas = '2/h' }]";
    let gate = Gate::start_with(limits, &redis, &words).await;
    for expected in [200, 200, 429] {
        let answer = Ask::new("GET /outer").send(gate.address()).await;
        assert_eq!(answer.status, expected, "{answer:?}");
    }
    assert_eq!(gate.reached.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_without_the_variable_passes_nothing_on_and_says_why() {
    let redis = Standalone::start();
    let (variable, room) = (
        "map \"\" $tollgate { default \"\"; }",
        "map $tollgate $tollgate_room { default \"\"; }",
    );
    for missing in [vec![(variable, ""), (room, "")], vec![(room, "")]] {
        let words = [missing, vec![PATIENT]].concat();
        let gate = Gate::start_with(LIMITS, &redis, &words).await;
        let answer = Ask::new("GET /").send(gate.address()).await;
        assert_eq!(answer.status, 500, "{answer:?}");
        assert_eq!(gate.reached.count(), 0);
        let why = "does not have the two `map` lines about $tollgate";
        gate.until_log(why).await;
        // Neither was Redis asked.
        assert_eq!(redis.command(&["DBSIZE"]), ":0\r\n");
    }
}
