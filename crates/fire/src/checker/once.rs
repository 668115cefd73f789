//! Says whether each id was charged once, and passed uncharged no more often than its replays.
//!
//! For each caller, id and cost, in the order of the server's time, from what the decisions told:
//!
//! * an admission of an id that is not remembered is charged;
//! * within the life of that charge the next requests pass uncharged, as often as the replays say, and none of them is denied;
//! * a request is charged again only after the replays, counting each request without an answer once, or not at all, or after the
//!   life, or after the charge was given back;
//! * no replay passes on a charge that was given back, and one on which a replay passed is not given back;
//! * each decision tells the replays that are left, and the end of the id's life, also one that denies the request;
//! * the [budget](budgets) was charged as the decisions told, and not otherwise;
//! * the limiter let through what the backend admitted, and nothing else.
//!
//! After a loss of data and a step of the clock anything may be remembered, until an answer tells. So it is after a request
//! without an answer that may have been charged anew.

mod budgets;
mod memory;

use std::collections::{BTreeMap, BTreeSet};

use self::budgets::{Budgets, budget_of};
use self::memory::{Memory, Return};
use super::course::lingers_until;
use super::credit::Credit;
use super::timeline::{Moment, Timeline, Timelines};
use crate::attempt::{Door, Outcome, VerdictRecord};
use crate::history::{Disturbance, Effect, History};
use crate::order::{Order, OrderName};

/// The findings about ids.
#[derive(Clone, Debug, Default)]
pub struct OnceFindings {
    /// The impossible.
    pub wrong: Vec<String>,
    /// The requests that were charged.
    pub charged: u64,
    /// The charged ones within the life of an earlier charge, after all replays.
    pub charged_again: u64,
    /// The requests that passed uncharged.
    pub replayed: u64,
    /// The requests that came after one of another process with the same id.
    pub from_another: u64,
    /// The requests that came after one with the same id that had no answer.
    pub after_unheard: u64,
    /// The charges that were given back.
    pub returned: u64,
    /// The requests that were charged after an earlier charge was given back.
    pub after_returned: u64,
    /// The requests that were judged by all that was known before.
    pub strict: u64,
    /// The requests before which anything may have been remembered.
    pub in_doubt: u64,
}

/// A decision about one id.
struct Seen {
    at: Moment,
    said: [VerdictRecord; 2],
    admitted: bool,
    process: u32,
}

/// One id's requests.
#[derive(Default)]
struct Course {
    seen: Vec<Seen>,
    unsure: Vec<Vec<(Moment, Moment)>>,
    /// The times of the charges that were given back.
    returned_us: BTreeSet<u64>,
}

/// Judges all requests with ids.
pub(super) fn check_once(history: &History, timelines: &Timelines<'_>) -> OnceFindings {
    let mut findings = OnceFindings::default();
    let mut ids: BTreeMap<OrderName, Course> = BTreeMap::new();
    for order in &history.orders {
        let course = ids.entry(order.name).or_default();
        let wrong = course.read(history, timelines, order);
        findings.wrong.extend(wrong.or_else(|| misruled(order)));
        findings.returned += u64::from(order.returned_us.is_some());
    }
    let budgets = Budgets::of(history, timelines);
    for (name, course) in &mut ids {
        course.seen.sort_by_key(|seen| seen.at);
        let home = timelines.home_of(name.caller);
        let disturbances: Vec<_> = (history.disturbances.iter())
            .filter(|it| it.concerns(home) && it.effect != Effect::Trouble)
            .collect();
        let timeline = timelines.of_caller(name.caller);
        let credits = budgets.credits(budget_of(*name));
        if let Err(what) = course.judge(timeline, &disturbances, credits, &mut findings) {
            let line = format!("order {name:?}: {what}");
            findings.wrong.push(line);
        }
    }
    findings.wrong.extend(budgets.judge(timelines));
    findings
}

/// A contradiction between the backend's answer and the limiter's, which refuses if the backend fails.
fn misruled(order: &Order) -> Option<String> {
    let is_ruled = order.door != Door::Backend && !order.outcome.is_unheard();
    // A connection may end without an answer.
    let may_be_silent = order.door == Door::Http && order.outcome.is_silence();
    let passes = matches!(&order.outcome, Outcome::Decided(decided) if decided.admitted);
    let is_right = match order.passed {
        Some(passed) => passed == passes,
        None => !is_ruled || may_be_silent,
    };
    (!is_right).then(|| format!("order that the limiter judged otherwise: {order:?}"))
}

impl Course {
    /// Adds a request. Returns what is impossible in its answer alone.
    fn read(
        &mut self,
        history: &History,
        timelines: &Timelines<'_>,
        order: &Order,
    ) -> Option<String> {
        let timeline = timelines.of_caller(order.name.caller);
        let to_us = match &order.outcome {
            Outcome::Failed(_) => return None,
            Outcome::Decided(decided) => {
                let &[quota, id] = decided.verdicts.as_slice() else {
                    return Some(format!("order with other verdicts: {order:?}"));
                };
                if ![0, order.name.cost].contains(&quota.taken)
                    || quota.taken > 0 && !decided.admitted
                {
                    return Some(format!("order with another cost: {order:?}"));
                }
                let eras = timeline.eras_of(quota.at_us, order.sent_us, order.heard_us);
                match eras.as_slice() {
                    [] => return Some(format!("order decided at another time: {order:?}")),
                    &[era] => {
                        let at_us = quota.at_us;
                        let at = Moment { era, at_us };
                        self.seen.push(Seen {
                            at,
                            said: [quota, id],
                            admitted: decided.admitted,
                            process: order.process,
                        });
                        if order.returned_us.is_some() {
                            self.returned_us.insert(at_us);
                        }
                        return None;
                    }
                    // It came before or after the server's clock was set: its number does not tell.
                    _ => order.heard_us,
                }
            }
            Outcome::Unknown(_) | Outcome::Told | Outcome::Reset => {
                lingers_until(history, order.process, order.sent_us, order.heard_us)
            }
        };
        let spans = timeline.spans(order.sent_us, to_us);
        self.unsure.push(spans.collect());
        None
    }

    fn judge(
        &self,
        timeline: &Timeline,
        disturbances: &[&Disturbance],
        credits: &[Credit],
        findings: &mut OnceFindings,
    ) -> Result<(), String> {
        let (mut memory, mut last) = (Memory::Nothing, Moment::FIRST);
        for (position, seen) in self.seen.iter().enumerate() {
            let now = seen.at;
            let before = position.checked_sub(1).and_then(|it| self.seen.get(it));
            // The order within one call is unknown.
            let is_beside = |other: Option<&Seen>| other.is_some_and(|it| it.at == now);
            let is_one_of_many = is_beside(self.seen.get(position + 1)) || is_beside(before);
            let may_be_lost = disturbances.iter().any(|it| {
                timeline.earliest(it.from_us) <= now && timeline.latest(it.to_us) >= last
            });
            if is_one_of_many || may_be_lost || now.era != last.era {
                memory = match (memory, last) {
                    (Memory::Nothing, Moment::FIRST) if !is_one_of_many => Memory::Nothing,
                    _ => Memory::Unknown,
                };
            }
            let may_be = |spans: &&Vec<(Moment, Moment)>| {
                spans.iter().any(|(from, to)| *to >= last && *from <= now)
            };
            let unheard = self.unsure.iter().filter(may_be).count() as u64;
            let returned = self.returned(memory, credits, last, now);
            let is_within_life =
                matches!(memory, Memory::Charged(charged) if now.at_us < charged.until_us);
            memory = memory.until(now.at_us, unheard, returned);
            let is_given_back = memory.may_be_returned();
            match memory {
                Memory::Unknown => findings.in_doubt += 1,
                _ => findings.strict += 1,
            }
            findings.after_unheard += u64::from(unheard > 0);
            findings.from_another +=
                u64::from(is_within_life && before.is_some_and(|it| it.process != seen.process));
            let after = memory.after(now.at_us, unheard, &seen.said, seen.admitted);
            memory = after.map_err(|what| {
                let Seen { said, .. } = seen;
                format!("{what}, at {now:?} after {memory:?}: {said:?}")
            })?;
            if is_one_of_many {
                memory = Memory::Unknown;
            }
            let [quota, _] = seen.said;
            match (seen.admitted, quota.taken) {
                (true, 0) => findings.replayed += 1,
                (true, _) => {
                    findings.charged += 1;
                    findings.after_returned += u64::from(is_within_life && is_given_back);
                    findings.charged_again += u64::from(is_within_life && !is_given_back);
                }
                (false, _) => {}
            }
            last = now;
        }
        Ok(())
    }

    /// The return of the charge that is remembered, between two requests.
    fn returned(&self, memory: Memory, credits: &[Credit], last: Moment, now: Moment) -> Return {
        let Memory::Charged(charged) = memory else {
            return Return::No;
        };
        let since_us = charged.since_us();
        if !self.returned_us.contains(&since_us) {
            return Return::No;
        }
        // One call may charge several ids of a caller at one time. Which of their credits is this one's does not matter if all are
        // done.
        let credits = || credits.iter().filter(|credit| credit.at_us == since_us);
        let is_over = |credit: &Credit| credit.returned_by.is_some_and(|by| by < now);
        let is_under_way = |credit: &Credit| credit.from <= now && credit.to >= last;
        match credits().next() {
            // Replays have passed on each.
            None => Return::No,
            Some(_) if credits().all(is_over) => Return::Surely,
            Some(_) if credits().any(is_under_way) => Return::Perhaps,
            Some(_) => Return::No,
        }
    }
}
