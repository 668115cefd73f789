//! The verbs that look into a running fleet, and steer it: by the library's own operations, on the fleet's Redis.

mod audit;
mod inspect;
mod lists;
mod steer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Args;
use tokio::runtime::Runtime;
use tollgate::{Backend, CheckError, Key, KeyKind, Limiter, MemoryBackend, Policy, RedisBackend};
use tollgate_server::caller::{self, CallerError};

use crate::failure::Failure;
use crate::limits::{Kind, Limits, Registered};
use crate::recorder::{Question, Record, Recorder, lock};
use crate::redis::RedisArguments;

pub(crate) use self::inspect::{InspectArguments, inspect};
pub(crate) use self::lists::{BannedArguments, KeysArguments, TopArguments, banned, keys, top};
pub(crate) use self::steer::{BanArguments, ResetArguments, UnbanArguments, ban, reset, unban};

/// The arguments of every verb that asks a running fleet.
#[derive(Debug, Args)]
pub(crate) struct FleetArguments {
    /// The file of limits that the fleet has: TOML, or JSON if its name ends in .json.
    #[arg(long, value_name = "FILE", default_value = "limits.toml")]
    limits: PathBuf,
    /// Writes the answer as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    redis: RedisArguments,
}

/// A caller under a policy.
#[derive(Debug, Args)]
pub(crate) struct CallerArguments {
    /// The name of the policy.
    policy: String,
    /// The caller: an address, a text such as an API key, or an identity as `keys` shows it: =alice, 2001:db8::/64,
    /// (=alice,192.0.2.7), all, none.
    key: String,
}

/// The limits of a fleet, before any server is asked.
struct Plan<'a> {
    asked: &'a FleetArguments,
    limits: Limits,
}

impl<'a> Plan<'a> {
    fn of(asked: &'a FleetArguments) -> Result<Self, Failure> {
        let limits = Limits::of_fleet(&asked.limits, |builder| builder);
        let limits = limits.map_err(|error| {
            let is_there = asked.limits.exists();
            let hint = if is_there {
                ""
            } else {
                "; name the file of the fleet's limits by --limits"
            };
            Failure::invalid(format_args!("{error}{hint}"))
        })?;
        Ok(Self { asked, limits })
    }

    fn policy(&self, name: &str) -> Result<Arc<Policy>, Failure> {
        let limiter = self.limits.limiter();
        limiter.policy(name).ok_or_else(|| {
            let policies = limiter.policies();
            let names: Vec<_> = policies.iter().map(|policy| policy.name()).collect();
            let (file, names) = (self.asked.limits.display(), names.join(", "));
            Failure::usage(format_args!(
                "{file} has no policy {name:?}; it has {names}"
            ))
        })
    }

    /// The caller that the arguments name, and its policy.
    fn subject(&self, asked: &CallerArguments) -> Result<(Arc<Policy>, Key), Failure> {
        let policy = self.policy(&asked.policy)?;
        let key = caller::read(self.limits.limiter(), &policy, &asked.key);
        let key = key.map_err(|error| match error {
            CallerError::Hash { .. } => {
                Failure::usage(format_args!("{error}, together with --hash-key"))
            }
            CallerError::Misfit { .. } => Failure::usage(error),
        });
        Ok((policy, key?))
    }

    /// The assumptions about one caller: those about quotas, and that a text is one, and not an address with a slip.
    fn assumptions_about(&self, policy: &Policy, key: &Key) -> Vec<String> {
        let mut assumptions = self.assumptions(policy);
        let mut configs = self.limits.config().policies.iter();
        let is_by_address = configs.any(|config| {
            config.name == policy.name() && config.key.is_none() && !config.on_demand
        });
        let is_text = matches!(key.kind(), KeyKind::Bytes | KeyKind::Digest);
        if is_by_address && is_text {
            assumptions.push(format!(
                "that code of the service checks {} for this text, since requests are told apart by their addresses",
                policy.name()
            ));
        }
        assumptions
    }

    /// The assumption about the quotas of callers, which only the service knows.
    fn assumptions(&self, policy: &Policy) -> Vec<String> {
        let of_policy = |it: &&Registered| {
            it.policy.as_deref() == Some(policy.name())
                && matches!(it.kind, Kind::Quotas | Kind::Tiers)
        };
        let registered = self.limits.registered().iter().filter(of_policy);
        registered.map(Registered::assumption).collect()
    }

    fn connect(self) -> Result<Fleet<'a>, Failure> {
        let (runtime, backend) = self.asked.redis.connect()?;
        Ok(Fleet {
            asked: self.asked,
            runtime,
            backend,
        })
    }
}

/// A fleet that answers.
struct Fleet<'a> {
    asked: &'a FleetArguments,
    runtime: Runtime,
    backend: RedisBackend,
}

/// The state of one caller under a policy.
struct Standing {
    outcome: tollgate::CheckOutcome,
    questions: Vec<Question>,
}

impl Fleet<'_> {
    /// The place of the budgets, without any secret.
    fn place(&self) -> String {
        self.backend.admin().place().unwrap_or_default()
    }

    /// The identity, as the fleet's names have it.
    fn identity(&self, key: &Key) -> String {
        self.backend.identity(key)
    }

    /// A limiter with the fleet's limits on this backend.
    fn limiter(&self, backend: impl Backend) -> Result<Limiter, Failure> {
        let path = &self.asked.limits;
        let limits = Limits::of_fleet(path, |builder| builder.backend(backend));
        Ok(limits.map_err(Failure::invalid)?.limiter().clone())
    }

    /// The limiter that changes the fleet.
    fn steering(&self) -> Result<Limiter, Failure> {
        self.limiter(self.backend.clone())
    }

    /// A limiter that only probes.
    fn looking(&self) -> Result<Looking<'_>, Failure> {
        self.looking_at(Arc::new(self.backend.clone()))
    }

    /// A limiter whose budgets are all full, of which the quotas of callers are learnt without a question to the fleet.
    fn knowing(&self) -> Result<Looking<'_>, Failure> {
        self.looking_at(Arc::new(MemoryBackend::new()))
    }

    fn looking_at(&self, inner: Arc<dyn Backend>) -> Result<Looking<'_>, Failure> {
        let record = Arc::new(Mutex::new(Record::default()));
        let recorder = Recorder {
            inner,
            only_probes: true,
            record: Arc::clone(&record),
        };
        Ok(Looking {
            runtime: &self.runtime,
            limiter: self.limiter(recorder)?,
            record,
        })
    }
}

/// The lines that tell assumptions.
fn assumed(assumptions: &[String]) -> impl Iterator<Item = String> {
    let lines = assumptions.iter();
    lines.map(|it| format!("  assumed    {it}, and only the service knows"))
}

/// A limiter that only probes, and its record.
struct Looking<'a> {
    runtime: &'a Runtime,
    limiter: Limiter,
    record: Arc<Mutex<Record>>,
}

impl Looking<'_> {
    /// Asks about a caller, as a request of it would be. Nothing is charged.
    fn at(&self, policy: &Policy, key: &Key) -> Result<Standing, Failure> {
        let check = self.limiter.check(policy.name(), key.clone()).probe();
        let outcome = self.runtime.block_on(check.into_future());
        let record = std::mem::take(&mut *lock(&self.record));
        match (record.failure, outcome) {
            (Some(failure), _) => Err(failure),
            (None, outcome) => Ok(Standing {
                outcome: outcome.map_err(refused)?,
                questions: record.questions,
            }),
        }
    }
}

/// An operation that the library refused, or could not do.
fn refused(error: CheckError) -> Failure {
    match error {
        CheckError::Unavailable(_) | CheckError::Unlisted { .. } => Failure::unreachable(error),
        _ => Failure::usage(error),
    }
}
