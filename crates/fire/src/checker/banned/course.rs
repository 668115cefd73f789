//! The course of one caller's requests, joined from all that is recorded.

use std::cmp::Reverse;

use crate::attempt::{Outcome, VerdictRecord};
use crate::checker::course::lingers_until;
use crate::checker::timeline::{Moment, Step, Timelines};
use crate::history::{Effect, History};
use crate::knock::Knock;

/// A span of the server's time.
type Span = (Moment, Moment);

/// The decision on a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) is_important: bool,
    pub(super) admitted: bool,
    pub(super) quota: VerdictRecord,
    pub(super) ban: VerdictRecord,
}

impl Seen {
    /// The time at which the budget is full again.
    pub(super) fn full_us(&self) -> u64 {
        self.quota.at_us + self.quota.reset_after_us
    }

    /// The end of the ban, if there is one.
    pub(super) fn banned_until_us(&self) -> Option<u64> {
        (!self.ban.passes).then(|| self.ban.at_us + self.ban.retry_after_us)
    }
}

/// The requests of a caller, and everything else that may have changed what they found.
pub(super) struct CallerCourse {
    /// The decided ones, in the order of the server's time.
    pub(super) seen: Vec<(Moment, Seen)>,
    /// The spans in which each request of unknown outcome may have been decided, one for each era.
    unsure: Vec<Vec<Span>>,
    losses: Vec<Span>,
    steps: Vec<Step>,
}

impl CallerCourse {
    pub(super) fn of(history: &History, timelines: &Timelines<'_>, caller: u32) -> Self {
        let (timeline, home) = (timelines.of_caller(caller), timelines.home_of(caller));
        let losses = history.disturbances.iter().filter(|it| {
            it.concerns(home) && matches!(it.effect, Effect::Loss | Effect::MaybeLoss)
        });
        Self {
            seen: Vec::new(),
            unsure: Vec::new(),
            losses: losses
                .map(|it| (timeline.earliest(it.from_us), timeline.latest(it.to_us)))
                .collect(),
            steps: timeline.steps(),
        }
    }

    /// Adds a request. Returns what is impossible in its answer alone.
    pub(super) fn read(
        &mut self,
        history: &History,
        timelines: &Timelines<'_>,
        knock: &Knock,
    ) -> Option<String> {
        let timeline = timelines.of_caller(knock.caller);
        let (sent_us, heard_us) = (knock.sent_us, knock.heard_us);
        let to_us = match &knock.outcome {
            Outcome::Failed(_) => return None,
            Outcome::Decided(decided) => {
                let &[quota, ban] = decided.verdicts.as_slice() else {
                    return Some(format!("knock with other verdicts: {knock:?}"));
                };
                if decided.admitted != (quota.passes && ban.passes) {
                    return Some(format!("knock is not decided by both: {knock:?}"));
                }
                let eras = timeline.eras_of(quota.at_us, sent_us, heard_us);
                if eras.is_empty() {
                    let ahead = timeline.ahead();
                    return Some(format!(
                        "knock decided at another time ({ahead}): {knock:?}"
                    ));
                }
                if let &[era] = eras.as_slice() {
                    let at_us = quota.at_us;
                    let admitted = decided.admitted;
                    let seen = Seen {
                        is_important: knock.is_important,
                        admitted,
                        quota,
                        ban,
                    };
                    self.seen.push((Moment { era, at_us }, seen));
                    return None;
                }
                // It came before or after the server's clock was set: its number does not tell.
                heard_us
            }
            Outcome::Unknown(_) | Outcome::Told | Outcome::Reset => {
                lingers_until(history, sent_us, heard_us)
            }
        };
        self.unsure.push(timeline.spans(sent_us, to_us).collect());
        None
    }

    /// Puts the decisions in their order. Of those at one time, in one call, each leaves less than the one before, and the strike
    /// that begins a ban comes before the requests that the ban refuses: those may be of a class for which there still is room.
    pub(super) fn sort(&mut self) {
        self.seen.sort_by_key(|(moment, seen)| {
            let left = Reverse(seen.ban.remaining);
            (
                *moment,
                seen.full_us(),
                !seen.admitted,
                !seen.ban.passes,
                left,
                seen.quota.passes,
            )
        });
    }

    /// The number of requests of unknown outcome that may have been decided between these moments, and after a time by the clock
    /// of then.
    pub(super) fn unknown(&self, from: Moment, after_us: u64, to: Moment) -> u64 {
        let may_be = |spans: &&Vec<Span>| {
            let mut spans = spans.iter();
            spans.any(|(first, last)| *last >= from && *first <= to && last.at_us > after_us)
        };
        self.unsure.iter().filter(may_be).count() as u64
    }

    /// Says whether data may have been lost between these moments.
    pub(super) fn has_loss(&self, from: Moment, to: Moment) -> bool {
        let mut losses = self.losses.iter();
        losses.any(|(first, last)| *last >= from && *first <= to)
    }

    /// Says whether the clock stepped back between these moments.
    pub(super) fn has_step_back(&self, from: Moment, to: Moment) -> bool {
        let eras = self.steps.get(from.era + 1..=to.era).unwrap_or_default();
        eras.iter().any(|step| step.back_us > 0)
    }
}
