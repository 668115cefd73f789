//! The page about the module: its examples, with other words in them. `examples/nginx.rs` has this file too, so that what is
//! measured is set up once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

const README: &str = include_str!("../../../../../lua/nginx/README.md");

/// The module.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua/nginx");

/// The first example of this language.
pub(crate) fn example(language: &str) -> String {
    let behind = README.split_once(&format!("```{language}\n"));
    let example = behind.and_then(|(_, behind)| behind.split_once("```"));
    example.map_or_else(String::new, |(example, _)| example.to_owned())
}

/// The `nginx.conf`, for this file and a Redis on this port. These words are others in it, and some always are.
pub(crate) fn configuration(json: &Path, port: u16, words: &[(&str, &str)]) -> String {
    let (json, port) = (json.display().to_string(), format!("port = {port}"));
    let usual = [
        ("/usr/share/tollgate/nginx", MODULE),
        ("/etc/tollgate/nginx.json", &json),
        ("port = 6379", &port),
        ("listen 80;", "listen {listen};"),
    ];
    let mut text = example("nginx");
    for (page, word) in usual.iter().chain(words) {
        assert!(text.contains(page), "the page has {page}");
        text = text.replace(page, word);
    }
    text
}

/// The limits under which a request is measured.
pub(crate) const LIMITS: &str = "
[[policies]]
name = 'api'
quotas = '1000000/s'
routes = ['/things/{id}']
key = { header = 'x-api-key' }
";

/// The beginnings of the paths of requests that are measured, with a bare `GET` to Redis and with the module. `/nothing/` asks
/// nothing.
pub(crate) const BARE: &str = "/bare/";
pub(crate) const OURS: &str = "/things/";

/// Locations beside the module's. A question is asked as programs for nginx do it: with the client of Debian, over a kept
/// connection, and its answer is thrown away.
const LOCATIONS: &str = r#"location /nothing/ {
    content_by_lua_block { ngx.print("served") }
}
location /bare/ {
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

/// The `nginx.conf` in which requests are measured: one worker makes all answers itself.
pub(crate) fn measured(json: &Path, port: u16) -> String {
    let words = [
        ("worker_processes 2;", "worker_processes 1;"),
        ("deadline_ms = 250", "deadline_ms = 60000"),
        (
            "# The module says once",
            "access_log off; keepalive_requests 100000000; #",
        ),
        (
            "proxy_pass http://127.0.0.1:8080;",
            "content_by_lua_block { ngx.print(\"served\") }",
        ),
        (
            "location / {",
            &LOCATIONS.replace("PORT", &port.to_string()),
        ),
    ];
    configuration(json, port, &words)
}

/// A connection for requests that are measured.
pub(crate) fn connection(to: SocketAddr) -> io::Result<TcpStream> {
    let connection = TcpStream::connect(to)?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// The answer to a request of this caller, which has to be served.
pub(crate) fn ask(connection: &mut TcpStream, path: &str, caller: usize) -> io::Result<String> {
    let request = format!(
        "GET {path}{caller} HTTP/1.1\r\nhost: shop\r\nuser-agent: test\r\nx-api-key: caller-{caller}\r\n\r\n"
    );
    connection.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"0\r\n\r\n") {
        let mut more = [0; 4_096];
        let count = connection.read(&mut more)?;
        answer.extend_from_slice(&more[..count]);
        if count == 0 || !answer.starts_with(b"HTTP/1.1 200 ") {
            return Err(io::Error::other(
                String::from_utf8_lossy(&answer).into_owned(),
            ));
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
