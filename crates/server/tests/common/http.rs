//! A client of HTTP that sees each byte of an answer.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The values of a field, in their order.
    pub fn field(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let of_name = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| value).collect()
    }
}

/// Sends a request from this address, with these fields, each with its end of line.
pub async fn send_from(from: Ipv4Addr, to: SocketAddr, line: &str, fields: &str) -> Answer {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let mut connection = socket.connect(to).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: shop\r\n{fields}connection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub async fn send(to: SocketAddr, line: &str, fields: &str) -> Answer {
    send_from(Ipv4Addr::LOCALHOST, to, line, fields).await
}
