//! What a scenario may cost: a few percent above what it cost when this was last measured, so that a change that makes it
//! dearer says so. Less is a reason to lower a budget.

use tollgate_bench::Scenario;

use crate::Result;
use crate::callgrind::Counter;

/// Instructions per request above the baseline of the scenario. What an inliner does to code that nobody touched moves
/// them by two or three in a hundred.
///
/// Some fourteen of a check are what it costs that a state tells whose drain and denominator it is counted in: without that, two
/// quotas of one budget, as during a deploy, forgave each other what was owed.
///
/// The layer costs more than it did before all requests took one way: 713 instructions for a request (563), 1,597 with a handle (985),
/// 3,328 with headers (1,828), 3,386 for a denial (1,893). 67 of them are the look at policies that may be replaced, 180 the allocation of
/// a handle that is not kept for the next request, and some 900 the headers that are written for each response rather than copied from
/// one before.
const BUDGETS: &[(Scenario, i64)] = &[
    (Scenario::CheckAddress, 340),
    (Scenario::CheckShortText, 445),
    (Scenario::CheckText, 436),
    (Scenario::CheckUuid, 461),
    (Scenario::CheckTwo, 1_710),
    (Scenario::CheckEight, 6_560),
    (Scenario::TollgatePlain, 745),
    (Scenario::TollgateStatus, 1_665),
    (Scenario::TollgateFields, 3_140),
    (Scenario::TollgateHeaders, 3_470),
    (Scenario::TollgateTyped, 3_215),
    (Scenario::TollgateVaried, 3_435),
    (Scenario::TollgateDenied, 3_520),
    (Scenario::TollgateIpv6, 905),
    (Scenario::TollgatePost, 765),
    (Scenario::TollgatePostHeaders, 3_480),
    (Scenario::TollgateOneRoute, 1_950),
    (Scenario::TollgateHundredRoutes, 2_070),
];

/// What must cost no more than something else, counted in the same run.
struct Promise {
    what: &'static str,
    ours: Scenario,
    /// What of ours is not looked at.
    without: Option<Scenario>,
    /// How often that must go into the bound.
    times: i64,
    bound: &'static [Scenario],
}

impl Promise {
    fn scenarios(&self) -> impl Iterator<Item = Scenario> {
        let ours = [Some(self.ours), self.without].into_iter().flatten();
        ours.chain(self.bound.iter().copied())
    }
}

const PROMISES: &[Promise] = &[
    Promise {
        what: "a check by address is no dearer than governor's",
        ours: Scenario::CheckAddress,
        without: None,
        times: 1,
        bound: &[Scenario::GovernorCheckAddress],
    },
    Promise {
        what: "the layer without headers is at most 1.4 of tower_governor's",
        ours: Scenario::TollgatePlain,
        without: None,
        times: 5,
        bound: &[Scenario::GovernorPlain; 7],
    },
    Promise {
        what: "the layer with headers, readable by handlers, is at most nine tenths of tower_governor's with headers",
        ours: Scenario::TollgateHeaders,
        without: None,
        times: 10,
        bound: &[Scenario::GovernorHeaders; 9],
    },
    Promise {
        what: "so it is on a response with a content type",
        ours: Scenario::TollgateTyped,
        without: None,
        times: 10,
        bound: &[Scenario::GovernorTyped; 9],
    },
    Promise {
        what: "a denial is at most half of tower_governor's",
        ours: Scenario::TollgateDenied,
        without: None,
        times: 2,
        bound: &[Scenario::GovernorDenied],
    },
    Promise {
        what: "matching a hundred policies costs no more than being one of a hundred routes",
        ours: Scenario::TollgateHundredRoutes,
        without: Some(Scenario::TollgatePlain),
        times: 1,
        bound: &[Scenario::AxumHundredRoutes],
    },
    Promise {
        what: "a denial costs no more than letting a request pass, and on to its route",
        ours: Scenario::TollgateDenied,
        without: None,
        times: 1,
        bound: &[Scenario::TollgateHeaders, Scenario::AxumHundredRoutes],
    },
];

/// Fails, naming each, if a scenario costs more than it may, or than what it is promised not to exceed.
pub(crate) fn check() -> Result<()> {
    let mut dearer = Vec::new();
    let budgeted = BUDGETS.iter().map(|(scenario, _)| *scenario);
    let promised = PROMISES.iter().flat_map(Promise::scenarios);
    let counter = Counter::of(budgeted.chain(promised))?;
    let cost = |scenario| -> Result<i64> { Ok(counter.above_baseline(scenario)?.instructions) };
    for &(scenario, budget) in BUDGETS {
        let cost = cost(scenario)?;
        println!("{cost:>7} of {budget:>6}  {}", scenario.name());
        if cost > budget {
            dearer.push(format!(
                "{} costs {cost} and may cost {budget}",
                scenario.name()
            ));
        }
    }
    for promise in PROMISES {
        let without = promise.without.map_or(Ok(0), cost)?;
        let ours = promise.times * (cost(promise.ours)? - without);
        let mut bound = 0;
        for &scenario in promise.bound {
            bound += cost(scenario)?;
        }
        let Promise { what, times, .. } = promise;
        println!("{ours:>7} of {bound:>6}  {times} times: {what}");
        if ours > bound {
            dearer.push(format!("{what}: {times} times is {ours}, and not {bound}"));
        }
    }
    if dearer.is_empty() {
        Ok(())
    } else {
        Err(dearer.join("; ").into())
    }
}
