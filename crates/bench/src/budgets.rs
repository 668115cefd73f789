//! What a scenario may cost: a few percent above what it cost when this was last measured, so that a change that makes it
//! dearer says so. Less is a reason to lower a budget.

use tollgate_bench::Scenario;

use crate::Result;
use crate::callgrind::Counter;

/// Instructions per request above the baseline of the scenario. What an inliner does to code that nobody touched moves
/// them by two or three in a hundred.
const BUDGETS: &[(Scenario, i64)] = &[
    (Scenario::CheckAddress, 325),
    (Scenario::CheckText, 420),
    (Scenario::CheckTwo, 1_570),
    (Scenario::CheckEight, 5_800),
    (Scenario::TollgatePlain, 575),
    (Scenario::TollgateStatus, 1_115),
    (Scenario::TollgateFields, 1_670),
    (Scenario::TollgateHeaders, 1_965),
    (Scenario::TollgateTyped, 1_980),
    (Scenario::TollgateVaried, 2_700),
    (Scenario::TollgateDenied, 1_975),
    (Scenario::TollgateOneRoute, 1_080),
    (Scenario::TollgateHundredRoutes, 1_190),
];

/// Fails, naming each, if a scenario costs more than it may.
pub(crate) fn check() -> Result<()> {
    let mut dearer = Vec::new();
    let mut counter = Counter::default();
    for (scenario, budget) in BUDGETS {
        let cost = counter.above_baseline(*scenario)?.instructions;
        println!("{cost:>7} of {budget:>6}  {}", scenario.name());
        if cost > *budget {
            dearer.push(format!(
                "{} costs {cost} and may cost {budget}",
                scenario.name()
            ));
        }
    }
    if dearer.is_empty() {
        Ok(())
    } else {
        Err(dearer.join("; ").into())
    }
}
