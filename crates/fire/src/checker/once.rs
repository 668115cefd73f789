//! Says whether each id was charged once, and passed uncharged no more often than its replays.
//!
//! For each caller and id, in the order of the server's time, from what the decisions told:
//!
//! * an admission of an id that is not remembered is charged;
//! * within the life of that charge the next requests pass uncharged, as often as the replays say, and none of them is denied;
//! * a request is charged again only after the replays, counting each request without an answer once, or not at all, or after the
//!   life;
//! * each decision tells the replays that are left, and the end of the id's life.
//!
//! After a loss of data and a step of the clock anything may be remembered, until a charge is seen. So it is after a request
//! without an answer that may have been charged anew.

use std::collections::BTreeMap;

use super::course::lingers_until;
use super::timeline::{Moment, Timeline, Timelines};
use crate::attempt::{Outcome, VerdictRecord};
use crate::history::{Disturbance, Effect, History};
use crate::order::{Identified, Order};

/// The findings about ids.
#[derive(Clone, Debug, Default)]
pub struct OnceFindings {
    /// The impossible.
    pub wrong: Vec<String>,
    /// The requests that were charged.
    pub charged: u64,
    /// The requests that passed uncharged.
    pub replayed: u64,
    /// The requests that were judged by all that was known before.
    pub strict: u64,
    /// The requests before which anything may have been remembered.
    pub in_doubt: u64,
}

/// The memory of an id, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Nothing,
    /// It was charged, lives until then, and has been replayed so often: at least, and at most.
    Charged {
        until_us: u64,
        least: u64,
        most: u64,
    },
    Unknown,
}

/// One id's requests.
#[derive(Default)]
struct Course {
    seen: Vec<(Moment, [VerdictRecord; 2], bool)>,
    unsure: Vec<Vec<(Moment, Moment)>>,
}

/// Judges all requests with ids.
pub(super) fn check_once(history: &History, timelines: &Timelines<'_>) -> OnceFindings {
    let mut findings = OnceFindings::default();
    let mut ids: BTreeMap<(u32, u32), Course> = BTreeMap::new();
    for order in &history.orders {
        let course = ids.entry((order.caller, order.id)).or_default();
        let wrong = course.read(history, timelines, order);
        findings.wrong.extend(wrong);
    }
    for ((caller, id), course) in &mut ids {
        course.seen.sort_by_key(|(moment, ..)| *moment);
        let home = timelines.home_of(*caller);
        let disturbances: Vec<_> = (history.disturbances.iter())
            .filter(|it| it.concerns(home) && it.effect != Effect::Trouble)
            .collect();
        let timeline = timelines.of_caller(*caller);
        if let Err(what) = course.judge(timeline, &disturbances, &mut findings) {
            let line = format!("order {id} of caller {caller}: {what}");
            findings.wrong.push(line);
        }
    }
    findings
}

impl Course {
    /// Adds a request. Returns what is impossible in its answer alone.
    fn read(
        &mut self,
        history: &History,
        timelines: &Timelines<'_>,
        order: &Order,
    ) -> Option<String> {
        let timeline = timelines.of_caller(order.caller);
        let to_us = match &order.outcome {
            Outcome::Failed(_) => return None,
            Outcome::Decided(decided) => {
                let &[quota, id] = decided.verdicts.as_slice() else {
                    return Some(format!("order with other verdicts: {order:?}"));
                };
                let eras = timeline.eras_of(quota.at_us, order.sent_us, order.heard_us);
                match eras.as_slice() {
                    [] => return Some(format!("order decided at another time: {order:?}")),
                    &[era] => {
                        let at_us = quota.at_us;
                        let moment = Moment { era, at_us };
                        self.seen.push((moment, [quota, id], decided.admitted));
                        return None;
                    }
                    // It came before or after the server's clock was set: its number does not tell.
                    _ => order.heard_us,
                }
            }
            Outcome::Unknown(_) | Outcome::Told | Outcome::Reset => {
                lingers_until(history, order.sent_us, order.heard_us)
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
        findings: &mut OnceFindings,
    ) -> Result<(), String> {
        let (mut memory, mut last) = (Memory::Nothing, Moment::FIRST);
        for (position, (now, said, admitted)) in self.seen.iter().enumerate() {
            // Of one call the order is unknown.
            let is_beside = |other: Option<&(Moment, _, _)>| other.is_some_and(|it| it.0 == *now);
            let is_one_of_many = is_beside(self.seen.get(position + 1))
                || position > 0 && is_beside(self.seen.get(position - 1));
            let may_be_lost = disturbances.iter().any(|it| {
                timeline.earliest(it.from_us) <= *now && timeline.latest(it.to_us) >= last
            });
            if is_one_of_many || may_be_lost || now.era != last.era {
                memory = match (memory, last) {
                    (Memory::Nothing, Moment::FIRST) if !is_one_of_many => Memory::Nothing,
                    _ => Memory::Unknown,
                };
            }
            let may_be = |spans: &&Vec<(Moment, Moment)>| {
                spans.iter().any(|(from, to)| *to >= last && from <= now)
            };
            let unheard = self.unsure.iter().filter(may_be).count() as u64;
            memory = next(memory, now.at_us, unheard);
            if memory == Memory::Unknown {
                findings.in_doubt += 1;
            } else {
                findings.strict += 1;
            }
            memory = after(memory, now.at_us, unheard, said, *admitted)
                .map_err(|what| format!("{what}, at {now:?} after {memory:?}: {said:?}"))?;
            if is_one_of_many {
                memory = Memory::Unknown;
            }
            let [quota, _] = said;
            *match (admitted, quota.taken) {
                (true, 0) => &mut findings.replayed,
                (true, _) => &mut findings.charged,
                (false, _) => {
                    last = *now;
                    continue;
                }
            } += 1;
            last = *now;
        }
        Ok(())
    }
}

/// The memory just before a request, if so many others may have come unheard.
fn next(memory: Memory, at_us: u64, unheard: u64) -> Memory {
    match memory {
        Memory::Charged { until_us, .. } if at_us >= until_us && unheard == 0 => Memory::Nothing,
        Memory::Charged { until_us, .. } if at_us >= until_us => Memory::Unknown,
        Memory::Nothing if unheard > 0 => Memory::Unknown,
        memory => memory,
    }
}

/// The memory after a request, if that is possible.
fn after(
    memory: Memory,
    at_us: u64,
    unheard: u64,
    said: &[VerdictRecord; 2],
    admitted: bool,
) -> Result<Memory, String> {
    let life_us = u64::try_from(Identified::LIFE.as_micros()).unwrap_or(u64::MAX);
    let [quota, id] = said;
    if !admitted {
        return match memory {
            Memory::Charged { least, most, .. } if most + unheard < Identified::REPLAYS => {
                Err(format!("denied after {least} to {most} replays"))
            }
            // Another may have been charged anew.
            Memory::Charged { .. } if unheard > 0 => Ok(Memory::Unknown),
            memory => Ok(memory),
        };
    }
    if quota.taken > 0 {
        if let Memory::Charged { least, most, .. } = memory
            && most + unheard < Identified::REPLAYS
        {
            return Err(format!("charged again after {least} to {most} replays"));
        }
        if (id.remaining, id.reset_after_us) != (Identified::REPLAYS, life_us) {
            return Err("an id that was charged begins with another life".to_owned());
        }
        return Ok(Memory::Charged {
            until_us: at_us + life_us,
            least: 0,
            most: 0,
        });
    }
    match memory {
        Memory::Nothing => Err("passed uncharged, and nothing was remembered".to_owned()),
        Memory::Unknown => Ok(Memory::Unknown),
        Memory::Charged {
            until_us,
            least,
            most,
        } => {
            // One of those that were unheard may have been charged anew.
            if most + unheard > Identified::REPLAYS {
                return Ok(Memory::Unknown);
            }
            let (least, most) = (least + 1, most + unheard + 1);
            let used = Identified::REPLAYS - id.remaining.min(Identified::REPLAYS);
            if !(least..=most).contains(&used) || least > Identified::REPLAYS {
                return Err(format!(
                    "its replay number {used}, and it was {least} to {most}"
                ));
            }
            if at_us + id.reset_after_us != until_us {
                return Err(format!("the life of its id ends at {until_us}"));
            }
            Ok(Memory::Charged {
                until_us,
                least: used,
                most: used,
            })
        }
    }
}
