//! A master, its replica, and the Sentinels that watch them.

use std::fs;

use crate::standalone::{folder, until};
use crate::{Network, Standalone};

/// The name of the master that the Sentinels watch.
const MASTER: &str = "budgets";

/// The time after which a silent master counts as gone. As short as a busy machine allows.
const DOWN_AFTER: &str = "500";

/// Two servers or more, one master and its replicas, and three Sentinels.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Standalone>,
    sentinels: [Standalone; 3],
    /// The networks before the servers, if there are any: all connections to a server come through its network.
    networks: Vec<Network>,
}

impl Sentinels {
    /// Starts all five, and waits until they know each other.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::start_behind(&[0; 2], Vec::new())
    }

    /// Starts a master with this many replicas.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start_with_replicas(replicas: usize) -> Self {
        Self::start_behind(&vec![0; 1 + replicas], Vec::new())
    }

    /// Starts two servers with a network before each, between it and clients, Sentinels and the other server. The clocks are
    /// this many seconds ahead.
    ///
    /// # Panics
    ///
    /// If there is no server to start. The message says what to install.
    #[must_use]
    pub fn start_behind_networks(ahead_s: [i64; 2]) -> Self {
        let networks = (0..2).map(|_| Network::before_nobody());
        Self::start_behind(&ahead_s, networks.collect())
    }

    fn start_behind(ahead_s: &[i64], networks: Vec<Network>) -> Self {
        let server = |number: usize, options: &[&str]| {
            let network: Option<&Network> = networks.get(number);
            let announced = network.map(|network| network.port().to_string());
            let mut options = options.to_vec();
            if let Some(port) = &announced {
                options.extend(["--replica-announce-ip", "127.0.0.1"]);
                options.extend(["--replica-announce-port", port]);
            }
            let server = Standalone::start_ahead(ahead_s[number], &options);
            if let Some(network) = network {
                network.lead_to(server.port());
            }
            server
        };
        let master = server(0, &[]);
        let port = networks.first().map_or(master.port(), Network::port);
        let port = port.to_string();
        let mut servers = vec![master];
        for number in 1..ahead_s.len() {
            let replica = server(number, &["--replicaof", "127.0.0.1", &port]);
            until("the replica follows", || follows(&replica));
            servers.push(replica);
        }
        let sentinels = [(); 3].map(|()| sentinel(&port));
        let all = Self {
            servers,
            sentinels,
            networks,
        };
        all.wait_until_complete();
        all
    }

    /// The name of the master.
    #[must_use]
    pub fn master_name(&self) -> &'static str {
        MASTER
    }

    /// `redis://127.0.0.1:PORT/` of each Sentinel.
    #[must_use]
    pub fn urls(&self) -> [String; 3] {
        self.sentinels.each_ref().map(Standalone::url)
    }

    /// The Sentinels themselves.
    #[must_use]
    pub fn sentinels(&self) -> &[Standalone] {
        &self.sentinels
    }

    /// All servers, masters and replicas.
    #[must_use]
    pub fn servers(&self) -> &[Standalone] {
        &self.servers
    }

    /// Kills the master as a crash would. The Sentinels then promote the replica.
    ///
    /// # Panics
    ///
    /// If no server is a master.
    pub fn kill_master(&mut self) {
        let master = self.servers.iter_mut().find(|server| is_master(server));
        master.expect("a master").kill();
    }

    /// Makes the Sentinels promote a replica on purpose, while the old master lives.
    ///
    /// # Panics
    ///
    /// If they do not begin within the time that a server may take to start.
    pub fn plan_failover(&self) {
        until("a failover begins", || {
            let words = ["SENTINEL", "FAILOVER", MASTER];
            self.sentinels[0].command(&words).starts_with("+OK")
        });
    }

    /// Gives the Sentinels ten seconds for each step of a failover. Otherwise they give up a failover of which a step takes two
    /// seconds on a busy machine.
    ///
    /// # Panics
    ///
    /// If a Sentinel refuses.
    pub fn be_patient(&self) {
        for sentinel in &self.sentinels {
            let words = ["SENTINEL", "SET", MASTER, "failover-timeout", "10000"];
            let answer = sentinel.command(&words);
            assert!(answer.starts_with("+OK"), "{answer}");
        }
    }

    /// Plans the failover from this server again if the Sentinels have given it up: they repeat none that was planned, and one word
    /// to a replica that gets lost is enough. Does nothing while a failover is under way, nor after it.
    pub fn insist_on_failover(&self, old: usize) {
        let asked = &self.sentinels[0];
        let named = asked.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
        if named.contains(&format!("\r\n{}\r\n", self.port(old))) {
            let _in_progress = asked.command(&["SENTINEL", "FAILOVER", MASTER]);
        }
    }

    /// Stops the master's process. The Sentinels then promote the replica.
    ///
    /// # Panics
    ///
    /// If no server is a master.
    pub fn stall_master(&self) {
        let master = self.servers.iter().find(|server| is_master(server));
        master.expect("a master").stall();
    }

    /// The networks before the servers, in their order, if there are any.
    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Says whether all Sentinels name one master, and it lives.
    #[must_use]
    pub fn agree(&self) -> bool {
        self.named()
            .is_some_and(|number| is_master(&self.servers[number]))
    }

    /// The number of the server that all Sentinels name.
    #[must_use]
    pub fn named(&self) -> Option<usize> {
        let is_named = |number: &usize| {
            let port = format!("\r\n{}\r\n", self.port(*number));
            let mut sentinels = self.sentinels.iter();
            sentinels.all(|sentinel| {
                let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
                sentinel.command(&words).contains(&port)
            })
        };
        (0..self.servers.len()).find(is_named)
    }

    /// Starts the killed servers again, as replicas of the present master. The Sentinels would make them replicas by themselves
    /// after some ten seconds. On a busy machine the Sentinels may make such a server the master meanwhile: then the fleet is
    /// whole all the same.
    ///
    /// # Panics
    ///
    /// If there is no master, or it cannot be followed.
    pub fn revive(&mut self) {
        let master = self.servers.iter().position(is_master);
        let master = master.expect("a master");
        for number in 0..self.servers.len() {
            if self.servers[number].pid().is_none() {
                self.servers[number].restart();
                self.follow(number, master);
                until("the replica follows", || self.has_place(number));
            }
        }
    }

    /// True of a server that follows a master, and of the master of a fleet that is whole.
    #[must_use]
    pub fn has_place(&self, number: usize) -> bool {
        follows(&self.servers[number]) || self.is_whole()
    }

    /// Tells one server to be the other's replica.
    pub fn follow(&self, replica: usize, master: usize) {
        let port = self.port(master).to_string();
        // A server that changes its role closes its connections, this one too.
        let _following = self.servers[replica].try_command(&["REPLICAOF", "127.0.0.1", &port]);
    }

    /// Says whether one server is the master that all Sentinels name, and every other server its up-to-date replica.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.named().is_some_and(|master| {
            let mut others = (0..self.servers.len()).filter(|&number| number != master);
            is_master(&self.servers[master]) && others.all(|other| follows(&self.servers[other]))
        })
    }

    /// The address of a server.
    fn port(&self, number: usize) -> u16 {
        let network = self.networks.get(number);
        network.map_or(self.servers[number].port(), Network::port)
    }

    /// Runs a command on the present master.
    ///
    /// # Panics
    ///
    /// If there is none within the time that a server may take to start.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> String {
        let master = || self.servers.iter().find(|server| is_master(server));
        until("a node is the master", || master().is_some());
        master().expect("just seen").command(words)
    }

    fn wait_until_complete(&self) {
        for sentinel in &self.sentinels {
            until("the Sentinels know each other and the replica", || {
                let known = sentinel.command(&["INFO", "sentinel"]);
                let replicas = self.servers.len() - 1;
                known.contains(&format!("slaves={replicas},sentinels=3"))
            });
        }
    }
}

fn follows(replica: &Standalone) -> bool {
    let said = replica.try_command(&["INFO", "replication"]);
    said.is_ok_and(|said| said.contains("master_link_status:up"))
}

fn is_master(server: &Standalone) -> bool {
    let role = || server.try_command(&["ROLE"]);
    server.pid().is_some() && role().is_ok_and(|role| role.contains("master"))
}

fn sentinel(port: &str) -> Standalone {
    let folder = folder();
    // A Sentinel stores its knowledge, so it needs a file.
    let file = folder.path().join("sentinel.conf");
    let content = format!(
        "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
         sentinel down-after-milliseconds {MASTER} {DOWN_AFTER}\n\
         sentinel failover-timeout {MASTER} 2000\n"
    );
    fs::write(&file, content).expect("a file in a folder of ours");
    Standalone::start_in(folder, &[&file.to_string_lossy(), "--sentinel"])
}
