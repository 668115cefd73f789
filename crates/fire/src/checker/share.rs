//! The charges that a process let through by itself, of its share of each budget, while the backend failed.
//!
//! No other process charges a share, and nothing of it is ever lost or given back. Only the time is not known to the
//! microsecond: a share refills while the backend fails, by a clock inside the limiter. That clock surely stands still from ten
//! seconds after a failure, if a decision of the backend is heard meanwhile, until a question that fails. So, for each share:
//!
//! * a charge that passed had room, counting the charges that surely came before, as early as they can have been;
//! * no span let through more than a share may at worst while its clock can have run;
//! * a denied charge had no room, and no less is left than if nothing had ever been refilled.

use std::collections::BTreeMap;

use tollgate_core::{Algorithm, Quota, State};

use super::least::apply;
use super::rule::Rule;
use super::worst_case::worst_case;
use super::{LINGERS_US, Violation};
use crate::attempt::{AskedCharge, Attempt, Budget, Fallback, Manner, Outcome};
use crate::history::History;
use crate::population::ONE_IN;

/// The largest difference between the clocks of a process within an outage.
const TOLERANCE_US: u64 = 2_000;

/// The longest time that the clock of a share runs between two failures if the backend decides something in between.
const RUNS_ON_US: u64 = 10_000_000;

/// A process's share of a quota: one part of its limit and its burst, rounded up. One that warms up lets through less.
pub(super) fn share_of(whole: &Quota) -> Quota {
    let limit = whole.limit().div_ceil(ONE_IN);
    let share = Quota::new(limit, whole.period());
    match whole.algorithm() {
        Algorithm::Gcra => share.burst(whole.capacity().div_ceil(ONE_IN)),
        algorithm @ Algorithm::IntervalRefill { .. } => {
            (share.using(algorithm)).burst(whole.capacity().div_ceil(ONE_IN))
        }
        algorithm => share.using(algorithm),
    }
}

/// The impossible in the shares of all processes.
pub(super) fn overspent(history: &History) -> Vec<Violation> {
    // A limiter that is restarted has a share of its own.
    let mut limiters: BTreeMap<(u32, u32), Vec<(usize, &Attempt)>> = BTreeMap::new();
    for (number, attempt) in history.attempts.iter().enumerate() {
        let is_question = !attempt.verb.asked().is_empty();
        if attempt.asker.door.has_limiter() && is_question {
            let limiter = (attempt.asker.process, attempt.limiter);
            let asked = limiters.entry(limiter).or_default();
            asked.push((number, attempt));
        }
    }
    let limiter = |attempts: &Vec<(usize, &Attempt)>| {
        let clock = OutageClock::of(attempts);
        let budgets = by_budget(attempts).into_iter();
        let wrongs = budgets.filter_map(|(budget, all)| {
            let whole = history.quotas.get(budget.policy)?;
            let (share, dearest) = (share_of(whole), whole.price_when_cold());
            let (attempt, what) = impossible(&share, dearest, &clock, &all)?;
            Some(Violation {
                attempt,
                budget: Some(budget),
                what,
            })
        });
        wrongs.collect::<Vec<_>>()
    };
    limiters.values().flat_map(limiter).collect()
}

/// The times at which the clock of a process's shares surely stood still.
struct OutageClock(Vec<(u64, u64)>);

impl OutageClock {
    fn of(attempts: &[(usize, &Attempt)]) -> Self {
        let is_decided = |attempt: &Attempt| matches!(attempt.outcome, Outcome::Decided(_));
        let (decided, failed): (Vec<&Attempt>, Vec<_>) = attempts
            .iter()
            .map(|(_, attempt)| *attempt)
            .partition(|attempt| is_decided(attempt));
        let mut failed: Vec<_> = failed.iter().map(|it| (over_us(it), it.sent_us)).collect();
        failed.sort_unstable();
        // The first question of all that ended later than that.
        let mut first_us = u64::MAX;
        for (_, sent_us) in failed.iter_mut().rev() {
            first_us = first_us.min(*sent_us);
            *sent_us = first_us;
        }
        let until = |attempt: &Attempt| {
            let later = failed.partition_point(|(over_us, _)| *over_us <= attempt.sent_us);
            failed
                .get(later)
                .map_or(u64::MAX, |(_, first_us)| *first_us)
        };
        // It runs on for a while after the last failure before.
        let runs_until = |attempt: &Attempt| {
            let before = failed.partition_point(|(over_us, _)| *over_us <= attempt.sent_us);
            let last = before.checked_sub(1).and_then(|last| failed.get(last));
            last.map_or(0, |(over_us, _)| over_us.saturating_add(RUNS_ON_US))
        };
        let mut still: Vec<_> = decided
            .into_iter()
            .map(|attempt| (attempt.heard_us.max(runs_until(attempt)), until(attempt)))
            .filter(|(from_us, to_us)| from_us < to_us)
            .collect();
        still.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from_us, to_us) in still {
            match merged.last_mut() {
                Some(last) if last.1 >= from_us => last.1 = last.1.max(to_us),
                _ => merged.push((from_us, to_us)),
            }
        }
        Self(merged)
    }

    /// Its reading at a time, if it ran whenever it can have run.
    fn shows(&self, at_us: u64) -> u64 {
        let still = self.0.iter().take_while(|(from_us, _)| *from_us < at_us);
        let stood: u64 = still
            .map(|(from_us, to_us)| at_us.min(*to_us) - from_us)
            .sum();
        at_us - stood
    }
}

/// The time by which an attempt is surely over for the limiter: after its client has gone it may go on for a while.
fn over_us(attempt: &Attempt) -> u64 {
    let lingers_us = if attempt.outcome.is_unheard() {
        LINGERS_US
    } else {
        0
    };
    attempt.heard_us.saturating_add(lingers_us)
}

/// A question for a share, and the share's answer if that was heard.
struct Asking {
    attempt: usize,
    sent_us: u64,
    over_us: u64,
    /// The cost by which it was decided: of a question for as much as there is the granted amount, or the least.
    cost: u64,
    /// The most that it asked for, if that is another.
    most: u64,
    /// The amount that it may have taken.
    may_take: u64,
    said: Option<ShareVerdict>,
}

struct ShareVerdict {
    taken: u64,
    /// True if it was denied, and this charge alone can have been the reason.
    denied: bool,
    passed: bool,
    remaining: Option<u64>,
}

fn by_budget(attempts: &[(usize, &Attempt)]) -> BTreeMap<Budget, Vec<Asking>> {
    let mut budgets: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (number, attempt) in attempts {
        if matches!(attempt.outcome, Outcome::Decided(_))
            || attempt.fallback == Some(Fallback::Refused)
        {
            continue;
        }
        let asked = attempt.verb.asked();
        for (position, one) in asked.iter().enumerate() {
            let asking = asking(*number, attempt, position, one, asked.len() == 1);
            budgets.entry(one.budget).or_default().push(asking);
        }
    }
    for all in budgets.values_mut() {
        all.sort_by_key(|asking| asking.over_us);
    }
    budgets
}

fn asking(
    number: usize,
    attempt: &Attempt,
    position: usize,
    asked: &AskedCharge,
    is_alone: bool,
) -> Asking {
    let takes = if asked.manner == Manner::Probe {
        0
    } else {
        asked.cost
    };
    let granted = match &attempt.fallback {
        Some(Fallback::Decided { granted, .. }) => *granted,
        _ => None,
    };
    let at_least = attempt.verb.at_least();
    let cost = match granted {
        Some(0) => at_least.unwrap_or(asked.cost),
        granted => granted.unwrap_or(asked.cost),
    };
    let said = match &attempt.fallback {
        Some(Fallback::Decided {
            admitted,
            remaining,
            ..
        }) if !attempt.outcome.is_in_part() => Some(ShareVerdict {
            taken: if *admitted { takes.min(cost) } else { 0 },
            denied: !admitted && is_alone,
            passed: *admitted,
            remaining: remaining.get(position).copied().flatten(),
        }),
        _ => None,
    };
    Asking {
        attempt: number,
        sent_us: attempt.sent_us,
        over_us: over_us(attempt),
        cost,
        most: asked.cost,
        may_take: said.as_ref().map_or(takes, |said| said.taken),
        said,
    }
}

/// The first impossibility of one share, of which a unit costs up to `dearest` times as much. `all` is sorted by the end of each
/// question.
fn impossible(
    share: &Quota,
    dearest: u64,
    clock: &OutageClock,
    all: &[Asking],
) -> Option<(usize, String)> {
    let rule = Rule::of(*share);
    let each = all.iter().find_map(|asking| {
        let said = asking.said.as_ref()?;
        let why = too_much(&rule, clock, all, asking, said)
            .or_else(|| too_little(share, dearest, all, asking, said))?;
        Some((asking.attempt, why))
    });
    each.or_else(|| exceeded(share, clock, all))
}

/// Says whether it passed without room, or tells more than can be left.
fn too_much(
    rule: &Rule,
    clock: &OutageClock,
    all: &[Asking],
    asking: &Asking,
    said: &ShareVerdict,
) -> Option<String> {
    // The start of that clock's windows is unknown.
    if !matches!(
        rule.quota().algorithm(),
        Algorithm::Gcra | Algorithm::SlidingLog
    ) {
        return None;
    }
    let before = all.iter().filter(|it| it.over_us <= asking.sent_us);
    let mut taken: Vec<_> = before
        .filter_map(|it| Some((clock.shows(it.sent_us), it.said.as_ref()?.taken)))
        .filter(|(_, n)| *n > 0)
        .collect();
    taken.sort_unstable();
    let mut state: State = rule.full();
    for (at_us, n) in taken {
        apply(rule, &mut state, at_us, n);
    }
    let at_us = clock.shows(asking.over_us) + TOLERANCE_US;
    if said.passed && !rule.probe(&state, at_us, asking.cost)?.is_allowed() {
        let left = rule.probe(&state, at_us, 0)?.remaining();
        let cost = asking.cost;
        return Some(format!(
            "a share let through a cost of {cost} when at most {left} was left of it"
        ));
    }
    apply(rule, &mut state, at_us, said.taken);
    let most = rule.probe(&state, at_us, 0)?.remaining();
    let remaining = said.remaining.filter(|remaining| *remaining > most)?;
    Some(format!(
        "said {remaining} was left of a share, and it was at most {most}"
    ))
}

/// Says whether it was denied in spite of room, or tells less than must be left.
fn too_little(
    share: &Quota,
    dearest: u64,
    all: &[Asking],
    asking: &Asking,
    said: &ShareVerdict,
) -> Option<String> {
    let before = all
        .iter()
        .filter(|it| it.sent_us <= asking.over_us && it.attempt != asking.attempt);
    let taken: u64 = before.map(|it| it.may_take).sum();
    let left = share.capacity().saturating_sub(taken * dearest);
    let cost = asking.cost;
    if said.denied && cost <= left {
        return Some(format!(
            "a share denied a cost of {cost} when at least {left} was left of it"
        ));
    }
    let could = left.min(asking.most);
    if said.passed && cost < could {
        return Some(format!(
            "a share granted {cost} when at least {could} was left of it"
        ));
    }
    let least = left.saturating_sub(said.taken * dearest);
    let remaining = said.remaining.filter(|remaining| *remaining < least)?;
    Some(format!(
        "said {remaining} was left of a share, and it was at least {least}"
    ))
}

/// Says whether a span let through more than may pass in the time that the clock can have run.
fn exceeded(share: &Quota, clock: &OutageClock, all: &[Asking]) -> Option<(usize, String)> {
    let taken = |asking: &Asking| asking.said.as_ref().map_or(0, |said| said.taken);
    all.iter().find_map(|first| {
        let from_us = clock.shows(first.sent_us);
        let mut sum = 0;
        let within = all.iter().filter(|it| it.sent_us >= first.sent_us);
        within.into_iter().find_map(|last| {
            sum += taken(last);
            let ran_us = clock.shows(last.over_us) - from_us + TOLERANCE_US;
            let most = most_within(share, ran_us);
            (sum > most).then(|| {
                let what = format!(
                    "a share let through {sum} in an outage of {ran_us} µs, and at most {most} may"
                );
                (last.attempt, what)
            })
        })
    })
}

fn most_within(share: &Quota, ran_us: u64) -> u64 {
    let period_us = share.period().as_micros();
    let most = match share.algorithm() {
        Algorithm::Gcra => {
            let drained = u128::from(share.limit()) * u128::from(ran_us) / period_us;
            u128::from(share.capacity()) + drained + 1
        }
        _ => u128::from(worst_case(share)) * (u128::from(ran_us) / period_us + 1),
    };
    u64::try_from(most).unwrap_or(u64::MAX)
}
