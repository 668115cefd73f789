//! The standing of one caller under a policy, for operators who look.

use std::future::poll_fn;

use tollgate_core::{Call, Key, Quota, Verdict};

use super::event::Transport;
use super::observer::Observers;
use super::plan::Demand;
use super::planning::{Planning, Question, Rejection, plan_questions};
use super::{CheckError, Limiter};
use crate::{Policy, Switch};

/// The state of one caller under a policy: see [`Limiter::standing`].
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// True if it is on a block list, or its tier has a limit of 0.
    pub is_blocked: bool,
    /// Its budgets, and the ban behind them. None if nothing limits it.
    pub budgets: Vec<BudgetStanding>,
}

/// One quota for one caller.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct BudgetStanding {
    /// The quota's name.
    pub name: String,
    /// The quota that holds for the caller.
    pub quota: Quota,
    /// The verdict about one request.
    pub verdict: Verdict,
}

impl Limiter {
    /// Asks the backend how a caller stands under a policy, as if that were on. Nothing is charged, no observer hears of it, and it
    /// is not a knock.
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, if no request under it can have such an identity, or if the backend fails, whatever the
    /// policy says about failures.
    #[doc(hidden)]
    pub async fn standing(&self, policy: &str, key: &Key) -> Result<Standing, CheckError> {
        let mut policy = Policy::clone(&*self.named(policy)?);
        let key = self.identity(&policy, key)?;
        policy.turn(Switch::On);
        let name = policy.name().to_owned();
        let demand = Demand {
            seat: 0,
            class: 0,
            cost: policy.cost.fixed().unwrap_or(1),
            probe: true,
            transport: Transport::Application,
        };
        let question = Question {
            policy: policy.into(),
            key,
            demand,
            wish: None,
        };
        let unheard = Observers::default();
        let planned = match plan_questions([question], &unheard) {
            Ok(Planning::Now(plan)) => Ok(plan),
            Ok(Planning::Later(mut pending)) => {
                poll_fn(|cx| pending.poll(cx, None, &unheard)).await
            }
            Err(rejection) => Err(rejection),
        };
        let plan = match planned {
            Ok(plan) => plan,
            Err(Rejection::Blocked(_)) => {
                return Ok(Standing {
                    is_blocked: true,
                    budgets: Vec::new(),
                });
            }
            Err(_) => return Err(CheckError::TierUnknown { policy: name }),
        };
        if plan.is_empty() {
            return Ok(Standing::default());
        }
        let asked = plan
            .entries()
            .with_charges(|charges| self.0.backend.decide(Call::of(charges)));
        let decision = asked.await.map_err(CheckError::Unavailable)?;
        let limits = plan.entries().quotas();
        let budgets = limits.zip(decision.verdicts());
        let budgets = budgets.map(|((limit, ..), verdict)| BudgetStanding {
            name: limit.label.quota().to_owned(),
            quota: limit.quota,
            verdict: *verdict,
        });
        Ok(Standing {
            is_blocked: false,
            budgets: budgets.collect(),
        })
    }
}
