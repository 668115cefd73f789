//! Requests, drawn at random: honest ones, and those of callers that look for a way around.

use std::fmt;
use std::net::SocketAddr;

use axum::body::Body;
use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::StreamBody;
use tollgate::PeerAddr;

use crate::truth::proxies::{Way, spoofs};
use crate::truth::readings::{BINARY, HEADER, METADATA};
use crate::truth::services::{Around, BUFFER, PREFIX, Spec};

/// Headers, line by line.
pub(crate) type Lines = Vec<(&'static str, Vec<u8>)>;

/// A request before it is one.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) is_http2: bool,
    pub(crate) peer: u8,
    pub(crate) method: String,
    /// In the target, or as HTTP/2 has it.
    pub(crate) authority: Option<&'static str>,
    pub(crate) path: String,
    pub(crate) headers: Lines,
    /// If it comes through proxies, which write into the headers.
    pub(crate) way: Option<Way>,
    /// In these pieces.
    pub(crate) body: Vec<Vec<u8>>,
}

const PATHS: [&str; 34] = [
    "*",
    "x:80",
    "/any",
    "/any",
    "/get",
    "/both",
    "/options",
    "/method",
    "/items/7",
    "/items/007",
    "/items/70e-1",
    "/items/0:0::7",
    "/items/abc",
    "/items/%61bc",
    "/files/a/b",
    "/in/x",
    "/in/7",
    "/in/7/",
    "/in///7",
    "/in/x/",
    "/in/a/b",
    "/merged",
    "/annotated",
    "/limited",
    "/named",
    "/open",
    "/nowhere",
    "/",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/x",
    "/grpc.health.v1.Health/../../any",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.health.v1.Health",
    "/shop.v1.Orders",
];
const CALLS: [&str; 8] = [
    "/shop.v1.Orders/Place",
    "/shop.v1.Orders/Place",
    "/shop.v1.Orders/Upload",
    "/shop.v1.Orders/Upload",
    "/shop.v1.Orders/Watch",
    "/shop.v1.Orders/Chat",
    "/shop.v1.Orders/None",
    "/grpc.health.v1.Health/Check",
];
const METHODS: [&str; 17] = [
    "GET", "GET", "GET", "POST", "POST", "POST", "OPTIONS", "OPTIONS", "OPTIONS", "HEAD", "PUT",
    "PATCH", "DELETE", "TRACE", "QUERY", "get", "CONNECT",
];
const CALL_TYPES: [&str; 11] = [
    "application/grpc",
    "application/grpc",
    "application/grpc+proto",
    "application/grpc;x=y",
    "application/GRPC",
    "application/grpcx",
    "application/json",
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "",
];
const FORM: &str = "application/x-www-form-urlencoded";
const FORM_TYPES: [&str; 8] = [
    FORM,
    FORM,
    FORM,
    "application/x-www-form-urlencoded; charset=utf-8",
    "application/x-www-form-urlencodedx",
    "Application/X-WWW-Form-Urlencoded",
    "application/x-www-form-urlencoded,x",
    "",
];
const JSON_TYPES: [&str; 7] = [
    "application/json",
    "application/json",
    "application/json;charset=utf-8",
    "application/x+json",
    "Application/JSON",
    "application/x.y+z+json",
    "text/json",
];
const FORMS: [&str; 20] = [
    "user=7",
    "user=007",
    "user=7.0",
    "user=70e-1",
    "user=67e55044-10b1-426f-9247-bb680e5fe0c8",
    "user=67E55044-10B1-426F-9247-BB680E5FE0C8",
    "user=67e5504410b1426f9247bb680e5fe0c8",
    "user=abc",
    "user=abc",
    "user=zzz",
    "user=%61bc",
    "%75ser=abc",
    "user=zzz&user=abc",
    "user=abc&user=zzz",
    "user=",
    "User=abc",
    "other=1&user=abc",
    "user=a+c",
    "user=a%20c",
    "user",
];
const DOCUMENTS: [&str; 20] = [
    r#"{"user":7.0}"#,
    r#"{"user":70e-1}"#,
    r#"{"user":"007"}"#,
    r#"{"user":9007199254740992}"#,
    r#"{"user":9007199254740993}"#,
    r#"{"user":"abc"}"#,
    r#"{"user":"abc"}"#,
    r#"{"user":"zzz"}"#,
    r#"{"user":"\u0061bc"}"#,
    r#"{"\u0075ser":"abc"}"#,
    r#"{"user":"zzz","user":"abc"}"#,
    r#"{"user":"abc","user":null}"#,
    r#"{"user":null,"user":"abc"}"#,
    r#"{"user":{},"user":"abc"}"#,
    r#"{"user":7}"#,
    r#"{"user":"7"}"#,
    r#"{"user":""}"#,
    r#" { "user" : "abc" , "a" : [ 1 , {} ] } "#,
    r#"[]"#,
    r#"{"User":"abc"}"#,
];
/// Identities in the head of a gzip member, which no handler sees.
const INVENTED: [&str; 2] = ["&user=eve&", "&user=mallory&"];
const QUERIES: [&str; 23] = [
    "k=7",
    "k=%2b07",
    "k=7.0",
    "k=70e-1",
    "k=::7",
    "k=0:0::7",
    "k=0000::0.0.0.7",
    "",
    "",
    "k=abc",
    "k=abc",
    "k=zzz",
    "k=%61bc",
    "%6b=abc",
    "k=zzz&k=abc",
    "k=abc&k=zzz",
    "k=",
    "k=&k=abc",
    "k",
    "k=a+c",
    "k=a%20c",
    "K=abc",
    "user=abc",
];
const COOKIES: [&[&[u8]]; 22] = [
    &[],
    &[],
    &[b"sid=abc"],
    &[b"sid=abc"],
    &[b"sid=zzz"],
    &[b"sid=%61bc"],
    &[b"%73id=abc"],
    &[b"sid=zzz; sid=abc"],
    &[b"sid=abc; sid=zzz"],
    &[b"sid=zzz", b"sid=abc"],
    &[b"sid=\"abc\""],
    &[b"sid= abc "],
    &[b"sid=%20abc"],
    &[b"other=1;sid=abc;more"],
    &[b"sid="],
    &[b"sid=%ff"],
    &[b"sid=%fe"],
    &[b"sid=abc; other=\xff"],
    &[b"sid=zzz; other=\xff"],
    &[b"sid=\xff"],
    &[b"sid=\xff", b"sid=abc"],
    &[b"Sid=abc"],
];
const VALUES: [&[&[u8]]; 12] = [
    &[],
    &[],
    &[b"abc"],
    &[b"abc"],
    &[b"zzz"],
    &[b" abc"],
    &[b"abc\t "],
    &[b"abc", b"zzz"],
    &[b"zzz", b"abc"],
    &[b"", b"abc"],
    &[b""],
    &[b"  "],
];
const BINARIES: [&[&[u8]]; 10] = [
    &[],
    &[b"YWJj"],
    &[b"YWJj"],
    &[b"enp6eg=="],
    &[b"enp6eg"],
    &[b" YWJj "],
    &[b"YWJj,enp6eg"],
    &[b"YWJj", b"enp6eg"],
    &[b"!"],
    &[b""],
];
const CREDENTIALS: [&[&[u8]]; 14] = [
    &[],
    &[],
    &[b"Bearer abc"],
    &[b"Bearer abc"],
    &[b"Bearer zzz"],
    &[b"bearer abc"],
    &[b"BeArEr abc"],
    &[b"Bearer  abc"],
    &[b"Bearer abc "],
    &[b"Bearer zzz", b"Bearer abc"],
    &[b"Bearer"],
    &[b"Basic YWJjOng="],
    &[b"basic  YWJjOnk="],
    &[b"Basic YWJj"],
];
const AUTHORITIES: [Option<&str>; 7] = [
    None,
    None,
    Some("api.example.com"),
    Some("API.example.com:80"),
    Some("api.example.com."),
    Some("other.test"),
    Some("x@api.example.com"),
];
const HOST_LINES: [&[&[u8]]; 12] = [
    &[],
    &[b"api.example.com"],
    &[b"api.example.com"],
    &[b"API.Example.com:8080"],
    &[b"api.example.com."],
    &[b"api.example.com:"],
    &[b"other.test"],
    &[b"other.test", b"api.example.com"],
    &[b"api.example.com", b"other.test"],
    &[b"api.example.com", b"api.example.com"],
    &[b" api.example.com"],
    &[b"\xff"],
];

impl Ask {
    /// A request of this service.
    pub(crate) fn draw(rng: &mut Rng, spec: &Spec) -> Self {
        let is_call = rng.u8(0..3) == 0;
        let mut ask = Self {
            is_http2: is_call || rng.bool(),
            peer: rng.u8(1..4),
            method: one(rng, &METHODS).to_owned(),
            authority: None,
            path: String::new(),
            headers: Vec::new(),
            way: None,
            body: Vec::new(),
        };
        ask.way = spec.proxies.way(rng, ask.peer);
        if is_call {
            ask.draw_call(rng);
            if spec.grpc.is_some_and(|grpc| grpc.is_nested) && rng.u8(0..4) != 0 {
                ask.path.insert_str(0, "/api");
            }
        } else {
            ask.path = one(rng, &PATHS).to_owned();
            ask.draw_body(rng);
        }
        if rng.u8(0..4) == 0 {
            ask.path = mangled(rng, &ask.path);
        }
        if spec.around == Around::Behind && rng.bool() {
            ask.path.insert_str(0, PREFIX);
        }
        let query = one(rng, &QUERIES);
        if !query.is_empty() {
            ask.path = format!("{}?{query}", ask.path);
        }
        if rng.u8(0..4) == 0 || (ask.method == "OPTIONS" && rng.bool()) {
            ask.add("origin", b"https://a.test");
            ask.add("access-control-request-method", b"POST");
        }
        ask.draw_identities(rng);
        if rng.u8(0..12) == 0 {
            ask.become_preflight();
            ask.spoil(rng);
        }
        ask
    }

    /// Keeps of itself what a browser puts into a preflight.
    fn become_preflight(&mut self) {
        "OPTIONS".clone_into(&mut self.method);
        self.body.clear();
        self.headers.retain(|(name, _)| *name == "host");
        self.add("origin", b"https://a.test");
        self.add("access-control-request-method", b"POST");
    }

    /// Makes it one thing that a browser does not do, or none.
    fn spoil(&mut self, rng: &mut Rng) {
        let (name, value) = rng.choice(&self.headers).cloned().unwrap();
        match rng.u8(0..8) {
            0 => "QUERY".clone_into(&mut self.method),
            1 => self.headers.retain(|(other, _)| *other != name),
            2 => self.headers.push((name, value)),
            3 => self.add("te", b"trailers"),
            4 => self.add("authorization", b"Bearer abc"),
            _ => {}
        }
    }

    fn draw_call(&mut self, rng: &mut Rng) {
        self.path = one(rng, &CALLS).to_owned();
        if rng.bool() {
            "POST".clone_into(&mut self.method);
        }
        self.add_unless_empty("content-type", one(rng, &CALL_TYPES));
        if rng.bool() {
            self.add("te", b"trailers");
        }
        let message: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
        let count = rng.usize(0..4);
        if rng.bool() {
            self.body = vec![message.to_vec(); count];
        } else if count > 0 {
            self.body = vec![message.repeat(count)];
        }
    }

    fn draw_body(&mut self, rng: &mut Rng) {
        let mut body;
        match rng.u8(0..4) {
            0 => {
                self.add_unless_empty("content-type", one(rng, &FORM_TYPES));
                body = one(rng, &FORMS).to_owned();
                if rng.u8(0..6) == 0 {
                    body = format!("pad={}&{body}", "x".repeat(BUFFER));
                }
            }
            1 => {
                self.add_unless_empty("content-type", one(rng, &JSON_TYPES));
                body = one(rng, &DOCUMENTS).to_owned();
                if rng.u8(0..6) == 0 {
                    body = format!("{}{body}", " ".repeat(BUFFER));
                }
            }
            2 => {
                self.add_unless_empty("content-type", one(rng, &CALL_TYPES));
                return;
            }
            _ => return,
        }
        if rng.u8(0..10) == 0 {
            let at = rng.usize(0..=self.headers.len());
            let other = if rng.bool() { "text/plain" } else { FORM };
            self.headers
                .insert(at, ("content-type", other.as_bytes().to_vec()));
        }
        let mut body = body.into_bytes();
        if rng.u8(0..4) == 0 {
            let codings = ["gzip", "gzip", "gzip", "GZIP", "identity, gzip", "identity"];
            let coding = one(rng, &codings);
            self.add("content-encoding", coding.as_bytes());
            if coding != "identity" {
                body = gzip(&body, one(rng, &INVENTED).as_bytes());
            }
        }
        if rng.bool() {
            self.body = vec![body];
        } else {
            self.body = body.chunks(100).map(<[u8]>::to_vec).collect();
        }
    }

    fn draw_identities(&mut self, rng: &mut Rng) {
        self.authority = one(rng, &AUTHORITIES);
        self.add_all("host", one(rng, &HOST_LINES));
        self.add_all(HEADER, one(rng, &VALUES));
        self.add_all("cookie", one(rng, &COOKIES));
        self.add_all(METADATA, one(rng, &VALUES));
        if rng.u8(0..3) == 0 {
            self.add_all(BINARY, one(rng, &BINARIES));
        }
        self.add_all("authorization", one(rng, &CREDENTIALS));
        for (name, value) in spoofs(rng) {
            self.add(name, value);
        }
    }

    fn add(&mut self, name: &'static str, value: &[u8]) {
        self.headers.push((name, value.to_vec()));
    }

    fn add_unless_empty(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.add(name, value.as_bytes());
        }
    }

    fn add_all(&mut self, name: &'static str, values: &[&[u8]]) {
        let lines = values.iter().map(|value| (name, value.to_vec()));
        self.headers.extend(lines);
    }

    /// The headers as the service gets them.
    pub(crate) fn lines(&self) -> Lines {
        let mut lines = self.headers.clone();
        if let Some(way) = &self.way {
            way.write(&mut lines);
        }
        lines
    }

    /// The request as a server without a socket gets it, or nothing if it can be none.
    pub(crate) fn request(&self) -> Option<Request<Body>> {
        let mut request = Request::new(self.body());
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).ok()?;
        *request.version_mut() = if self.is_http2 {
            Version::HTTP_2
        } else {
            Version::HTTP_11
        };
        *request.uri_mut() = self.uri()?;
        for (name, value) in self.lines() {
            let name: HeaderName = name.parse().ok()?;
            let value = HeaderValue::from_bytes(&value).ok()?;
            request.headers_mut().append(name, value);
        }
        let peer = SocketAddr::from(([192, 0, 2, self.peer], 4711));
        request.extensions_mut().insert(PeerAddr(peer));
        Some(request)
    }

    fn uri(&self) -> Option<Uri> {
        match self.authority {
            None => self.path.parse().ok(),
            Some(authority) => format!("http://{authority}{}", self.path).parse().ok(),
        }
    }

    fn body(&self) -> Body {
        if self.body.is_empty() {
            return Body::empty();
        }
        if let [only] = &*self.body {
            return Body::from(only.clone());
        }
        let pieces = self.body.clone().into_iter().map(|piece| {
            let frame = http_body::Frame::data(Bytes::from(piece));
            Ok::<_, std::convert::Infallible>(frame)
        });
        Body::new(StreamBody::new(tokio_stream::iter(pieces)))
    }
}

/// A gzip member of this content, uncompressed, with an extra field in its head.
fn gzip(content: &[u8], extra: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap();
    let mut member = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff];
    member.extend(length(extra).to_le_bytes());
    member.extend(extra);
    member.push(1);
    member.extend(length(content).to_le_bytes());
    member.extend((!length(content)).to_le_bytes());
    member.extend(content);
    let crc = content.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    member.extend((!crc).to_le_bytes());
    member.extend(u32::from(length(content)).to_le_bytes());
    member
}

/// The path in words of a caller that looks for a way around.
fn mangled(rng: &mut Rng, path: &str) -> String {
    let at = rng.usize(1..=path.len().max(1)).min(path.len());
    let (before, behind) = path.split_at(at);
    match rng.u8(0..9) {
        0 => format!("{path}/"),
        1 => path.replacen('/', "//", 1),
        2 => path.replace('/', "//"),
        3 => path.to_uppercase(),
        4 => match behind.chars().next() {
            Some(c) if c.is_ascii_alphanumeric() => {
                format!("{before}%{:02x}{}", u32::from(c), &behind[1..])
            }
            _ => format!("{path}%2f"),
        },
        5 => format!("/.{path}"),
        6 => format!("/open/..{path}"),
        7 => format!("{path};a=b"),
        _ => format!("{path}%00"),
    }
}

pub(crate) fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    *rng.choice(of).unwrap()
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.is_http2 { "HTTP/2" } else { "HTTP/1.1" };
        let authority = self.authority.unwrap_or_default();
        write!(f, "{} {authority}{} {version}", self.method, self.path)?;
        write!(f, " from 192.0.2.{}", self.peer)?;
        for (name, value) in self.lines() {
            write!(f, "\n    {name}:{}", value.escape_ascii())?;
        }
        for piece in &self.body {
            write!(f, "\n    {:?}", piece.escape_ascii().to_string())?;
        }
        Ok(())
    }
}
