//! The line of one budget: the charges that were taken, each with its stretch, and whatever may have moved or freed them.

use tollgate_core::{DEBT_CEILING, Quota};

use super::super::credit::Credit;
use super::super::timeline::Moment;
use super::super::trial::{Course, Observation};
use super::figures::Figures;

/// A verdict, with its attempt.
pub(super) type Seen = (Moment, usize, Observation);

/// The time in which a charge drains, in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u128,
    pub(super) end: u128,
}

/// A charge that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) moment: Moment,
    pub(super) attempt: usize,
    pub(super) stretch: Stretch,
    pub(super) turn_us: u64,
    pub(super) cost: u64,
}

/// A credit that may have been done, and its possible effects.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenBack {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) n: u64,
    /// The time of the charge, and the end of its stretch.
    pub(super) charge: (u64, u128),
    pub(super) turn_us: u64,
    /// The part of the stretch that is free if the charge left before its turn.
    pub(super) freed: Stretch,
    /// True if it may have come before the turn.
    pub(super) leaves: bool,
    /// True if its charge was made by the same clock.
    pub(super) is_of_one_clock: bool,
    /// True if it may have moved others up: it may have come after the turn, when no request waited.
    pub(super) moves_up: bool,
    /// True if its charge may be one of an earlier clock, or of data that were lost since. It may free what others stand in.
    pub(super) is_stray: bool,
    /// The time by which it surely was done, if that is known.
    pub(super) returned_by: Option<Moment>,
}

/// A charge that may have been taken, and may have been given back because its client did not hear of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unheard {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) n: u64,
    pub(super) moves_up: bool,
    pub(super) is_stray: bool,
}

#[derive(Debug)]
pub(super) struct Line<'a> {
    /// The largest of all versions of the quota.
    pub(super) figures: Figures,
    /// Those of the quota itself.
    usual: Figures,
    pub(super) course: &'a Course,
    /// In the order of the server's time.
    pub(super) taken: Vec<Taken>,
    pub(super) given_back: Vec<GivenBack>,
    pub(super) unheard: Vec<Unheard>,
    /// True if the quota is replaced now and then.
    pub(super) is_replaced: bool,
    /// The figures of all versions of the quota.
    versions: Vec<Figures>,
}

impl<'a> Line<'a> {
    /// `seen` is sorted.
    pub(super) fn of(
        quota: &Quota,
        replacements: &[Quota],
        seen: &[Seen],
        course: &'a Course,
    ) -> Self {
        let usual = Figures::of(quota);
        let figures = usual.widest(replacements);
        let taken = seen.iter().filter(|(.., seen)| seen.said.taken > 0);
        let taken = taken.map(|(moment, attempt, seen)| {
            let end = figures.point(seen.said.full_at);
            Taken {
                moment: *moment,
                attempt: *attempt,
                stretch: Stretch {
                    start: end.saturating_sub(figures.drain(seen.said.taken)),
                    end,
                },
                turn_us: moment.at_us + seen.said.wait_us,
                cost: seen.said.taken,
            }
        });
        let mut taken: Vec<_> = taken.collect();
        taken.sort_by_key(|taken| (taken.moment, taken.stretch.end));
        let mut line = Self {
            figures,
            usual,
            course,
            taken,
            given_back: Vec::new(),
            unheard: Vec::new(),
            is_replaced: !replacements.is_empty(),
            versions: [quota]
                .into_iter()
                .chain(replacements)
                .map(Figures::of)
                .collect(),
        };
        let credits = course.credits.iter();
        line.given_back = credits.map(|credit| line.given_back(credit)).collect();
        let moving_up = line
            .given_back
            .iter()
            .map(|it| it.moves_up || line.moves_up(it));
        let moving_up: Vec<_> = moving_up.collect();
        for (given_back, moves_up) in line.given_back.iter_mut().zip(moving_up) {
            given_back.moves_up = moves_up;
        }
        let unheard = course.unsure.iter().filter(|it| !it.doubt.is_debit);
        let unheard = unheard.map(|it| Unheard {
            from: it.from,
            to: it.to,
            n: it.doubt.n,
            moves_up: line.may_be_idle(it.from, it.to),
            is_stray: line.is_lost_between(it.from, it.end),
        });
        line.unheard = unheard.collect();
        line
    }

    /// The figures by which a verdict was given.
    pub(super) fn figures_of(&self, seen: &Observation) -> Figures {
        self.usual.by(seen.said.terms)
    }

    /// Says whether a line that ends there is so long that a question may have brought it back: a clock that was ahead left it.
    pub(super) fn may_bring_back(&self, seen: &Observation, end: u128) -> bool {
        let asked = self.figures_of(seen);
        let is_same =
            |it: &&Figures| it.burst == asked.burst && it.longest_wait_us >= asked.longest_wait_us;
        let versions = self.versions.iter().filter(is_same);
        let furthest = versions.map(|it| {
            let wait_us = seen.said.at_us + it.longest_wait_us;
            it.parts(wait_us) + u128::from(DEBT_CEILING) * it.full
        });
        furthest.min().is_some_and(|furthest| end > furthest)
    }

    /// Says whether the data may have been lost between two decisions.
    pub(super) fn is_lost_between(&self, one: Moment, other: Moment) -> bool {
        let mut losses = self.course.losses.iter();
        losses.any(|loss| loss.from <= other && loss.to >= one)
    }

    /// The amount that was given back of a charge before this moment, if that can have had an effect.
    pub(super) fn returned(&self, of: &Taken, before: Moment) -> u64 {
        let same = self.given_back.iter().filter(|it| {
            it.charge == (of.moment.at_us, of.stretch.end)
                && (it.leaves || it.moves_up)
                && it.from <= before
        });
        same.map(|it| it.n).sum()
    }

    /// The time by which charges may have moved up between two decisions.
    pub(super) fn moved_up(&self, since: Moment, until: Moment) -> u128 {
        let credits = self.given_back.iter().filter(|it| it.moves_up);
        let credits = credits.map(|it| (it.from, it.to, it.n));
        let unheard = self.unheard.iter().filter(|it| it.moves_up);
        let all = credits.chain(unheard.map(|it| (it.from, it.to, it.n)));
        let between = all.filter(|(from, to, _)| *from <= until && *to >= since);
        between.map(|(.., n)| self.figures.drain(n)).sum()
    }

    /// Says whether a credit of something that was lost before may have freed a part of this stretch by now, in which others stand
    /// or which lies behind the line.
    pub(super) fn may_be_strayed_into(&self, stretch: Stretch, now: Moment) -> bool {
        let is_in = |freed: Stretch| freed.start < stretch.end && freed.end > stretch.start;
        let mut strays = self.given_back.iter().filter(|it| it.is_stray && it.leaves);
        let mut unheard = self.unheard.iter().filter(|it| it.is_stray);
        strays.any(|it| it.from <= now && is_in(it.freed))
            || unheard.any(|it| {
                it.from <= now && it.to.at_us.saturating_add(self.figures.span_us()) >= now.at_us
            })
    }

    fn given_back(&self, credit: &Credit) -> GivenBack {
        let figures = &self.figures;
        let end = figures.point(credit.full_at);
        let turn_us = (self.usual.by(credit.terms)).turn_us(credit.at_us, end);
        let freed = Stretch {
            start: end.saturating_sub(figures.drain(credit.n)),
            end,
        };
        let known = credit.charged.filter(|it| it.era == credit.to.era);
        GivenBack {
            from: credit.from,
            to: credit.to,
            n: credit.n,
            charge: (credit.at_us, end),
            turn_us,
            freed,
            leaves: turn_us > credit.at_us && (known.is_none() || credit.from.at_us < turn_us),
            is_of_one_clock: known.is_some(),
            moves_up: known.is_none(),
            is_stray: known.is_none_or(|charged| self.is_lost_between(charged, credit.to)),
            returned_by: credit.returned_by,
        }
    }

    /// Says whether a credit may have come after the turn of its charge, for as long as that still shows, when no request waited.
    fn moves_up(&self, credit: &GivenBack) -> bool {
        let at = |at_us: u64| Moment {
            at_us,
            ..credit.from
        };
        let (_, end) = credit.charge;
        let from = credit.from.max(at(credit.turn_us));
        let to = credit.to.min(at(self.figures.micros_up(end)));
        from <= to && self.may_be_idle(from, to)
    }

    /// The earliest time at which the caller of a charge may have left.
    fn leaves_at(&self, charge: &Taken) -> Option<u64> {
        let same = self
            .given_back
            .iter()
            .filter(|it| it.charge == (charge.moment.at_us, charge.stretch.end) && it.leaves);
        same.map(|it| it.from.at_us).min()
    }

    /// Says whether there can have been a moment between these two at which no request waited. A turn counts until its caller
    /// may have left.
    fn may_be_idle(&self, from: Moment, to: Moment) -> bool {
        if from.era != to.era {
            return true;
        }
        let mut now = from;
        loop {
            let since = Moment {
                at_us: now
                    .at_us
                    .saturating_sub(self.figures.longest_wait_us)
                    .saturating_sub(1),
                ..now
            };
            let first = self.taken.partition_point(|it| it.moment < since);
            let last = self.taken.partition_point(|it| it.moment < now);
            let promised = self.taken[first..last]
                .iter()
                .filter(|it| it.turn_us > now.at_us && !self.is_lost_between(it.moment, to));
            let waits_until = promised.map(|it| {
                self.leaves_at(it)
                    .map_or(it.turn_us, |left_us| left_us.min(it.turn_us))
            });
            match waits_until.filter(|until_us| *until_us > now.at_us).max() {
                None => return true,
                Some(until_us) if until_us > to.at_us => return false,
                Some(until_us) => now.at_us = until_us,
            }
        }
    }
}
