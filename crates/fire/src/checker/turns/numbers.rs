//! The numbers of each verdict.

use std::ops::RangeInclusive;

use super::super::timeline::Moment;
use super::super::trial::Observation;
use super::figures::Figures;
use super::line::{Line, Seen, Stretch};

/// The first verdict that contradicts itself.
pub(super) fn contradiction(line: &Line<'_>, seen: &[Seen]) -> Option<(usize, String)> {
    seen.iter().find_map(|(moment, attempt, seen)| {
        let why = itself(line, *moment, seen).err()?;
        Some((*attempt, why))
    })
}

/// The furthest and the nearest end of the line that a verdict tells, which rounds it up.
pub(super) fn told_end(figures: &Figures, seen: &Observation) -> RangeInclusive<u128> {
    let (at, reset_after_us) = (seen.said.at_us, seen.said.reset_after_us);
    let last = figures.parts(at + reset_after_us);
    match reset_after_us {
        0 => last..=last,
        _ => last - (figures.denominator - 1)..=last,
    }
}

fn itself(line: &Line<'_>, now: Moment, seen: &Observation) -> Result<(), String> {
    let (figures, said, cost) = (&line.figures_of(seen), &seen.said, seen.cost);
    let (at, end) = (figures.parts(said.at_us), told_end(figures, seen));
    let after = |end: u128, less: u128| {
        let then = end + figures.drain(cost);
        figures.micros_up(then.saturating_sub(at + figures.full + less))
    };
    if said.passes && cost > figures.burst {
        return Err(format!(
            "passes at a cost of {cost}, above a burst of {}",
            figures.burst
        ));
    }
    if !said.passes && said.never != (cost > figures.burst) {
        return Err(format!("said never: {}, which it is not", said.never));
    }
    if said.taken > 0 {
        let until = figures.point(said.full_at);
        let wait_us = figures.micros_up(until.saturating_sub(at + figures.full));
        within("a wait of", said.wait_us, &(wait_us..=wait_us))?;
        let start = until.saturating_sub(figures.drain(said.taken));
        let is_behind =
            until > *end.end() && !line.may_be_strayed_into(Stretch { start, end: until }, now);
        if start < at || is_behind {
            return Err(format!(
                "drains until {:?}, outside of a line that ends at {}",
                said.full_at,
                said.at_us + said.reset_after_us
            ));
        }
    } else if said.passes {
        within("a wait of", said.wait_us, &(0..=after(*end.end(), 0)))?;
    } else if !said.never {
        let patience = figures.parts(figures.longest_wait_us);
        let shortest = match is_refused_in_gap(line, figures, now) {
            true => 1,
            false => after(*end.start(), patience).max(1),
        };
        let waits = shortest..=after(*end.end(), patience);
        within("retry after", said.retry_after_us, &waits)?;
    }
    within("a wait of", said.wait_us, &(0..=figures.longest_wait_us))?;
    let room = |end: u128| figures.drained(figures.full.saturating_sub(end - at));
    let left = match said.taken > 0 && said.wait_us > 0 {
        true => 0..=0,
        false if may_have_gaps(line, now) => room(*end.end())..=figures.burst,
        false => room(*end.end())..=room(*end.start()),
    };
    within("remaining", said.remaining, &left)
}

/// Says whether some place in the line may be free.
fn may_have_gaps(line: &Line<'_>, now: Moment) -> bool {
    let at = line.figures.parts(now.at_us);
    let mut left = line.given_back.iter().filter(|it| it.leaves);
    let mut unheard = line.unheard.iter();
    left.any(|it| it.from <= now && it.freed.end > at)
        || unheard.any(|it| {
            it.from <= now && it.to.at_us.saturating_add(line.figures.span_us()) >= now.at_us
        })
}

/// Says whether a place further away than this request may wait can be free: one for requests that may wait for longer, or one of
/// a clock that was ahead.
fn is_refused_in_gap(line: &Line<'_>, figures: &Figures, now: Moment) -> bool {
    let furthest = line.figures.parts(now.at_us + figures.span_us());
    let is_impatient = figures.longest_wait_us < line.figures.longest_wait_us;
    let mut left = line.given_back.iter().filter(|it| it.leaves);
    let mut unheard = line.unheard.iter();
    left.any(|it| it.from <= now && it.freed.end > furthest)
        || unheard.any(|it| {
            let lingers_us = it.to.at_us.saturating_add(line.figures.span_us());
            it.from <= now && is_impatient && lingers_us >= now.at_us || it.from.era < now.era
        })
}

fn within(what: &str, said: u64, possible: &RangeInclusive<u64>) -> Result<(), String> {
    if possible.contains(&said) {
        return Ok(());
    }
    Err(format!("said {what} {said}, and it was {possible:?}"))
}
