//! Translates the clients' time into the servers' time.
//!
//! All hosts of a run are one, so their clocks agree, until a disturbance sets the servers' clock on purpose, or lets another
//! server decide whose clock is another. Then a new *era* begins: within an era the servers' time orders the decisions, and
//! across eras the era does. Callers of other servers have other eras.

use std::collections::BTreeMap;

use crate::attempt::Budget;
use crate::history::{Disturbance, Effect, History, Home};

/// The largest seeming difference of two readings of one clock.
const TOLERANCE_US: u64 = 2_000;

/// A moment of the servers' time. Eras come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) era: usize,
    pub(super) at_us: u64,
}

impl Moment {
    pub(super) const FIRST: Self = Self { era: 0, at_us: 0 };
    pub(super) const LAST: Self = Self {
        era: usize::MAX,
        at_us: u64::MAX,
    };
}

#[derive(Debug)]
struct Era {
    from_us: u64,
    to_us: u64,
    ahead_us: i64,
}

/// The end of one era and the beginning of the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The size of the step if the clock stepped back; 0 if it stepped forward.
    pub(super) back_us: u64,
    /// The latest time that it showed before.
    pub(super) ended_us: u64,
}

/// The eras of one home.
#[derive(Debug)]
pub(super) struct Timeline {
    eras: Vec<Era>,
}

/// The timelines of all homes.
#[derive(Debug)]
pub(super) struct Timelines<'a> {
    history: &'a History,
    /// One for each home, and one for callers without one.
    all: BTreeMap<Option<Home>, Timeline>,
}

impl<'a> Timelines<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let homes = history.homes.values().map(|&home| Some(home));
        let all = homes.chain([None]).map(|home| {
            let disturbances = history.disturbances.iter();
            let there = disturbances.filter(|it| it.concerns(home));
            (home, Timeline::of(there))
        });
        Self {
            history,
            all: all.collect(),
        }
    }

    /// The clock that decides about this budget.
    pub(super) fn of_budget(&self, budget: Budget) -> &Timeline {
        self.of_caller(budget.caller)
    }

    /// The clock that decides about this caller.
    pub(super) fn of_caller(&self, caller: u32) -> &Timeline {
        &self.all[&self.home_of(caller)]
    }

    pub(super) fn home(&self, budget: Budget) -> Option<Home> {
        self.home_of(budget.caller)
    }

    pub(super) fn home_of(&self, caller: u32) -> Option<Home> {
        self.history.homes.get(&caller).copied()
    }
}

impl Timeline {
    fn of<'a>(disturbances: impl Iterator<Item = &'a Disturbance>) -> Self {
        let mut eras = vec![Era {
            from_us: 0,
            to_us: u64::MAX,
            ahead_us: 0,
        }];
        for disturbance in disturbances {
            let Effect::Clock(ahead_us) = disturbance.effect else {
                continue;
            };
            if let Some(last) = eras.last_mut() {
                last.to_us = disturbance.to_us;
            }
            eras.push(Era {
                from_us: disturbance.from_us,
                to_us: u64::MAX,
                ahead_us,
            });
        }
        Self { eras }
    }

    /// The offset of the clock, in words, for a reader who wonders why something does not fit.
    pub(super) fn ahead(&self) -> String {
        let era = |era: &Era| format!("{} µs ahead from {} on", era.ahead_us, era.from_us);
        let eras: Vec<_> = self.eras.iter().map(era).collect();
        eras.join(", ")
    }

    /// The step of the clock at the start of each era.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut before = (0, 0);
        let step = |era: &Era| {
            let (ahead_us, ended_us) = before;
            before = (era.ahead_us, shifted(era.to_us, era.ahead_us));
            Step {
                back_us: u64::try_from(ahead_us - era.ahead_us).unwrap_or_default(),
                ended_us,
            }
        };
        self.eras.iter().map(step).collect()
    }

    /// The eras in which a decision at `at_us` can have been taken that was asked for and heard of at these times.
    pub(super) fn eras_of(&self, at_us: u64, sent_us: u64, heard_us: u64) -> Vec<usize> {
        self.eras_by_state(at_us, sent_us, heard_us, 0)
    }

    /// The eras by whose clock a process can have decided so from a state of this age. It goes by that clock for as long as it
    /// believes the state, and so beyond the end of an era.
    pub(super) fn eras_by_state(
        &self,
        at_us: u64,
        sent_us: u64,
        heard_us: u64,
        age_us: u64,
    ) -> Vec<usize> {
        let sent_us = sent_us.saturating_sub(age_us);
        let fits = |era: &Era| {
            let ended_us = era.to_us.saturating_add(age_us);
            let from = shifted(sent_us.max(era.from_us), era.ahead_us);
            let to = shifted(heard_us.min(ended_us), era.ahead_us);
            at_us.saturating_add(TOLERANCE_US) >= from && at_us <= to.saturating_add(TOLERANCE_US)
        };
        let eras = self.eras.iter().enumerate();
        eras.filter(|(_, era)| fits(era))
            .map(|(era, _)| era)
            .collect()
    }

    /// The spans in which an action can have been decided that was under way between two points of the clients' time: one for
    /// each era.
    pub(super) fn spans(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = (Moment, Moment)> {
        let eras = self.eras.iter().enumerate();
        let meeting = eras.filter(move |(_, era)| from_us <= era.to_us && to_us >= era.from_us);
        meeting.map(move |(number, era)| {
            let moment = |wall_us: u64, tolerance_us: i64| Moment {
                era: number,
                at_us: shifted(shifted(wall_us, era.ahead_us), tolerance_us),
            };
            (
                moment(from_us.max(era.from_us), -TOLERANCE_US.cast_signed()),
                moment(to_us.min(era.to_us), TOLERANCE_US.cast_signed()),
            )
        })
    }

    /// The earliest time of the decision on a question asked at `wall_us`.
    pub(super) fn earliest(&self, wall_us: u64) -> Moment {
        let era = self.eras.iter().position(|era| wall_us <= era.to_us);
        let earliest = self.moment(era.unwrap_or_default(), wall_us);
        Moment {
            at_us: earliest.at_us.saturating_sub(TOLERANCE_US),
            ..earliest
        }
    }

    /// The latest time of the decision on a question that was over at `wall_us`.
    pub(super) fn latest(&self, wall_us: u64) -> Moment {
        let era = self.eras.iter().rposition(|era| wall_us >= era.from_us);
        let latest = self.moment(era.unwrap_or_default(), wall_us);
        Moment {
            at_us: latest.at_us.saturating_add(TOLERANCE_US),
            ..latest
        }
    }

    /// The latest time that the clock of this era showed at `wall_us`, set meanwhile or not.
    pub(super) fn latest_in(&self, era: usize, wall_us: u64) -> u64 {
        self.moment(era, wall_us).at_us.saturating_add(TOLERANCE_US)
    }

    fn moment(&self, era: usize, wall_us: u64) -> Moment {
        let ahead_us = self.eras.get(era).map_or(0, |era| era.ahead_us);
        Moment {
            era,
            at_us: shifted(wall_us, ahead_us),
        }
    }
}

fn shifted(us: u64, by_us: i64) -> u64 {
    us.saturating_add_signed(by_us)
}
