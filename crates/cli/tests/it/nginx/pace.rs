//! The work of nginx for a request, beside that of the same nginx with a bare `GET` to Redis for each request: by instructions,
//! which no other load changes. `examples/nginx.rs` measures the time.

use std::net::SocketAddr;

use tollgate_testkit::{Nginx, Standalone, cases};

use crate::nginx::page::{self, BARE, LIMITS, OURS};
use crate::nginx::served::Written;

/// LuaJIT compiles what is called often, and finds that out by the addresses of code, which differ at each start.
const STARTS: u64 = 5;

/// The requests that warm up tables and the compiler, and those that are counted: several rounds of the collector of garbage.
const WARM_UP: usize = 600;
const COUNTED: usize = 1_200;

/// Sends requests over one connection, each by another caller.
fn ask(to: SocketAddr, path: &str, times: usize) {
    let mut connection = page::connection(to).unwrap();
    for time in 0..times {
        let answer = page::ask(&mut connection, path, time % 50).unwrap();
        assert!(answer.contains("served"), "{answer}");
        assert_eq!(
            answer.contains("\r\nRateLimit: \"api\";r="),
            path == OURS,
            "{answer}"
        );
    }
}

#[test]
fn a_request_costs_nginx_hardly_more_than_a_bare_question_to_redis() {
    let redis = Standalone::start();
    let _said = redis.command(&["SET", "counter", "12345"]);
    let written = Written::new(LIMITS);
    let text = page::measured(&written.json(), redis.port());
    for start in 1..=cases(STARTS) {
        let nginx = Nginx::start_with_lua_counted(&text);
        let counted = |path| {
            ask(nginx.address(), path, WARM_UP);
            let _before = nginx.instructions();
            ask(nginx.address(), path, COUNTED);
            nginx.instructions()
        };
        let (bare, ours) = (counted(BARE), counted(OURS));
        assert!(
            bare > 0 && bare * 10 >= ours * 8,
            "start {start}: {bare} and {ours} instructions"
        );
    }
}
