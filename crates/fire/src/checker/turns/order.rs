//! No two charges drain at one time, and no request overtakes, except into the place of a request that left.

use super::line::{Line, Stretch, Taken};

/// The ruling on one charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It stands behind all that were decided before it.
    Behind,
    /// It took the place of a request that left.
    InGap,
    /// It may have taken a place whose request or answer was lost.
    InDoubt,
    /// It stands where it may not.
    Wrong(String),
}

/// Judges the place of charge number `position` among those before it. True if some of these may have been lost since.
pub(super) fn judge(line: &Line<'_>, position: usize) -> (Ruling, bool) {
    let x = &line.taken[position];
    let (mut overtaken, mut is_after_loss) = (None, false);
    let oldest_us = x.moment.at_us.saturating_sub(line.figures.span_us() + 1);
    let before = line.taken[..position].iter().rev();
    let before = before.take_while(|it| it.moment.era == x.moment.era);
    for a in before.take_while(|it| it.moment.at_us >= oldest_us) {
        if a.stretch.end <= x.stretch.start {
            continue;
        }
        if line.is_lost_between(a.moment, x.moment) {
            is_after_loss = true;
            continue;
        }
        let returned = line.figures.drain(line.returned(a, x.moment));
        let standing = Stretch {
            end: a.stretch.end.saturating_sub(returned),
            ..a.stretch
        };
        let is_gone = standing.end <= standing.start;
        let up = line.moved_up(a.moment, x.moment);
        if is_gone || x.stretch.start + up >= standing.end {
            continue;
        }
        if x.stretch.end > standing.start {
            if line.may_be_strayed_into(x.stretch, x.moment) {
                is_after_loss = true;
                continue;
            }
            return (Ruling::Wrong(overlap(line, x, a)), is_after_loss);
        }
        // The order within one call is unknown.
        if a.moment < x.moment {
            overtaken = Some(a);
        }
    }
    let ruling = match overtaken {
        None => Ruling::Behind,
        Some(_) if is_freed(line, x) => Ruling::InGap,
        Some(_) if may_be_unheard(line, x) => Ruling::InDoubt,
        Some(a) => Ruling::Wrong(format!(
            "overtakes attempt {}, and no request had left: it passes at {}, and that at {}",
            a.attempt, x.turn_us, a.turn_us
        )),
    };
    (ruling, is_after_loss)
}

fn overlap(line: &Line<'_>, x: &Taken, a: &Taken) -> String {
    let us = |parts: u128| line.figures.micros_up(parts);
    format!(
        "its turn at {} is too early: it drains from {} to {}, and attempt {} from {} to {}",
        x.turn_us,
        us(x.stretch.start),
        us(x.stretch.end),
        a.attempt,
        us(a.stretch.start),
        us(a.stretch.end)
    )
}

/// Says whether all of its stretch was freed by requests that left.
fn is_freed(line: &Line<'_>, x: &Taken) -> bool {
    let left = line.given_back.iter();
    let left = left.filter(|it| it.leaves && it.from <= x.moment);
    let mut freed: Vec<_> = left.map(|it| it.freed).collect();
    freed.sort_by_key(|freed| freed.start);
    let mut until = x.stretch.start;
    for freed in freed {
        if freed.start <= until {
            until = until.max(freed.end);
        }
    }
    until >= x.stretch.end
}

/// Says whether a request may have stood in its stretch and left, unknown otherwise.
fn may_be_unheard(line: &Line<'_>, x: &Taken) -> bool {
    line.unheard.iter().any(|it| {
        it.from <= x.moment && it.to.at_us.saturating_add(line.figures.span_us()) >= x.moment.at_us
    })
}
