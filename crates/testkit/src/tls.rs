//! A server behind TLS, with its certificates.

use std::fs;

use crate::Standalone;
use crate::certificates::{Authority, Identity, NAMES};
use crate::standalone::{folder, free_port, until};

/// A server that speaks TLS. Its certificate is for `localhost` and 127.0.0.1, of an authority of its own.
#[derive(Debug)]
pub struct Tls {
    /// The server, whose socket and other port still answer in the clear.
    pub server: Standalone,
    port: u16,
    authority: Authority,
    client: Identity,
}

impl Tls {
    /// Starts a server that takes every client that trusts it.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or one without TLS.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("no", &Server::sound())
    }

    /// Starts a cluster of one node.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or one without TLS.
    #[must_use]
    pub fn start_cluster() -> Self {
        let server = Server {
            // Without the second option, nodes name ports that do not speak TLS.
            options: &["--cluster-enabled", "yes", "--tls-cluster", "yes"],
            ..Server::sound()
        };
        let cluster = Self::start_with("no", &server);
        let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
        let words = ["CLUSTER", "ADDSLOTS"].into_iter();
        let words: Vec<_> = words.chain(slots.iter().map(String::as_str)).collect();
        let _added = cluster.server.command(&words);
        until("the cluster has all its slots", || {
            let info = cluster.server.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok")
        });
        cluster
    }

    /// Starts a server whose certificate is for another host.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or one without TLS.
    #[must_use]
    pub fn start_for(host: &str) -> Self {
        let server = Server {
            names: vec![host.to_owned()],
            ..Server::sound()
        };
        Self::start_with("no", &server)
    }

    /// Starts a server with an expired certificate.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or one without TLS.
    #[must_use]
    pub fn start_expired() -> Self {
        let server = Server {
            until_year: Some(2021),
            ..Server::sound()
        };
        Self::start_with("no", &server)
    }

    /// Starts a server that takes only clients with a certificate of its authority.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or one without TLS.
    #[must_use]
    pub fn start_mutual() -> Self {
        Self::start_with("yes", &Server::sound())
    }

    /// `rediss://127.0.0.1:PORT/`
    #[must_use]
    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    /// A Sentinel that watches the server, and the URL at which it speaks TLS. Both use the server's certificates.
    ///
    /// # Panics
    ///
    /// If there is no server to start, or one without TLS.
    #[must_use]
    pub fn sentinel(&self, master_name: &str) -> (Standalone, String) {
        let folder = folder();
        let config = folder.path().join("sentinel.conf");
        let content = format!("sentinel monitor {master_name} 127.0.0.1 {} 1\n", self.port);
        fs::write(&config, content).expect("a file in a folder of ours");
        let paper = |name: &str| {
            let path = self.server.folder().join(name);
            path.to_string_lossy().into_owned()
        };
        let port = free_port();
        let options = [
            &config.to_string_lossy(),
            "--sentinel",
            "--tls-replication",
            "yes",
            "--tls-port",
            &port.to_string(),
            "--tls-ca-cert-file",
            &paper("authority.pem"),
            "--tls-cert-file",
            &paper("server.pem"),
            "--tls-key-file",
            &paper("server.key"),
            "--tls-auth-clients",
            "no",
        ];
        let sentinel = Standalone::start_in(folder, &options);
        (sentinel, format!("rediss://127.0.0.1:{port}/"))
    }

    /// The certificate of the authority, as PEM.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.authority.pem().as_bytes()
    }

    /// A client's certificate and key, as PEM.
    #[must_use]
    pub fn client(&self) -> (&[u8], &[u8]) {
        (
            self.client.certificate.as_bytes(),
            self.client.key.as_bytes(),
        )
    }

    fn start_with(clients: &str, server: &Server) -> Self {
        let authority = Authority::new();
        let client = authority.client();
        let more = server.options;
        let names: Vec<_> = server.names.iter().map(String::as_str).collect();
        let server = authority.server_until(&names, server.until_year);
        let folder = folder();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("a file in a folder of ours");
            path.to_string_lossy().into_owned()
        };
        let port = free_port();
        let options = [
            "--tls-port",
            &port.to_string(),
            "--tls-ca-cert-file",
            &file("authority.pem", authority.pem()),
            "--tls-cert-file",
            &file("server.pem", &server.certificate),
            "--tls-key-file",
            &file("server.key", &server.key),
            "--tls-auth-clients",
            clients,
        ];
        Self {
            server: Standalone::start_in(folder, &[&options[..], more].concat()),
            port,
            authority,
            client,
        }
    }
}

/// The content of a server's certificate, and the server's further options.
struct Server {
    names: Vec<String>,
    /// The year from which it is expired, if it ever expires.
    until_year: Option<i32>,
    /// The server's further options.
    options: &'static [&'static str],
}

impl Server {
    fn sound() -> Self {
        Self {
            names: NAMES.map(str::to_owned).to_vec(),
            until_year: None,
            options: &[],
        }
    }
}
