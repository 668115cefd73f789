//! A client of HTTP that sees each byte of an answer.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The values of a field, in their order.
    pub(crate) fn field(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let of_name = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| value).collect()
    }
}

/// Sends a request from this address, with these fields, each with its end of line.
pub(crate) async fn send_from(from: Ipv4Addr, to: SocketAddr, line: &str, fields: &str) -> Answer {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let connection = socket.connect(to).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: shop\r\n{fields}connection: close\r\n\r\n");
    answer_to(connection, &request).await
}

/// Sends a body of JSON to this path, with these fields.
pub(crate) async fn post(to: SocketAddr, path: &str, fields: &str, body: &str) -> Answer {
    let connection = TcpStream::connect(to).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    answer_to(connection, &request).await
}

/// Sends a request with this value of `x-api-key`, which need not be UTF-8.
pub(crate) async fn send_key(to: SocketAddr, line: &str, key: &[u8]) -> Answer {
    let connection = TcpStream::connect(to).await.unwrap();
    let head = format!("{line} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nx-api-key: ");
    answer_to(connection, &[head.as_bytes(), key, b"\r\n\r\n"].concat()).await
}

async fn answer_to(mut connection: TcpStream, request: impl AsRef<[u8]>) -> Answer {
    // A server may answer before it has read all, and close.
    let _refused = connection.write_all(request.as_ref()).await;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub(crate) async fn send(to: SocketAddr, line: &str, fields: &str) -> Answer {
    send_from(Ipv4Addr::LOCALHOST, to, line, fields).await
}
