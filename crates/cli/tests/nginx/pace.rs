//! The work of nginx for a request, beside that of the same nginx with a bare `GET` to Redis for each request: by instructions,
//! which no other load changes. `examples/nginx.rs` measures the time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tollgate_testkit::{Nginx, Standalone};

use crate::served::{Written, configuration};

const LIMITS: &str = "
[[policies]]
name = 'api'
quotas = '1000000/s'
routes = ['/things/{id}']
key = { header = 'x-api-key' }
";

/// A question as programs for nginx ask it: with the client of Debian, over a kept connection, and its answer thrown away.
const BARE: &str = r#"location /bare/ {
    access_by_lua_block {
        local connection = require("nginx.redis"):new()
        connection:set_timeout(10000)
        assert(connection:connect("127.0.0.1", PORT))
        assert(connection:get("counter"))
        assert(connection:set_keepalive(60000, 64))
    }
    content_by_lua_block { ngx.print("served") }
}
location / {"#;

/// LuaJIT compiles what is called often, and finds that out by the addresses of code, which differ at each start.
const STARTS: usize = 5;

/// The requests that warm up tables and the compiler, and those that are counted: several rounds of the collector of garbage.
const WARM_UP: usize = 600;
const COUNTED: usize = 1_200;

/// Sends requests over one connection, each by another caller.
fn ask(to: SocketAddr, path: &str, times: usize) {
    let mut connection = TcpStream::connect(to).unwrap();
    connection.set_nodelay(true).unwrap();
    for time in 0..times {
        let caller = time % 50;
        let request = format!(
            "GET {path}{caller} HTTP/1.1\r\nhost: shop\r\nuser-agent: test\r\nx-api-key: caller-{caller}\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"0\r\n\r\n") {
            let mut more = [0; 4_096];
            let count = connection.read(&mut more).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&more[..count]);
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("served"),
            "{answer}"
        );
        assert_eq!(
            answer.contains("\r\nRateLimit: \"api\";r="),
            path == "/things/",
            "{answer}"
        );
    }
}

#[test]
fn a_request_costs_nginx_hardly_more_than_a_bare_question_to_redis() {
    let redis = Standalone::start();
    let _said = redis.command(&["SET", "counter", "12345"]);
    let written = Written::new(LIMITS);
    let bare = BARE.replace("PORT", &redis.port().to_string());
    let words = [
        ("deadline_ms = 250", "deadline_ms = 60000"),
        (
            "proxy_pass http://127.0.0.1:8080;",
            "content_by_lua_block { ngx.print(\"served\") }",
        ),
        ("location / {", &bare),
        (
            "# The module says once",
            "access_log off; keepalive_requests 100000; # The module says once",
        ),
    ];
    let text = configuration(&written, &redis, &words);
    for start in 1..=STARTS {
        let nginx = Nginx::start_with_lua_counted(&text);
        let counted = |path| {
            ask(nginx.address(), path, WARM_UP);
            let _before = nginx.instructions();
            ask(nginx.address(), path, COUNTED);
            nginx.instructions()
        };
        let (bare, ours) = (counted("/bare/"), counted("/things/"));
        assert!(
            bare > 0 && bare * 10 >= ours * 8,
            "start {start}: {bare} and {ours} instructions"
        );
    }
}
