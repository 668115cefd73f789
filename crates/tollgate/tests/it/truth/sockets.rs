//! The property over a socket: the limiter and the handlers see the requests that hyper parses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::ServiceExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::truth::book::Book;
use crate::truth::campaign::{Campaign, Case, Report, runtime};
use crate::truth::judge::{Judge, Wrong};
use crate::truth::requests::Ask;
use crate::truth::services;

/// Fewer than without sockets, for as many services.
const REQUESTS_EACH: usize = 50;
/// Longer than any answer takes, however busy the machine is: what takes as long is not judged by what it did meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks so many requests of the campaign's services, each on a connection of its own.
pub(crate) fn run(campaign: &Campaign, requests: usize) -> Report {
    let runtime = runtime();
    let mut report = Report::default();
    let mut found = Vec::new();
    for number in 0.. {
        if report.requests >= requests || !found.is_empty() {
            break;
        }
        let mut case = campaign.case(number);
        case.asks.truncate(REQUESTS_EACH);
        let wrongs = runtime.block_on(ask(&case, &mut report));
        found.extend(wrongs.into_iter().map(|wrong| (wrong, case.clone())));
    }
    campaign.tell(found.into_iter());
    report
}

async fn ask(case: &Case, report: &mut Report) -> Vec<Wrong> {
    let book = Arc::<Book>::default();
    let Some(service) = services::build(&case.spec, &case.rules, &book) else {
        return Vec::new();
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, service).await });

    report.services += 1;
    let intercepting = services::intercepts(&case.spec, &case.rules);
    let mut judge = Judge::new(&case.rules, intercepting);
    let mut wrongs = Vec::new();
    for (number, ask) in case.asks.iter().enumerate() {
        let bytes = if ask.is_http2 {
            over_http2(ask)
        } else {
            over_http1(ask)
        };
        let answer = timeout(PATIENCE, exchange(address, &bytes, ask.is_http2));
        let answer = answer.await.unwrap();
        let page = book.read();
        report.requests += 1;
        report.runs += page.runs.len();
        report.charges += page.taken.len();
        // HTTP/2's headers would have to be decoded for it.
        report.refused += usize::from(answer.starts_with(b"HTTP/1.1 429"));
        wrongs.extend(judge.hear(number, &page));
    }
    server.abort();
    wrongs
}

/// Sends these bytes, and reads until the answer is there.
async fn exchange(address: SocketAddr, bytes: &[u8], is_http2: bool) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // A server that refuses what it reads may close before it has read everything.
    drop(socket.write_all(bytes).await);
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if is_http2 && has_ended(&answer) {
            return answer;
        }
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => return answer,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
        }
    }
}

/// The request in HTTP/1.1, with whatever the caller says in whatever way.
fn over_http1(ask: &Ask) -> Vec<u8> {
    let target = match ask.authority {
        None => ask.path.clone(),
        Some(authority) => format!("http://{authority}{}", ask.path),
    };
    let mut bytes = format!("{} {target} HTTP/1.1\r\n", ask.method).into_bytes();
    for (name, value) in ask.lines() {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b':');
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"connection: close\r\n");
    if ask.body.is_empty() {
        bytes.extend_from_slice(b"\r\n");
        return bytes;
    }
    bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    for piece in ask.body.iter().filter(|piece| !piece.is_empty()) {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The request as the first stream of a connection of HTTP/2's, with headers that no client would send as they are.
fn over_http2(ask: &Ask) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    let mut head = Vec::new();
    field(&mut head, b":method", ask.method.as_bytes());
    field(&mut head, b":scheme", b"http");
    if let Some(authority) = ask.authority {
        field(&mut head, b":authority", authority.as_bytes());
    }
    field(&mut head, b":path", ask.path.as_bytes());
    for (name, value) in ask.lines() {
        field(&mut head, name.as_bytes(), &value);
    }
    let ends = |is_last: bool| if is_last { END_STREAM } else { 0 };
    let flags = END_HEADERS | ends(ask.body.is_empty());
    frame(&mut bytes, HEADERS, flags, 1, &head);
    for (number, piece) in ask.body.iter().enumerate() {
        let is_last = number + 1 == ask.body.len();
        frame(&mut bytes, DATA, ends(is_last), 1, piece);
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    bytes.extend_from_slice(payload);
}

/// A header as RFC 7541 has one that is in no table, and not to be put into one.
fn field(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.push(0);
    text(head, name);
    text(head, value);
}

/// A text without Huffman's code, whose length may need more than seven bits.
fn text(head: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text.len();
    if rest < 127 {
        head.push(u8::try_from(rest).unwrap());
    } else {
        head.push(127);
        rest -= 127;
        while rest >= 128 {
            head.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        head.push(u8::try_from(rest).unwrap());
    }
    head.extend_from_slice(text);
}

/// True if the stream or the connection has ended.
fn has_ended(mut answer: &[u8]) -> bool {
    while let [a, b, c, kind, flags, _, _, _, _, rest @ ..] = answer {
        let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap();
        if rest.len() < length {
            return false;
        }
        let ends = matches!(*kind, DATA | HEADERS) && flags & END_STREAM != 0;
        if ends || matches!(*kind, RST_STREAM | GOAWAY) {
            return true;
        }
        answer = &rest[length..];
    }
    false
}
