//! A client of HTTP that sends bytes as they are, and sees each byte of an answer.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

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

/// A request, byte for byte.
#[derive(Clone)]
pub(crate) struct Ask {
    from: Ipv4Addr,
    line: Vec<u8>,
    host: String,
    fields: Vec<u8>,
    body: Vec<u8>,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..200).unwrap_or(bytes)).into_owned();
        write!(
            f,
            "{} {:?} {:?} {:?}",
            text(&self.line),
            self.host,
            text(&self.fields),
            text(&self.body)
        )
    }
}

impl Ask {
    /// A request with this method and target.
    pub(crate) fn new(line: impl AsRef<[u8]>) -> Self {
        Self {
            from: Ipv4Addr::LOCALHOST,
            line: line.as_ref().to_vec(),
            host: "shop".to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn from(self, last: u8) -> Self {
        let from = Ipv4Addr::new(127, 0, 0, last);
        Self { from, ..self }
    }

    /// For this host.
    pub(crate) fn host(self, host: &str) -> Self {
        let host = host.to_owned();
        Self { host, ..self }
    }

    pub(crate) fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b": ");
        self.fields.extend_from_slice(value.as_ref());
        self.fields.extend_from_slice(b"\r\n");
        self
    }

    /// With this body, whose length is stated.
    pub(crate) fn body(self, kind: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let asked = self.field("content-type", kind);
        let asked = asked.field("content-length", body.len().to_string());
        Self { body, ..asked }
    }

    /// With this body in pieces, whose length is not stated.
    pub(crate) fn chunked(self, kind: &str, pieces: &[&str]) -> Self {
        let asked = self.field("content-type", kind);
        let asked = asked.field("transfer-encoding", "chunked");
        let mut body = Vec::new();
        for piece in pieces {
            body.extend_from_slice(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes());
        }
        body.extend_from_slice(b"0\r\n\r\n");
        Self { body, ..asked }
    }

    /// Sends it over a connection of its own. `None` if the server closes the connection without an answer.
    pub(crate) async fn try_send(&self, to: SocketAddr) -> Option<Answer> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((self.from, 0))).unwrap();
        let mut connection = socket.connect(to).await.unwrap();
        let mut request = self.line.clone();
        let head = format!(" HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.host);
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(&self.fields);
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(&self.body);
        // A server that refuses a request need not read all of it.
        let _sent = connection.write_all(&request).await;
        let mut answer = Vec::new();
        let _end = connection.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some(Answer {
            status: head.get(9..12)?.parse().ok()?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    pub(crate) async fn send(&self, to: SocketAddr) -> Answer {
        let answer = self.try_send(to).await;
        answer.unwrap_or_else(|| panic!("there is no answer to {self:?}"))
    }
}

/// The status of a request without anything but a method and a target.
pub(crate) async fn status(to: SocketAddr, line: &str) -> u16 {
    Ask::new(line).send(to).await.status
}
