//! The end of the line, which each verdict tells, from one call to the next.

use std::ops::RangeInclusive;

use super::super::timeline::Moment;
use super::line::{Line, Seen};
use super::numbers::told_end;

/// The first verdict whose line ends where it cannot. `seen` is sorted.
pub(super) fn impossible(line: &Line<'_>, seen: &[Seen]) -> Option<(usize, String)> {
    let figures = &line.figures;
    // One call decides at one time.
    let calls: Vec<_> = seen.chunk_by(|one, next| one.0 == next.0).collect();
    (1..calls.len()).find_map(|position| {
        let call = calls[position];
        let possible = possible(line, &calls[..position], call)?;
        call.iter().find_map(|(_, attempt, seen)| {
            let told = told_end(figures, seen);
            let is_possible = told.start() <= possible.end() && told.end() >= possible.start();
            let us = |end: &u128| figures.micros_up(*end);
            (!is_possible).then(|| {
                let (nearest, furthest) = (us(possible.start()), us(possible.end()));
                let ends_us = us(told.end());
                let what = format!(
                    "said that the line ends at {ends_us}, and it was {nearest}..={furthest}"
                );
                (*attempt, what)
            })
        })
    })
}

/// The line grows by what was taken, and by what may have been taken unheard. Only departures, credits and time shorten it.
fn possible(line: &Line<'_>, before: &[&[Seen]], call: &[Seen]) -> Option<RangeInclusive<u128>> {
    let figures = &line.figures;
    let (last, now) = (before.last()?, call.first()?.0);
    let since = last.first()?.0;
    if since.era != now.era {
        return None;
    }
    let taken = call.iter();
    let taken = taken.map(|(.., seen)| figures.drain(seen.said.taken));
    let taken: u128 = taken.sum();
    if line.is_lost_between(since, now) {
        return Some(0..=furthest_since_loss(line, before, now)? + taken);
    }
    let at = figures.parts(now.at_us);
    let ends = last.iter().map(|(.., seen)| told_end(figures, seen));
    let end = ends.max_by_key(|end| *end.end())?;
    let is_between = |from: Moment, to: Moment| from <= now && to >= since;
    let mut given_back = line.given_back.iter();
    let mut unheard = line.unheard.iter();
    let is_shortened = *end.start() <= at
        || given_back.any(|it| (it.leaves || it.moves_up) && is_between(it.from, it.to))
        || unheard.any(|it| is_between(it.from, it.to))
        || (call.iter()).any(|(.., seen)| line.may_bring_back(seen, *end.start()));
    let nearest = if is_shortened { 0 } else { *end.start() };
    let furthest = (*end.end()).max(at) + taken + unsure(line, since, now);
    Some(nearest..=furthest)
}

/// The furthest end of a line that surely was empty at some time, with all charges since.
fn furthest_since_loss(line: &Line<'_>, before: &[&[Seen]], now: Moment) -> Option<u128> {
    let losses = || line.course.losses.iter();
    let certain = losses().filter(|it| it.is_certain && it.to < now && it.from.era == now.era);
    let since = certain.map(|it| it.from).max()?;
    // A replica that takes over may have the line of before.
    if losses().any(|it| !it.is_certain && it.from <= now && it.to >= since) {
        return None;
    }
    let seen = before.iter().rev().copied().flatten();
    let seen = seen.filter(|(moment, ..)| *moment >= since);
    let taken = seen.map(|(.., seen)| line.figures.drain(seen.said.taken));
    let taken: u128 = taken.sum();
    Some(line.figures.parts(now.at_us) + taken + unsure(line, since, now))
}

/// The time that the charges take to drain that may have been taken unheard between two moments.
fn unsure(line: &Line<'_>, since: Moment, until: Moment) -> u128 {
    let unsure = line.course.unsure.iter();
    let between = unsure.filter(|it| it.from <= until && it.to >= since);
    between.map(|it| line.figures.drain(it.doubt.n)).sum()
}
