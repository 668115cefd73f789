//! The fleet's Redis, as the arguments name it, reached by the library's own backend.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tollgate::{RedisBackend, RedisBackendBuilder};

use crate::failure::Failure;

/// The variable with the password. Arguments stand in the list of processes, and variables do not.
const PASSWORD: &str = "TOLLGATE_REDIS_PASSWORD";

/// The time that an answer may take. An operator waits longer than a request does.
const DEADLINE: Duration = Duration::from_secs(5);

/// The arguments of every verb that asks the fleet's Redis.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The fleet's Redis")]
pub(crate) struct RedisArguments {
    /// A server: redis://[user:password@]host[:port][/database], or rediss:// for TLS. May be given several times for Sentinels
    /// and clusters. A password may stand in TOLLGATE_REDIS_PASSWORD instead.
    #[arg(long = "redis", value_name = "URL")]
    urls: Vec<Url>,
    /// The URLs are those of Sentinels: asks the master of this name.
    #[arg(
        long,
        value_name = "MASTER",
        requires = "urls",
        conflicts_with = "cluster"
    )]
    sentinel: Option<String>,
    /// The URLs are those of nodes of a cluster.
    #[arg(long, requires = "urls")]
    cluster: bool,
    /// The user for servers; behind Sentinels a user in a URL is the Sentinels' own.
    #[arg(long, value_name = "USER", requires = "urls")]
    username: Option<String>,
    /// The beginning of the names of keys, as the service has it.
    #[arg(
        long,
        value_name = "PREFIX",
        requires = "urls",
        default_value = "tollgate"
    )]
    prefix: String,
    /// The number of hash tags in a cluster, if the service does not have the library's default.
    #[arg(long, value_name = "NUMBER", requires = "urls")]
    partitions: Option<u16>,
    /// The file with the key by which the service hashes identities; a line break at its end does not count.
    #[arg(long, value_name = "FILE", requires = "urls")]
    hash_key: Option<PathBuf>,
    /// The file with the certificates of the authority that the servers have theirs from, as PEM.
    #[arg(long, value_name = "FILE", requires = "urls")]
    ca: Option<PathBuf>,
    /// The file with the certificate of this client, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,
    /// The file with the key of this client's certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
}

/// A URL, which may hold a password.
#[derive(Clone)]
struct Url(String);

impl FromStr for Url {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Url(..)")
    }
}

impl RedisArguments {
    /// True if a server is named.
    pub(crate) fn are_given(&self) -> bool {
        !self.urls.is_empty()
    }

    /// Connects. The backend works as long as the runtime does.
    pub(crate) fn connect(&self) -> Result<(Runtime, RedisBackend), Failure> {
        let builder = self.builder()?;
        let runtime = runtime()?;
        let backend = runtime.block_on(builder.connect());
        Ok((runtime, backend.map_err(Failure::unconnected)?))
    }

    /// The backend of a verb that asks once, before it connects.
    pub(crate) fn builder(&self) -> Result<RedisBackendBuilder, Failure> {
        Ok(self
            .servers()?
            .client_name("tollgate-cli")
            .connections(1)
            .deadline(DEADLINE)
            .connect_deadline(DEADLINE))
    }

    /// The servers, with what they ask of a client.
    pub(crate) fn servers(&self) -> Result<RedisBackendBuilder, Failure> {
        let urls = self.urls.iter().map(|Url(url)| url.clone());
        let mut builder = match (self.urls.as_slice(), &self.sentinel) {
            ([], _) => return Err(Failure::usage("name a server: --redis redis://host:6379")),
            (_, Some(master)) => RedisBackend::sentinel(master, urls),
            _ if self.cluster => RedisBackend::cluster(urls),
            ([Url(url)], None) => RedisBackend::builder(url),
            _ => {
                return Err(Failure::usage(
                    "several --redis name Sentinels (add --sentinel MASTER) or nodes of a cluster (add --cluster)",
                ));
            }
        };
        if let Some(username) = &self.username {
            builder = builder.username(username);
        }
        if let Some(password) = std::env::var_os(PASSWORD) {
            let password = password.into_string();
            let password = password.map_err(|_not_text| {
                Failure::usage(format_args!("{PASSWORD} is not text in UTF-8"))
            });
            builder = builder.password(password?);
        }
        if let Some(partitions) = self.partitions {
            builder = builder.partitions(partitions);
        }
        if let Some(path) = &self.hash_key {
            let key = read(path)?;
            let key = key.strip_suffix(b"\n").unwrap_or(&key);
            if key.is_empty() {
                let path = path.display();
                return Err(Failure::invalid(format_args!("{path}: holds no key")));
            }
            builder = builder.hash_identities(key.strip_suffix(b"\r").unwrap_or(key));
        }
        if let Some(path) = &self.ca {
            builder = builder.certificate_authority(read(path)?);
        }
        if let (Some(certificate), Some(key)) = (&self.cert, &self.cert_key) {
            builder = builder.client_certificate(read(certificate)?, read(key)?);
        }
        Ok(builder.prefix(&self.prefix))
    }
}

/// A runtime of this thread alone.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().map_err(Failure::invalid)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let content = fs::read(path);
    content.map_err(|error| Failure::invalid(format_args!("{}: {error}", path.display())))
}
