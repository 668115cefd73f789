//! Builds the parts from the settings, or names the invalid setting.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::{RedisBackendBuilder, Topology};
use crate::backend::RedisBackend;
use crate::cluster::Cluster;
use crate::dispatch::Dispatch;
use crate::error::ConnectError;
use crate::examine::{self, Examination};
use crate::fleet::Fleet;
use crate::heartbeat::Heartbeat;
use crate::hello::Kind;
use crate::holder::Holder;
use crate::known::KnownDenials;
use crate::link::{Link, Origin};
use crate::name::is_prefix;
use crate::sentinel::Sentinels;
use crate::server;
use crate::slot::SLOTS;
use crate::sync::Handle;
use crate::tls::Tls;

/// The leases that an operator may set. Heartbeats can keep the shortest lease, and the longest brings the places of a dead
/// process back within an hour.
const HELD_LEASES: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3_600);

/// The servers of a topology.
enum Origins {
    One(Origin),
    /// A node as the template of all, and those that are asked for the others.
    Seeds(Link, Vec<redis::ConnectionInfo>),
}

impl Topology {
    /// Its place, for logs.
    fn place(&self, database: Option<i64>) -> String {
        let all = |urls: &[String]| {
            let shown: Vec<_> = urls.iter().map(|url| server::shown(url)).collect();
            shown.join(", ")
        };
        match self {
            Self::Single(url) => {
                let database = database.unwrap_or_else(|| server::database(url));
                format!("{}, database {database}", server::shown(url))
            }
            Self::Sentinel(master, urls) => {
                let database = database.unwrap_or_default();
                let sentinels = all(urls);
                format!("master {master:?}, database {database}, of the Sentinels at {sentinels}")
            }
            Self::Cluster(urls) => format!("the cluster of {}", all(urls)),
        }
    }

    fn urls(&self) -> &[String] {
        match self {
            Self::Single(url) => std::slice::from_ref(url),
            Self::Sentinel(_, urls) | Self::Cluster(urls) => urls,
        }
    }

    /// The hosts that must not be shown.
    fn hidden(&self) -> Arc<[String]> {
        let words = self.urls().iter().filter_map(|url| server::only_word(url));
        words.map(str::to_owned).collect()
    }
}

impl RedisBackendBuilder {
    pub(super) fn build(self) -> Result<RedisBackend, ConnectError> {
        self.check()?;
        let Some(runtime) = Handle::current() else {
            return Err(ConnectError::setting(
                "runtime",
                "is missing: call this within a Tokio runtime",
            ));
        };
        let origins = self.origins()?;
        let mut names = self.names.clone();
        let place = self.topology.place(self.credentials.database);
        let known = KnownDenials::new(self.knows_denials, self.limits.deadline);
        let of_fleet = Arc::clone(&known);
        let fleet = match origins {
            Origins::One(origin) => self.one(origin, runtime, of_fleet)?,
            Origins::Seeds(link, seeds) => {
                names.partitions = Some(self.partitions);
                let holder = Holder::new(self.held_lease);
                let cluster = Cluster::new(seeds, link, runtime, self.limits, holder, of_fleet);
                Fleet::Cluster(cluster)
            }
        };
        fleet.spawn(Heartbeat::of(&fleet).run());
        Ok(RedisBackend::start(fleet, known, names, place))
    }

    /// Looks at the servers, and decides nothing.
    pub(super) async fn look(self) -> Result<Examination, ConnectError> {
        self.check()?;
        let looked = match self.origins()? {
            Origins::One(origin) => examine::one(self.link(origin, Kind::Single)?).await,
            Origins::Seeds(link, seeds) => examine::cluster(link, seeds).await,
        };
        looked.map_err(ConnectError::failed)
    }

    /// The servers, as the URLs name them.
    fn origins(&self) -> Result<Origins, ConnectError> {
        match &self.topology {
            Topology::Single(url) => {
                let server = server::parse(url, &self.papers)?;
                let server = server::with_credentials(server, &self.credentials);
                Ok(Origins::One(Origin::Server(Arc::new(server))))
            }
            Topology::Sentinel(master_name, urls) => {
                let sentinels = self.parse_all(urls)?;
                let share = u32::try_from(sentinels.len() + 1).unwrap_or(u32::MAX);
                let sentinels = Sentinels {
                    master_name: master_name.clone(),
                    sentinels,
                    credentials: self.credentials.clone(),
                    patience: self.connect_deadline / share,
                    freshest: AtomicUsize::new(0),
                };
                Ok(Origins::One(Origin::Master(Arc::new(sentinels))))
            }
            Topology::Cluster(urls) => {
                let seeds = (self.parse_all(urls)?.into_iter())
                    .map(|seed| server::with_credentials(seed, &self.credentials))
                    .collect::<Vec<_>>();
                if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
                    return Err(ConnectError::setting("database", "must be 0 in a cluster"));
                }
                let Some(template) = seeds.first().cloned() else {
                    return Err(ConnectError::setting("urls", "must be at least one"));
                };
                let link = self.link(Origin::Server(Arc::new(template)), Kind::Node)?;
                Ok(Origins::Seeds(link, seeds))
            }
        }
    }

    fn check(&self) -> Result<(), ConnectError> {
        let setting = |name, problem: &str| Err(ConnectError::setting(name, problem));
        if !is_prefix(&self.names.prefix) {
            return setting(
                "prefix",
                "must be letters, digits, `-`, `.` and `_`, at least one",
            );
        }
        if !self.client_name.chars().all(|c| c.is_ascii_graphic()) {
            return setting("client_name", "must be ASCII without spaces");
        }
        if self.limits.deadline.is_zero() {
            return setting("deadline", "of 0 leaves no time for an answer");
        }
        if self.connect_deadline.is_zero() {
            return setting("connect_deadline", "of 0 leaves no time for an answer");
        }
        if self.limits.connections == 0 || self.limits.waiting == 0 {
            return setting("connections and max_waiting", "must be at least 1");
        }
        if !HELD_LEASES.contains(&self.held_lease) {
            return setting("held_lease", "must be 100 ms to an hour");
        }
        if !(1..=SLOTS).contains(&self.partitions) {
            return setting(
                "partitions",
                "must be 1 to 16384, as many as there are slots",
            );
        }
        Ok(())
    }

    fn parse_all(&self, urls: &[String]) -> Result<Vec<redis::ConnectionInfo>, ConnectError> {
        if urls.is_empty() {
            return Err(ConnectError::setting("urls", "must be at least one"));
        }
        urls.iter()
            .map(|url| server::parse(url, &self.papers))
            .collect()
    }

    fn one(
        &self,
        origin: Origin,
        runtime: Handle,
        known: Arc<KnownDenials>,
    ) -> Result<Fleet, ConnectError> {
        let link = self.link(origin, Kind::Single)?;
        Ok(Fleet::one(Dispatch::new(
            link,
            runtime,
            self.limits,
            None,
            Arc::default(),
            Holder::new(self.held_lease),
            known,
        )))
    }

    fn link(&self, origin: Origin, kind: Kind) -> Result<Link, ConnectError> {
        let tls = if self
            .topology
            .urls()
            .iter()
            .any(|url| server::wants_tls(url))
        {
            Tls::of(&self.papers)?
        } else {
            Tls::default()
        };
        Ok(Link {
            origin,
            kind,
            hidden: self.topology.hidden(),
            client_name: self.client_name.as_str().into(),
            prefix: self.names.prefix.as_str().into(),
            script: Arc::clone(&self.script),
            composed: Arc::clone(&self.composed),
            tls,
            deadline: self.connect_deadline,
        })
    }
}
