//! A place that a request has left is given to the next whose cost fits.
//!
//! A request that left when nothing disturbed the servers or its process has given its turn back a tenth of a second later. If
//! nothing took its stretch since, a request that waits longer than it would there, or is refused, shows that the turn was lost.

use super::super::timeline::Moment;
use super::line::{GivenBack, Line, Seen};

/// The number of places that are kept for one key, less those that one moment may add.
const MOST_GAPS: usize = 28;

/// The first request that did not get a place that must have been free, and the number of those that were judged. `seen` is sorted.
pub(super) fn unused(line: &Line<'_>, seen: &[Seen]) -> (Option<(usize, String)>, u64) {
    let (mut wrong, mut judged) = (None, 0);
    if line.is_replaced {
        // A quota with another burst keeps its places elsewhere.
        return (wrong, judged);
    }
    for (moment, attempt, x) in seen {
        let is_placed = x.said.passes && x.said.wait_us == 0;
        if x.cost == 0 || is_placed || x.said.never {
            continue;
        }
        let figures = line.figures_of(x);
        let at = figures.parts(moment.at_us);
        let free = line.given_back.iter().filter_map(|left| {
            let until = left.freed.start + figures.drain(x.cost);
            let wait_us = figures.micros_up(until.saturating_sub(at + figures.full));
            let fits = left.freed.start >= at
                && until <= left.freed.end
                && wait_us <= figures.longest_wait_us;
            (fits && is_surely_free(line, left, *moment, *attempt)).then_some(wait_us)
        });
        let Some(wait_us) = free.min() else {
            continue;
        };
        judged += 1;
        if !x.said.passes || x.said.wait_us > wait_us {
            wrong.get_or_insert_with(|| {
                let what = match x.said.passes {
                    true => format!("waits for {} µs", x.said.wait_us),
                    false => "is refused".to_owned(),
                };
                let what = format!("{what}, and a turn in {wait_us} µs had been given back");
                (*attempt, what)
            });
        }
    }
    (wrong, judged)
}

fn is_surely_free(line: &Line<'_>, left: &GivenBack, now: Moment, attempt: usize) -> bool {
    let is_back = left
        .returned_by
        .is_some_and(|by| by < now && by.era == now.era && by.at_us < left.turn_us);
    if !is_back || !left.leaves || left.is_stray || !left.is_of_one_clock {
        return false;
    }
    let span_us = line.figures.span_us();
    let is_after_step = now.era > 0 && {
        let first = line.taken.iter().find(|it| it.moment.era == now.era);
        first.is_none_or(|first| left.charge.0 < first.moment.at_us + span_us)
    };
    let is_over = |to: Moment| to.at_us.saturating_add(span_us) < left.from.at_us;
    let overlaps = |start: u128, end: u128| start < left.freed.end && end > left.freed.start;
    let since = left.from.at_us.saturating_sub(span_us);
    let gaps = line.given_back.iter().filter(|it| {
        it.leaves && it.from <= now && it.from.era == now.era && it.from.at_us >= since
    });
    // Then all free places are given up, since none of them is where it was.
    let mut credits = line.given_back.iter().filter(|it| it.moves_up);
    let may_have_moved_up = credits.any(|it| {
        let until = it.returned_by.unwrap_or(it.to);
        it.from <= now && until >= left.from && until.at_us >= it.turn_us
    });
    // Units that are charged more stand at the end of the line, where the place of the last was.
    let mut unsure = line.course.unsure.iter();
    let may_be_debited = unsure.any(|it| it.doubt.is_debit && it.from <= now && it.to >= left.from);
    !is_after_step
        && !may_be_debited
        && gaps.count() < MOST_GAPS
        && !line.is_lost_between(left.from, now)
        && !may_have_moved_up
        && !(line.unheard.iter()).any(|it| it.from <= now && !is_over(it.to))
        && !line.taken.iter().any(|it| {
            it.attempt != attempt
                && it.moment >= left.from
                && it.moment <= now
                && overlaps(it.stretch.start, it.stretch.end)
        })
}
