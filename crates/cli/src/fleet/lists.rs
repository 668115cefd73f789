//! `tollgate keys`, `top` and `banned`: the callers of a policy that have a budget in use, or a ban.

use std::cmp::Ordering;
use std::num::NonZeroUsize;

use clap::Args;
use serde_json::{Value, json};
use tollgate::{BanList, Policy, Quota, UsedBudget};

use super::{Fleet, FleetArguments, Looking, Plan, Standing, assumed, refused};
use crate::failure::Failure;
use crate::figures::{about, grouped, left, ms, table};

/// Lists the callers that have a budget of a policy in use, in the order of their identities.
///
/// The names are read by SCAN, 500 at a time and at most a million on each server, outside of scripts, and never by KEYS; the
/// server's user needs +scan. Nothing is charged. Exit codes: 0 the fleet has answered; 1 a file is invalid, or the fleet's Redis
/// cannot be asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollgate keys api --redis redis://10.0.0.7:6379")]
pub(crate) struct KeysArguments {
    /// The name of the policy.
    policy: String,
    /// The most budgets to list: if there are more, those of which the least is left.
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    most: NonZeroUsize,
    #[command(flatten)]
    fleet: FleetArguments,
}

/// Lists the callers of a policy that have the least of their budgets left.
///
/// The names are read by SCAN, 500 at a time and at most a million on each server, outside of scripts, and never by KEYS; the
/// server's user needs +scan. Nothing is charged. Exit codes: 0 the fleet has answered; 1 a file is invalid, or the fleet's Redis
/// cannot be asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollgate top api --most 20 --redis redis://10.0.0.7:6379")]
pub(crate) struct TopArguments {
    /// The name of the policy.
    policy: String,
    /// The most budgets to list.
    #[arg(long, value_name = "NUMBER", default_value = "10")]
    most: NonZeroUsize,
    #[command(flatten)]
    fleet: FleetArguments,
}

/// Lists the callers that are banned, and for how long.
///
/// Nothing is changed, and no ban hears a knock. The names are read by SCAN, so that the server's user needs +scan. Exit codes: 0
/// the fleet has answered; 1 a file is invalid, or the fleet's Redis cannot be asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollgate banned login --redis redis://10.0.0.7:6379")]
pub(crate) struct BannedArguments {
    /// The name of the policy; all policies with bans otherwise.
    policy: Option<String>,
    #[command(flatten)]
    fleet: FleetArguments,
}

pub(crate) fn keys(asked: &KeysArguments) -> Result<String, Failure> {
    let list = Budgets::of(&asked.fleet, &asked.policy, asked.most)?;
    Ok(list.report(|one, other| one.identity.cmp(&other.identity)))
}

pub(crate) fn top(asked: &TopArguments) -> Result<String, Failure> {
    let list = Budgets::of(&asked.fleet, &asked.policy, asked.most)?;
    Ok(list.report(Row::by_use))
}

/// The budgets in use of a policy.
struct Budgets<'a> {
    asked: &'a FleetArguments,
    policy: String,
    assumptions: Vec<String>,
    place: String,
    rows: Vec<Row>,
    seen: u64,
    is_complete: bool,
}

/// A budget in use.
struct Row {
    identity: String,
    quota: Quota,
    limit: u64,
    remaining: u64,
    reset_after: std::time::Duration,
}

impl<'a> Budgets<'a> {
    fn of(asked: &'a FleetArguments, name: &str, most: NonZeroUsize) -> Result<Self, Failure> {
        let plan = Plan::of(asked)?;
        let policy = plan.policy(name)?;
        let assumptions = plan.assumptions(&policy);
        let fleet = plan.connect()?;
        // The fleet reads budgets by the policy's own quotas. Those of tiers are chosen when their own quotas are known.
        let to_read = match policy.has_tiers() {
            true => usize::MAX,
            false => most.get(),
        };
        let used = fleet.backend.used_budgets(policy.budgets(), to_read);
        let used = fleet.runtime.block_on(used).map_err(Failure::unreachable)?;
        let (looking, knowing) = (fleet.looking()?, fleet.knowing()?);
        let rows = used.budgets().iter();
        let rows = rows.map(|budget| row(&looking, &knowing, &policy, budget));
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        rows.sort_by(Row::by_use);
        rows.truncate(most.get());
        Ok(Self {
            asked,
            policy: policy.name().to_owned(),
            assumptions,
            place: fleet.place(),
            rows,
            seen: used.seen(),
            is_complete: used.is_complete(),
        })
    }

    fn report(mut self, order: impl Fn(&Row, &Row) -> Ordering) -> String {
        self.rows.sort_by(order);
        if self.asked.json {
            let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
            let report = json!({
                "policy": self.policy,
                "redis": self.place,
                "assumed": self.assumptions,
                "budgets": rows,
                "in_use": self.seen,
                "complete": self.is_complete,
            });
            return format!("{report:#}\n");
        }
        let listed = u64::try_from(self.rows.len()).unwrap_or(u64::MAX);
        let of_all = match listed < self.seen {
            true => format!("; {} of them are listed", grouped(listed)),
            false => String::new(),
        };
        let mut lines = vec![
            format!("policy {}, in {}", self.policy, self.place),
            format!("  {}{of_all}", in_use(self.seen)),
        ];
        lines.extend(assumed(&self.assumptions));
        if !self.is_complete {
            lines.push("  there may be more: not every state could be looked at".to_owned());
        }
        if !self.rows.is_empty() {
            lines.push(String::new());
            let rows = self.rows.iter().map(|row| {
                let full = match row.reset_after.is_zero() {
                    true => "when it is given back".to_owned(),
                    false => about(row.reset_after),
                };
                let quota = row.quota.to_string();
                [
                    row.identity.clone(),
                    quota,
                    left(row.remaining, row.limit),
                    full,
                ]
            });
            let names = ["caller", "quota", "left", "full again in"];
            table(names, rows.collect(), &mut lines);
        }
        lines.join("\n") + "\n"
    }
}

fn in_use(number: u64) -> String {
    match number {
        0 => "no budget is in use".to_owned(),
        1 => "1 budget is in use".to_owned(),
        _ => format!("{} budgets are in use", grouped(number)),
    }
}

/// A row of the list. The limiter knows the tier of a caller, and so its quota, unless its identity is a hash.
fn row(
    looking: &Looking<'_>,
    knowing: &Looking<'_>,
    policy: &Policy,
    budget: &UsedBudget,
) -> Result<Row, Failure> {
    let mut row = Row {
        identity: budget.identity().to_owned(),
        quota: *budget.quota(),
        limit: budget.limit(),
        remaining: budget.remaining(),
        reset_after: budget.reset_after(),
    };
    let Some(key) = budget.key().filter(|_| policy.has_tiers()) else {
        return Ok(row);
    };
    let of_scope = |standing: Standing| {
        let mut questions = standing.questions.into_iter();
        questions.find(|question| question.scope == budget.scope())
    };
    let known = of_scope(knowing.at(policy, key)?);
    if known.is_none_or(|known| known.quota == row.quota) {
        return Ok(row);
    }
    let asked = of_scope(looking.at(policy, key)?);
    if let Some((question, verdict)) = asked.and_then(|it| it.verdict.map(|verdict| (it, verdict)))
    {
        row.quota = question.quota;
        row.limit = verdict.limit();
        row.remaining = verdict.remaining();
        row.reset_after = verdict.reset_after();
    }
    Ok(row)
}

impl Row {
    /// Those first of which the least share is left.
    fn by_use(&self, other: &Self) -> Ordering {
        // Quotients, compared without dividing.
        let used = |one: &Self, other: &Self| {
            u128::from(one.limit.saturating_sub(one.remaining)) * u128::from(other.limit)
        };
        used(other, self).cmp(&used(self, other))
    }

    fn json(&self) -> Value {
        json!({
            "caller": self.identity,
            "quota": self.quota.to_string(),
            "limit": self.limit,
            "remaining": self.remaining,
            "reset_after_ms": ms(self.reset_after),
        })
    }
}

pub(crate) fn banned(asked: &BannedArguments) -> Result<String, Failure> {
    let plan = Plan::of(&asked.fleet)?;
    let policies = match &asked.policy {
        Some(name) => vec![plan.policy(name)?],
        None => {
            let policies = plan.limits.limiter().policies().into_iter();
            policies.filter(|policy| policy.bans()).collect()
        }
    };
    if policies.is_empty() {
        let file = asked.fleet.limits.display();
        return Err(Failure::usage(format_args!(
            "no policy of {file} has a ban"
        )));
    }
    let fleet = plan.connect()?;
    let limiter = fleet.steering()?;
    let mut lists = Vec::new();
    for policy in &policies {
        let list = fleet.runtime.block_on(limiter.bans(policy.name()));
        lists.push((policy.name(), list.map_err(refused)?));
    }
    Ok(match asked.fleet.json {
        true => banned_json(&fleet, &lists),
        false => banned_text(&fleet, &lists),
    })
}

fn banned_text(fleet: &Fleet<'_>, lists: &[(&str, BanList)]) -> String {
    let mut lines = vec![format!("bans in {}", fleet.place())];
    for (policy, list) in lists {
        let number = list.callers().len();
        lines.push(match number {
            0 => format!("\npolicy {policy}: no caller is banned"),
            1 => format!("\npolicy {policy}: 1 caller is banned"),
            _ => format!("\npolicy {policy}: {number} callers are banned"),
        });
        if !list.is_complete() {
            lines.push("  there may be more: not every state could be looked at".to_owned());
        }
        let mut callers: Vec<_> = list.callers().iter().collect();
        callers.sort_by(|one, other| {
            let by_time = other.left().cmp(&one.left());
            by_time.then_with(|| one.identity().cmp(other.identity()))
        });
        if !callers.is_empty() {
            let rows = callers.iter();
            let rows = rows.map(|caller| [caller.identity().to_owned(), about(caller.left())]);
            table(["caller", "for"], rows.collect(), &mut lines);
        }
    }
    lines.join("\n") + "\n"
}

fn banned_json(fleet: &Fleet<'_>, lists: &[(&str, BanList)]) -> String {
    let policies = lists.iter().map(|(policy, list)| {
        let callers = list
            .callers()
            .iter()
            .map(|caller| json!({ "caller": caller.identity(), "left_ms": ms(caller.left()) }));
        json!({
            "policy": policy,
            "banned": callers.collect::<Vec<_>>(),
            "complete": list.is_complete(),
        })
    });
    let policies: Vec<_> = policies.collect();
    let report = json!({ "redis": fleet.place(), "policies": policies });
    format!("{report:#}\n")
}
