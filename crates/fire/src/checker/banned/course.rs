//! The course of one caller's requests, joined from all that is recorded.

use std::cmp::Reverse;

use crate::attempt::{Outcome, VerdictRecord};
use crate::checker::course::{Hindrances, done_by, lingers_until};
use crate::checker::timeline::{Moment, Step, Timeline, Timelines};
use crate::history::{Effect, History};
use crate::knock::{Guarded, Knock};
use crate::operator::{OperatorAct, OperatorCall};

/// A span of the server's time.
type Span = (Moment, Moment);

/// A decision.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// On a request.
    Knock(Box<SeenKnock>),
    /// On a ban by hand.
    Ban(SeenBan),
}

/// The decision on a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenKnock {
    pub(super) is_important: bool,
    pub(super) admitted: bool,
    pub(super) quota: VerdictRecord,
    pub(super) ban: VerdictRecord,
}

/// The decision on a ban by hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenBan {
    pub(super) lasting_us: u64,
    /// The end of the ban that is in force then.
    pub(super) ends_us: u64,
}

impl SeenKnock {
    /// The time at which the budget is full again.
    pub(super) fn full_us(&self) -> u64 {
        self.quota.at_us + self.quota.reset_after_us
    }

    /// The end of the ban, if there is one.
    pub(super) fn banned_until_us(&self) -> Option<u64> {
        (!self.ban.passes).then(|| self.ban.at_us + self.ban.retry_after_us)
    }
}

impl Seen {
    /// The end of the ban that it told, if it told one.
    pub(super) fn banned_until_us(&self) -> Option<u64> {
        match self {
            Self::Knock(knock) => knock.banned_until_us(),
            Self::Ban(ban) => Some(ban.ends_us),
        }
    }
}

/// A strike by a response, at an unknown time.
struct Strike {
    spans: Vec<Span>,
    /// True if it surely was counted within the only span.
    is_certain: bool,
}

/// An action of an operator whose time is unknown.
pub(super) struct Act {
    /// The length if it is a ban, which is perhaps never done; otherwise this ends a ban.
    pub(super) lasting_us: Option<u64>,
    spans: Vec<Span>,
    /// True if it surely was done within the only span.
    pub(super) is_certain: bool,
}

impl Act {
    /// The span between these moments in which it may have been done.
    pub(super) fn between(&self, from: Moment, to: Moment) -> Option<Span> {
        let mut spans = self.spans.iter();
        let (first, last) = spans.find(|span| meets(span, from, to))?;
        Some((from.max(*first), to.min(*last)))
    }

    /// The latest moment at which it may have been done.
    pub(super) fn ends(&self) -> Moment {
        self.spans.last().map_or(Moment::FIRST, |(_, last)| *last)
    }

    /// Says whether it surely was done before this moment.
    pub(super) fn is_done_before(&self, to: Moment) -> bool {
        self.is_certain && self.ends() < to
    }
}

/// The requests of a caller, and everything else that may have changed what they found.
pub(super) struct CallerCourse {
    /// The decisions, in the order of the server's time.
    pub(super) seen: Vec<(Moment, Seen)>,
    /// The spans in which each request of unknown outcome may have been decided, one for each era.
    unsure: Vec<Vec<Span>>,
    strikes: Vec<Strike>,
    acts: Vec<Act>,
    losses: Vec<Span>,
    steps: Vec<Step>,
}

/// All that is recorded of a run, and the readers of it.
pub(super) struct Reader<'a> {
    pub(super) history: &'a History,
    pub(super) timelines: &'a Timelines<'a>,
    pub(super) hindrances: Hindrances,
}

impl Reader<'_> {
    pub(super) fn course(&self, caller: u32) -> CallerCourse {
        let (timeline, home) = (
            self.timelines.of_caller(caller),
            self.timelines.home_of(caller),
        );
        let losses = self.history.disturbances.iter().filter(|it| {
            it.concerns(home) && matches!(it.effect, Effect::Loss | Effect::MaybeLoss)
        });
        CallerCourse {
            seen: Vec::new(),
            unsure: Vec::new(),
            strikes: Vec::new(),
            acts: Vec::new(),
            losses: losses
                .map(|it| (timeline.earliest(it.from_us), timeline.latest(it.to_us)))
                .collect(),
            steps: timeline.steps(),
        }
    }

    fn timeline(&self, caller: u32) -> &Timeline {
        self.timelines.of_caller(caller)
    }

    fn lingering(&self, caller: u32, process: u32, sent_us: u64, heard_us: u64) -> Vec<Span> {
        let until_us = lingers_until(self.history, process, sent_us, heard_us);
        let timeline = self.timeline(caller);
        timeline.spans(sent_us, until_us).collect()
    }

    /// Adds a request. Returns what is impossible in its answer alone.
    pub(super) fn read_knock(&self, course: &mut CallerCourse, knock: &Knock) -> Option<String> {
        let timeline = self.timeline(knock.caller);
        let (sent_us, heard_us) = (knock.sent_us, knock.heard_us);
        let expected = status_of(knock);
        if knock.status.is_some_and(|status| status != expected) {
            return Some(format!("knock not answered with {expected}: {knock:?}"));
        }
        let spans = match &knock.outcome {
            Outcome::Failed(_) => return None,
            Outcome::Decided(decided) => {
                let &[quota, ban] = decided.verdicts.as_slice() else {
                    return Some(format!("knock with other verdicts: {knock:?}"));
                };
                let admitted = decided.admitted;
                if admitted != (quota.passes && ban.passes) {
                    return Some(format!("knock is not decided by both: {knock:?}"));
                }
                let eras = timeline.eras_of(quota.at_us, sent_us, heard_us);
                if eras.is_empty() {
                    let ahead = timeline.ahead();
                    return Some(format!(
                        "knock decided at another time ({ahead}): {knock:?}"
                    ));
                }
                let moment = match eras.as_slice() {
                    &[era] => Some(Moment {
                        era,
                        at_us: quota.at_us,
                    }),
                    _ => None,
                };
                if admitted && knock.fails {
                    course.strikes.push(self.strike(course, knock, moment));
                }
                if let Some(moment) = moment {
                    let seen = SeenKnock {
                        is_important: knock.is_important,
                        admitted,
                        quota,
                        ban,
                    };
                    course.seen.push((moment, Seen::Knock(Box::new(seen))));
                    return None;
                }
                // It came before or after the server's clock was set: its number does not tell.
                timeline.spans(sent_us, heard_us).collect()
            }
            Outcome::Unknown(_) | Outcome::Told | Outcome::Reset => {
                self.lingering(knock.caller, knock.process, sent_us, heard_us)
            }
        };
        course.unsure.push(spans);
        None
    }

    /// The strike of a request that passed at a moment, if that is known, and that its service refused.
    fn strike(&self, course: &CallerCourse, knock: &Knock, passed: Option<Moment>) -> Strike {
        let (sent_us, heard_us) = (knock.sent_us, knock.heard_us);
        let done_us = done_by(
            self.history,
            &self.hindrances,
            knock.process,
            sent_us,
            heard_us,
        );
        if let Some(passed) = passed
            && let Some(done_us) = done_us
            && let &[(_, last)] = self
                .timeline(knock.caller)
                .spans(heard_us, done_us)
                .collect::<Vec<_>>()
                .as_slice()
            && last.era == passed.era
            && !course.has_loss(passed, last)
        {
            return Strike {
                spans: vec![(passed, last)],
                is_certain: true,
            };
        }
        let mut spans = self.lingering(knock.caller, knock.process, sent_us, heard_us);
        spans.retain(|(_, last)| passed.is_none_or(|passed| *last >= passed));
        Strike {
            spans,
            is_certain: false,
        }
    }

    /// Adds a call of an operator. Returns what is impossible in its answer alone.
    pub(super) fn read_call(
        &self,
        course: &mut CallerCourse,
        call: &OperatorCall,
    ) -> Option<String> {
        let timeline = self.timeline(call.caller);
        let (sent_us, heard_us) = (call.sent_us, call.heard_us);
        let lasting_us = match call.act {
            OperatorAct::Ban { lasting_us } => Some(lasting_us),
            OperatorAct::Unban => None,
        };
        let (spans, is_done) = match (&call.outcome, lasting_us) {
            (Outcome::Failed(why), _) if why == Outcome::UNASKED => {
                return Some(format!(
                    "ban by hand that no backend was asked for: {call:?}"
                ));
            }
            (Outcome::Failed(_), _) => return None,
            (Outcome::Decided(decided), Some(lasting_us)) => {
                let &[ban] = decided.verdicts.as_slice() else {
                    return Some(format!("ban by hand with other verdicts: {call:?}"));
                };
                if !decided.admitted || ban.remaining > 0 || ban.taken == 0 {
                    return Some(format!("ban by hand without an effect: {call:?}"));
                }
                let eras = timeline.eras_of(ban.at_us, sent_us, heard_us);
                match eras.as_slice() {
                    [] => {
                        let ahead = timeline.ahead();
                        return Some(format!(
                            "ban by hand decided at another time ({ahead}): {call:?}"
                        ));
                    }
                    &[era] => {
                        let at_us = ban.at_us;
                        let seen = SeenBan {
                            lasting_us,
                            ends_us: at_us + ban.reset_after_us,
                        };
                        let moment = Moment { era, at_us };
                        course.seen.push((moment, Seen::Ban(seen)));
                        return None;
                    }
                    _ => (timeline.spans(sent_us, heard_us).collect(), false),
                }
            }
            (Outcome::Reset, None) => (timeline.spans(sent_us, heard_us).collect(), true),
            _ => (
                self.lingering(call.caller, call.process, sent_us, heard_us),
                false,
            ),
        };
        let is_certain = match spans.as_slice() {
            &[(first, last)] => is_done && !course.has_loss(first, last),
            _ => false,
        };
        course.acts.push(Act {
            lasting_us,
            spans,
            is_certain,
        });
        None
    }
}

/// The status of the answer of a service with the layer around it, which lets nothing pass without a decision.
fn status_of(knock: &Knock) -> u16 {
    match &knock.outcome {
        Outcome::Decided(decided) if !decided.admitted => 429,
        Outcome::Decided(_) if knock.fails => Guarded::STRIKE,
        Outcome::Decided(_) => 200,
        _ => 503,
    }
}

fn meets((first, last): &Span, from: Moment, to: Moment) -> bool {
    *last >= from && *first <= to
}

impl CallerCourse {
    /// Puts the decisions in their order. Of those at one time, in one call, each leaves less than the one before, and the strike
    /// that begins a ban comes before the requests that the ban refuses: those may be of a class for which there still is room. A
    /// ban by hand comes before the requests that are told its end.
    pub(super) fn sort(&mut self) {
        self.seen.sort_by_key(|(moment, seen)| {
            let ends_us = seen.banned_until_us().unwrap_or_default();
            let of_knock = match seen {
                Seen::Ban(_) => None,
                Seen::Knock(seen) => Some((
                    seen.full_us(),
                    !seen.admitted,
                    Reverse(seen.ban.remaining),
                    seen.quota.passes,
                )),
            };
            (*moment, ends_us, of_knock)
        });
    }

    /// The number of requests of unknown outcome that may have been decided between these moments, and after a time by the clock
    /// of then.
    pub(super) fn unheard(&self, from: Moment, after_us: u64, to: Moment) -> u64 {
        count_between(self.unsure.iter(), from, after_us, to)
    }

    /// The number of strikes between these moments that no decision told of, and after a time: by responses, and by requests of
    /// unknown outcome.
    pub(super) fn untold_strikes(&self, from: Moment, after_us: u64, to: Moment) -> u64 {
        let by_responses = self.strikes.iter().map(|strike| &strike.spans);
        self.unheard(from, after_us, to) + count_between(by_responses, from, after_us, to)
    }

    /// The number of strikes by responses that surely were counted between these moments, and after a time.
    pub(super) fn sure_strikes(&self, from: Moment, after_us: u64, to: Moment) -> u64 {
        let is_between =
            |(first, last): &Span| *first >= from && *last < to && first.at_us > after_us;
        let sure = self.strikes.iter().filter(|strike| strike.is_certain);
        let sure = sure.filter(|strike| strike.spans.iter().all(is_between));
        sure.count() as u64
    }

    /// The actions of operators that may have been done between these moments, by their numbers.
    pub(super) fn acts(&self, from: Moment, to: Moment) -> impl Iterator<Item = (usize, &Act)> {
        let acts = self.acts.iter().enumerate();
        acts.filter(move |(_, act)| act.between(from, to).is_some())
    }

    pub(super) fn act(&self, number: usize) -> &Act {
        &self.acts[number]
    }

    /// Says whether data may have been lost between these moments.
    pub(super) fn has_loss(&self, from: Moment, to: Moment) -> bool {
        self.losses.iter().any(|span| meets(span, from, to))
    }

    /// Says whether the clock stepped back between these moments.
    pub(super) fn has_step_back(&self, from: Moment, to: Moment) -> bool {
        let eras = self.steps.get(from.era + 1..=to.era).unwrap_or_default();
        eras.iter().any(|step| step.back_us > 0)
    }
}

/// The number of actions that may have been done between these moments, and after a time by the clock of then.
fn count_between<'a>(
    actions: impl Iterator<Item = &'a Vec<Span>>,
    from: Moment,
    after_us: u64,
    to: Moment,
) -> u64 {
    let may_be = |spans: &&Vec<Span>| {
        let mut spans = spans.iter();
        spans.any(|span| meets(span, from, to) && span.1.at_us > after_us)
    };
    actions.filter(may_be).count() as u64
}
