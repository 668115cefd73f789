//! Judges buckets of which each verdict tells all that is left to drain: those that warm up, and those whose quota is replaced by
//! one of another rate or burst.
//!
//! Nothing is replayed over what is unknown. For each budget, in the order of the server's time: from the state that the verdict
//! before told, core's rule gives each number of the next one, by the quota by which that was asked. If an event without an answer
//! may have come in between, and the numbers differ, the next verdict tells the state anew.
//!
//! No verdict tells the idle time in store of a bucket that warms up. It is known within bounds: it is all before the first request
//! and after an idle warm-up, none after enough requests, and the price of a charge tells what it was before.

use tollgate_core::State;

use super::rule::{Rule, cold_at, cold_from, full_at, hastened};
use super::timeline::Moment;
use super::trial::{Course, Observation, allowed, left};
use crate::terms::Terms;

/// An observation, with its attempt.
type Seen = (Moment, usize, Observation);

/// Surcharges are whole microseconds, rounded down twice.
const PRICE_US: u64 = 2;

/// A state that lies further ahead than this many full drains may be brought back by another quota's reach.
const FAR: u64 = 4;

/// The time after which a correction surely is done that nothing was in the way of, beside the usual one.
const SETTLES_US: u64 = 400_000;

/// The findings about such buckets, beside the impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToldFindings {
    /// The verdicts that were compared with all that was known before.
    pub strict: u64,
    /// The verdicts before which something may have happened unheard, and which differed by no more than that explains.
    pub within: u64,
    /// The verdicts before which any state may have come.
    pub in_doubt: u64,
    /// The charges that cost more because their budget was cold.
    pub cold: u64,
}

/// The state of a bucket, as far as it is known: with the least and with the most idle time in store.
#[derive(Clone, Debug)]
struct Known {
    warmest: State,
    coldest: State,
    /// The time by which all may drain earlier, because a verdict rounded it up.
    slop_us: u64,
}

impl ToldFindings {
    /// Judges one budget, and returns the first impossibility. `seen` is sorted.
    pub(super) fn judge(
        &mut self,
        rules: &[Rule],
        seen: &[Seen],
        course: &Course,
    ) -> Option<(usize, String)> {
        let (mut known, mut last) = (None, Moment::FIRST);
        for (position, (now, attempt, seen_now)) in seen.iter().enumerate() {
            let Some(rule) = rule_of(rules, seen_now) else {
                let what = format!("asked by terms of no quota: {:?}", seen_now.said.terms);
                return Some((*attempt, what));
            };
            let mut beside = [position.checked_sub(1), Some(position + 1)].into_iter();
            let is_one_of_many = beside.any(|it| {
                it.and_then(|it| seen.get(it))
                    .is_some_and(|it| it.0 == *now)
            });
            let is_first = last == Moment::FIRST;
            let may_have_changed = Changed::between(course, last, *now);
            let may_differ = is_one_of_many
                || now.era != last.era
                || may_have_changed.is_none_or(Changed::is_any)
                || known.is_none() && !is_first;
            let may_have_changed = may_have_changed.filter(|_| known.is_some() || is_first);
            let before = known.take().unwrap_or_else(|| Known::full(rule));
            last = *now;
            match before.after(rule, seen_now) {
                Ok((after, _)) if may_differ => {
                    *self.counter(may_have_changed.is_some()) += 1;
                    known = Some(after.of_unknown_warmth(rule, now.at_us));
                }
                Ok((after, is_cold)) => {
                    self.strict += 1;
                    self.cold += u64::from(is_cold);
                    known = Some(after);
                }
                Err(what) if may_differ || before.is_far(rule, now.at_us) => {
                    let is_far = before.is_far(rule, now.at_us);
                    let is_comparable = may_have_changed.is_some() && !is_one_of_many && !is_far;
                    if let Some(changed) = may_have_changed.filter(|_| is_comparable)
                        && !before.may_become(rule, rules, &changed, seen_now)
                    {
                        let what = format!("{what}, but for {changed:?}");
                        return Some((*attempt, what));
                    }
                    *self.counter(is_comparable) += 1;
                    known = Some(Known::told(rule, seen_now));
                }
                Err(what) => return Some((*attempt, what)),
            }
            if is_one_of_many {
                known = None;
            }
        }
        None
    }

    fn counter(&mut self, is_within: bool) -> &mut u64 {
        if is_within {
            &mut self.within
        } else {
            &mut self.in_doubt
        }
    }
}

impl Known {
    /// A key that was never seen.
    fn full(rule: &Rule) -> Self {
        Self {
            warmest: rule.full(),
            coldest: rule.full(),
            slop_us: 0,
        }
    }

    /// The state that a verdict tells by itself.
    fn told(rule: &Rule, seen: &Observation) -> Self {
        let said = &seen.said;
        let (full_at, slop_us) = match said.taken {
            0 => (
                (said.at_us + said.reset_after_us, 0),
                u64::from(said.reset_after_us > 0),
            ),
            _ => (said.full_at, 0),
        };
        let state = rule.bucket(said.at_us, full_at);
        let known = Self {
            warmest: state.clone(),
            coldest: state,
            slop_us,
        };
        known.of_unknown_warmth(rule, said.at_us)
    }

    /// This state, of whose idle time in store nothing is known.
    fn of_unknown_warmth(self, rule: &Rule, at_us: u64) -> Self {
        let warm_us = rule.warm_up_us();
        if warm_us == 0 {
            return self;
        }
        let idle_from_us = full_at(&self.warmest).0.max(at_us) + 1;
        Self {
            warmest: cold_from(&self.warmest, idle_from_us + warm_us),
            coldest: cold_from(&self.coldest, 0),
            ..self
        }
    }

    /// The state after a verdict, if that is possible, and whether a charge cost more because the budget was cold.
    fn after(&self, rule: &Rule, seen: &Observation) -> Result<(Self, bool), String> {
        let (said, cost, at_us) = (&seen.said, seen.cost, seen.said.at_us);
        let earliest = hastened(&self.warmest, at_us, self.slop_us);
        let ask = |state: &State, cost| rule.probe(state, at_us, cost).ok_or("no verdict");
        let (kind, harsh) = (ask(&earliest, cost)?, ask(&self.warmest, cost)?);
        allowed(seen, &kind, &harsh, false)?;
        if said.taken == 0 {
            left(said, &ask(&earliest, 0)?, &ask(&self.warmest, 0)?, false)?;
            return Ok((self.clone(), false));
        }
        let mut after = self.clone();
        if !rule.admit(&mut after.warmest, at_us, said.taken)
            || !rule.admit(&mut after.coldest, at_us, said.taken)
        {
            // It passes by what was rounded up.
            return Ok((Self::told(rule, seen), false));
        }
        let told = said.full_at;
        let (first, last) = (full_at(&after.warmest), full_at(&after.coldest));
        let price_us = if rule.warm_up_us() > 0 { PRICE_US } else { 0 };
        let slack_us = self.slop_us + price_us;
        let is_early = match slack_us {
            0 => told < first,
            _ => told.0 + slack_us < first.0,
        };
        let is_late = match price_us {
            0 => told > last,
            _ => told.0 > last.0 + price_us,
        };
        if is_early || is_late {
            return Err(format!(
                "drains until {told:?}, and it was {first:?} to {last:?}"
            ));
        }
        if price_us > 0 {
            after = self.narrowed(rule, seen, slack_us).unwrap_or(after);
        }
        let warmest = rule.moved_to(&after.warmest, told);
        let known = Self {
            warmest: match cold_at(&warmest) {
                0 => warmest,
                // A part of a microsecond is not kept.
                us => cold_from(&warmest, us + 1),
            },
            coldest: rule.moved_to(&after.coldest, told),
            slop_us: 0,
        };
        let verdict = ask(&known.warmest, 0)?;
        left(said, &verdict, &verdict, false)?;
        let plain_us = full_at(&self.warmest).0.max(at_us) + rule.drain_us(said.taken) + 1;
        Ok((known, told.0 > plain_us + price_us))
    }

    /// The states after a charge, by the idle times in store at which it can have had its price.
    fn narrowed(&self, rule: &Rule, seen: &Observation, slack_us: u64) -> Option<Self> {
        let (said, at_us) = (&seen.said, seen.said.at_us);
        let idle_from_us = full_at(&self.warmest).0.max(at_us);
        let of = |state: &State| {
            let until_us = idle_from_us + 1 + rule.warm_up_us();
            cold_at(state).clamp(idle_from_us, until_us)
        };
        let charged = |cold_us: u64| {
            let mut state = cold_from(&self.warmest, cold_us);
            rule.admit(&mut state, at_us, said.taken).then_some(state)
        };
        let drains_until = |cold_us: u64| charged(cold_us).map_or(0, |state| full_at(&state).0);
        // The later it is cold, the less it costs.
        let (from_us, to_us) = (of(&self.coldest), of(&self.warmest) + 1);
        let first_us = first_in(from_us, to_us, |us| {
            drains_until(us) <= said.full_at.0 + PRICE_US
        });
        let last_us = first_in(from_us, to_us, |us| {
            drains_until(us) + slack_us < said.full_at.0
        });
        Some(Self {
            coldest: charged(first_us.saturating_sub(2))?,
            warmest: charged(last_us + 2)?,
            slop_us: 0,
        })
    }

    /// Says whether a verdict may be one on this state, if so much was taken or given back in between.
    fn may_become(
        &self,
        rule: &Rule,
        rules: &[Rule],
        changed: &Changed,
        seen: &Observation,
    ) -> bool {
        let said = &seen.said;
        // At the price of the slowest quota, while it is cold.
        let longest_us = |n: u64| {
            let prices = rules.iter().map(|rule| {
                (rule.drain_us(n + 1) + 1).saturating_mul(rule.quota().price_when_cold())
            });
            prices.max().unwrap_or_default()
        };
        let us = full_at(&self.warmest).0;
        let earliest_us = us.saturating_sub(longest_us(changed.given_back) + self.slop_us);
        let latest_us = us.max(said.at_us) + longest_us(changed.taken);
        let (told_us, least_us, most_us) = match said.taken {
            0 => (said.at_us + said.reset_after_us, 0, 0),
            n => (said.full_at.0, rule.drain_us(n), longest_us(n)),
        };
        told_us >= earliest_us.max(said.at_us) + least_us && told_us <= latest_us + most_us
    }

    /// Says whether it lies so far ahead that another quota may bring it back.
    fn is_far(&self, rule: &Rule, at_us: u64) -> bool {
        let (us, _) = full_at(&self.warmest);
        us.saturating_sub(at_us) > FAR * rule.drain_us(rule.quota().capacity())
    }
}

/// The units that may have been taken, or given back, between two verdicts by something that told nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    taken: u64,
    given_back: u64,
}

impl Changed {
    /// `None` if any state may have come in between.
    fn between(course: &Course, last: Moment, now: Moment) -> Option<Self> {
        let meets = |from: Moment, to: Moment| from <= now && to >= last;
        let settled = |by: Option<Moment>, to: Moment| {
            let by = by.map(|by| Moment {
                at_us: by.at_us.saturating_add(SETTLES_US),
                ..by
            });
            by.map_or(to, |by| by.min(to))
        };
        let mut losses = course.losses.iter();
        if now.era != last.era && last != Moment::FIRST || losses.any(|it| meets(it.from, it.to)) {
            return None;
        }
        let unsure = course.unsure.iter();
        let unsure = unsure.filter(|it| meets(it.from, settled(it.done_by, it.to)));
        let credits = course.credits.iter();
        let credits = credits.filter(|it| meets(it.from, settled(it.returned_by, it.to)));
        // The answer of a charge that was taken unheard may come late, and then it is given back.
        let taken = unsure.map(|it| it.doubt.n).sum();
        let credited: u64 = credits.map(|it| it.n).sum();
        Some(Self {
            taken,
            given_back: credited + taken,
        })
    }

    fn is_any(self) -> bool {
        self.taken > 0 || self.given_back > 0
    }
}

/// The rule by which a verdict was given.
fn rule_of<'a>(rules: &'a [Rule], seen: &Observation) -> Option<&'a Rule> {
    let terms = seen.said.terms;
    let mut rules = rules.iter();
    rules.find(|rule| terms.is_none_or(|terms| terms == Terms::of(rule.quota())))
}

/// The first number from which on this holds, or the end.
fn first_in(mut from: u64, mut to: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while from < to {
        let middle = from + (to - from) / 2;
        if holds(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}
