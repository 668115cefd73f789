//! `tollgate inspect`: the budgets, the ban and the holdings of one caller.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tollgate::{Holding, Unit};

use super::{CallerArguments, FleetArguments, Plan, Standing, assumed};
use crate::failure::Failure;
use crate::figures::{about, grouped, ms};
use crate::recorder::Question;

/// Shows the budgets of a caller in the fleet, its ban, and what it holds and by which processes.
///
/// Nothing is charged and nothing is changed. Exit codes: 0 the fleet has answered; 1 a file is invalid, or the fleet's Redis
/// cannot be asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate inspect login 192.0.2.7 --redis redis://10.0.0.7:6379
  tollgate inspect api key-4711 --limits /etc/shop/limits.toml --redis redis://node-1:6379 --cluster")]
pub(crate) struct InspectArguments {
    #[command(flatten)]
    caller: CallerArguments,
    #[command(flatten)]
    fleet: FleetArguments,
}

pub(crate) fn inspect(asked: &InspectArguments) -> Result<String, Failure> {
    let plan = Plan::of(&asked.fleet)?;
    let (policy, key) = plan.subject(&asked.caller)?;
    let assumptions = plan.assumptions_about(&policy, &key);
    let fleet = plan.connect()?;
    let standing = fleet.looking()?.at(&policy, &key)?;
    let mut holdings = Vec::new();
    for question in &standing.questions {
        if question.scope.unit() == Unit::Held {
            let asked = fleet.backend.holdings(question.scope, &key);
            let found = fleet.runtime.block_on(asked);
            holdings.extend(found.map_err(Failure::unreachable)?);
        }
    }
    let (name, caller) = (policy.name(), fleet.identity(&key));
    if asked.fleet.json {
        let report = json!({
            "policy": name,
            "caller": caller,
            "redis": fleet.place(),
            "passes": standing.outcome.is_allowed(),
            "blocked": standing.outcome.blocked().is_some(),
            "budgets": standing.budgets().map(Question::json).collect::<Vec<_>>(),
            "banned_for_ms": standing.banned_for().map(ms),
            "strikes_until_ban": standing.strikes_left(),
            "assumed": assumptions,
            "held_by": holdings.iter().map(holding_json).collect::<Vec<_>>(),
        });
        return Ok(format!("{report:#}\n"));
    }
    let mut lines = vec![format!("policy {name}, caller {caller}")];
    lines.push(format!("  in         {}", fleet.place()));
    lines.extend(assumed(&assumptions));
    lines.extend(standing.lines());
    for holding in &holdings {
        let (process, units) = (holding.process(), grouped(holding.units()));
        let left = about(holding.lease_left());
        lines.push(format!(
            "  held       {units} by process {process}, whose lease ends in {left} unless it calls"
        ));
    }
    Ok(lines.join("\n") + "\n")
}

impl Standing {
    fn budgets(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|it| it.is_of_quota())
    }

    pub(super) fn banned_for(&self) -> Option<Duration> {
        self.questions.iter().find_map(Question::banned_for)
    }

    /// The strikes that are left until the next ban, if the policy bans and no ban is in force.
    fn strikes_left(&self) -> Option<u64> {
        let mut bans = self.questions.iter();
        let ban = bans.find(|question| question.scope.unit() == Unit::Ban)?;
        let verdict = ban.verdict.as_ref()?;
        (!verdict.is_denied()).then(|| verdict.remaining())
    }

    /// The standing in words.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |name: &str, words: String| lines.push(format!("  {name:<10} {words}"));
        if self.outcome.blocked().is_some() {
            let words = "it is on a block list, or its tier has a limit of 0";
            say("refused", words.to_owned());
        } else if self.budgets().next().is_none() {
            say("unlimited", "no quota limits this caller".to_owned());
        }
        for question in self.budgets() {
            say("quota", question.words());
        }
        if let Some(question) = self.budgets().find(|question| question.cost != 1) {
            let cost = grouped(question.cost);
            say("", format!("for a request that costs {cost}"));
        }
        if let Some(left) = self.banned_for() {
            say("banned", format!("for {} more", about(left)));
        } else if let Some(strikes) = self.strikes_left() {
            let strikes = match strikes {
                1 => "one more strike bans it".to_owned(),
                _ => format!("{} more strikes ban it", grouped(strikes)),
            };
            say("banned", format!("no; {strikes}"));
        }
        lines
    }
}

fn holding_json(holding: &Holding) -> Value {
    json!({
        "process": holding.process(),
        "units": holding.units(),
        "lease_left_ms": ms(holding.lease_left()),
    })
}
