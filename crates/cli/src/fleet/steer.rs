//! `tollgate reset`, `ban` and `unban`: changes for one caller, each with a line of audit.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tollgate::{CheckError, FailureKind, Key, Limiter};

use super::audit::Change;
use super::{CallerArguments, FleetArguments, Plan, assumed, refused};
use crate::failure::Failure;
use crate::figures::{about, ms, read_period};

/// The arguments of every verb that changes a fleet.
#[derive(Debug, Args)]
struct ChangeArguments {
    /// Says what would change, and changes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Writes the line of audit at the end of this file, too; it always stands on the standard error.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
}

/// Makes the budgets of a caller full again in the fleet, and ends its ban.
///
/// The places that it holds at this moment stay held. Exit codes: 0 done; 1 a file is invalid, or the fleet's Redis cannot be
/// asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate reset login 192.0.2.7 --dry-run --redis redis://10.0.0.7:6379
  tollgate reset login 192.0.2.7 --audit /var/log/tollgate.log --redis redis://10.0.0.7:6379")]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    caller: CallerArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    fleet: FleetArguments,
}

/// Bans a caller in the fleet from now on, under a policy with a ban.
///
/// A ban that lasts longer already stays as it is. Exit codes: 0 done; 1 a file is invalid, or the fleet's Redis cannot be asked; 2
/// the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollgate ban login 192.0.2.7 15m --redis redis://10.0.0.7:6379")]
pub(crate) struct BanArguments {
    #[command(flatten)]
    caller: CallerArguments,
    /// The length of the ban: 90s, 15m, 2h, 7d.
    #[arg(value_name = "PERIOD", value_parser = read_period)]
    lasting: Duration,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    fleet: FleetArguments,
}

/// Ends the ban of a caller in the fleet, and forgets its strikes.
///
/// Its budgets stay as they are; `tollgate reset` makes these full as well. Exit codes: 0 done; 1 a file is invalid, or the fleet's
/// Redis cannot be asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollgate unban login 192.0.2.7 --redis redis://10.0.0.7:6379")]
pub(crate) struct UnbanArguments {
    #[command(flatten)]
    caller: CallerArguments,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    fleet: FleetArguments,
}

/// A change of one caller.
#[derive(Clone, Copy)]
enum Step {
    Reset,
    Ban(Duration),
    Unban,
}

pub(crate) fn reset(asked: &ResetArguments) -> Result<String, Failure> {
    change(Step::Reset, &asked.caller, &asked.change, &asked.fleet)
}

pub(crate) fn ban(asked: &BanArguments) -> Result<String, Failure> {
    let step = Step::Ban(asked.lasting);
    change(step, &asked.caller, &asked.change, &asked.fleet)
}

pub(crate) fn unban(asked: &UnbanArguments) -> Result<String, Failure> {
    change(Step::Unban, &asked.caller, &asked.change, &asked.fleet)
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Ban(_) => "ban",
            Self::Unban => "unban",
        }
    }

    async fn make(self, limiter: &Limiter, policy: &str, key: &Key) -> Result<(), CheckError> {
        match self {
            Self::Reset => limiter.reset(policy, key.clone()).await,
            Self::Ban(lasting) => limiter.ban(policy, key.clone(), lasting).await,
            Self::Unban => limiter.unban(policy, key.clone()).await,
        }
    }

    fn outcome(self, was_banned: Option<Duration>, is_banned: Option<Duration>) -> String {
        match self {
            Self::Reset => "its budgets are full again".to_owned(),
            Self::Ban(lasting) => {
                let is = about(is_banned.unwrap_or_default());
                match was_banned.is_some_and(|was| was > lasting) {
                    true => format!("it was banned for longer already, and stays so for {is}"),
                    false => format!("it is banned for {is}"),
                }
            }
            Self::Unban => match was_banned {
                Some(_) => "its ban is over, and its strikes are forgotten".to_owned(),
                None => "it was not banned; its strikes are forgotten".to_owned(),
            },
        }
    }
}

/// The words before a failure that comes after the change.
const DONE: &str = "the change is made, and the fleet could not be asked what holds now";

/// The outcome of a change, as far as it is known: a server that was asked may have made it, although no answer came.
fn outcome(done: &Result<(), CheckError>) -> &'static str {
    let CheckError::Unavailable(error) = (match done {
        Ok(()) => return "done",
        Err(error) => error,
    }) else {
        return "failed";
    };
    match error.kind() {
        FailureKind::Unreachable | FailureKind::TimedOut { .. } | FailureKind::ScriptFailed => {
            "unknown"
        }
        _ => "failed",
    }
}

fn change(
    step: Step,
    subject: &CallerArguments,
    asked: &ChangeArguments,
    fleet: &FleetArguments,
) -> Result<String, Failure> {
    let plan = Plan::of(fleet)?;
    let (policy, key) = plan.subject(subject)?;
    let name = policy.name();
    if !policy.bans() && !matches!(step, Step::Reset) {
        return Err(Failure::usage(format_args!(
            "policy {name:?} has no ban: add one, such as `ban = {{ after = \"5 in 10min for 15min\" }}`"
        )));
    }
    let is_json = fleet.json;
    let assumptions = plan.assumptions_about(&policy, &key);
    let fleet = plan.connect()?;
    let (caller, place) = (fleet.identity(&key), fleet.place());
    // An order that the library refuses is refused before anything is printed about it, in a dry run too.
    let knowing = fleet.knowing()?;
    let tried = step.make(&knowing.limiter, name, &key);
    fleet.runtime.block_on(tried).map_err(refused)?;
    let before = fleet.looking()?.at(&policy, &key)?;
    let was_banned = before.banned_for();
    let mut audit = Change::begin(step.name(), asked.audit.as_deref())?
        .with("policy", name)
        .with("caller", &caller);
    if let Step::Ban(lasting) = step {
        audit = audit.with("for", about(lasting));
    }
    audit = audit.with("redis", &place);

    let is_banned = if asked.dry_run {
        audit.end("dry-run")?;
        None
    } else {
        audit.intend()?;
        let limiter = fleet.steering()?;
        let done = fleet.runtime.block_on(step.make(&limiter, name, &key));
        audit.end(outcome(&done))?;
        done.map_err(refused)?;
        // The change is made, whatever this question comes to.
        let after = fleet.looking()?.at(&policy, &key);
        after.map_err(|failure| failure.behind(DONE))?.banned_for()
    };

    if is_json {
        let report = json!({
            "verb": step.name(),
            "policy": name,
            "caller": caller,
            "redis": place,
            "dry_run": asked.dry_run,
            "assumed": assumptions,
            "was_banned_for_ms": was_banned.map(ms),
            "banned_for_ms": if asked.dry_run { was_banned.map(ms) } else { is_banned.map(ms) },
        });
        return Ok(format!("{report:#}\n"));
    }
    let mut lines = vec![format!("policy {name}, caller {caller}, before")];
    lines.extend(assumed(&assumptions));
    lines.extend(before.lines());
    lines.push(if asked.dry_run {
        let would = match step {
            Step::Reset => "its budgets would be full again".to_owned(),
            Step::Ban(lasting) => match was_banned.filter(|was| *was > lasting) {
                Some(was) => format!(
                    "it is banned for longer already, and would stay so for {}",
                    about(was)
                ),
                None => format!("it would be banned for {}", about(lasting)),
            },
            Step::Unban => "its ban and its strikes would be forgotten".to_owned(),
        };
        format!("{would}; this is a dry run, and nothing has changed")
    } else {
        step.outcome(was_banned, is_banned)
    });
    Ok(lines.join("\n") + "\n")
}
