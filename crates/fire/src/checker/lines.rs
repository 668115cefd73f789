//! Says whether each limiter lets as many requests wait as its line has room for, and what it does when that is closed.
//!
//! The terms by which the backend was asked tell whether a request had a place in the line: without one it is decided as if it
//! could not wait. So, for each limiter, by the clock of its process:
//!
//! * at no time more requests *surely* had a place than the line has room for: from the question to the backend to its answer, or
//!   to the turn that it gave;
//! * a request had no place only if so many others *may* have had one at some time while it asked, or if the line was closed;
//! * after the line was closed no request got a place. Those that had a turn to wait for were refused at once and left, and none
//!   went on. In an open line none was refused so.

use std::collections::BTreeMap;

use super::patience::{GRACE_US, Waits};
use super::places::{Place, may_wait, place};
use super::{LINGERS_US, Violation};
use crate::attempt::{Attempt, Fallback, Outcome};
use crate::history::History;
use crate::instance::WaitingLine;

/// The findings about the lines of limiters, beside the impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineFindings {
    /// The denied requests that found no room in an open line.
    pub full: u64,
    /// The requests that waited when their line was closed, and were refused.
    pub stopped: u64,
    /// The denied requests that found their line closed.
    pub closed: u64,
}

struct Visitor<'a> {
    number: usize,
    attempt: &'a Attempt,
    place: Place,
}

/// Judges the lines of all limiters.
pub(super) fn check_lines(history: &History, waits: &Waits) -> (Vec<Violation>, LineFindings) {
    let mut visitors: BTreeMap<_, Vec<Visitor<'_>>> = BTreeMap::new();
    for (number, attempt) in history.attempts.iter().enumerate() {
        if attempt.asker.door.has_limiter() && may_wait(history, attempt) {
            let asker = (attempt.asker.process, attempt.limiter);
            visitors.entry(asker).or_default().push(Visitor {
                number,
                attempt,
                place: place(history, attempt),
            });
        }
    }
    let (mut wrong, mut findings) = (Vec::new(), LineFindings::default());
    for line in &history.lines {
        let all = visitors.get(&(line.process, line.limiter));
        let all = all.map_or(&[][..], Vec::as_slice);
        wrong.extend(overfull(line, all));
        for visitor in all {
            let why = refused_with_room(line, all, visitor)
                .or_else(|| let_into_closed(line, visitor))
                .or_else(|| misled(line, waits, visitor));
            wrong.extend(why.map(|what| visitor.violation(what)));
            findings.count(line, visitor);
        }
    }
    (wrong, findings)
}

impl Visitor<'_> {
    fn violation(&self, what: String) -> Violation {
        Violation {
            attempt: self.number,
            budget: None,
            what,
        }
    }

    /// The time until which it may have had a place.
    fn over_us(&self) -> u64 {
        let lingers_us = match self.attempt.outcome.is_unheard() {
            true => LINGERS_US,
            false => 0,
        };
        self.attempt.heard_us.saturating_add(lingers_us)
    }
}

/// The first request that got a place when all were taken.
fn overfull(line: &WaitingLine, all: &[Visitor<'_>]) -> Option<Violation> {
    let held = all.iter().filter_map(|visitor| match visitor.place {
        Place::Held(from_us, to_us) => Some((visitor, from_us, to_us)),
        Place::None | Place::Unknown => None,
    });
    let mut held: Vec<_> = held.collect();
    held.sort_by_key(|(_, from_us, _)| *from_us);
    let mut present: Vec<u64> = Vec::new();
    held.into_iter().find_map(|(visitor, from_us, to_us)| {
        present.retain(|until_us| *until_us > from_us);
        present.push(to_us);
        (present.len() > line.most).then(|| {
            let (now, most) = (present.len(), line.most);
            visitor.violation(format!("{now} had a place in a line of {most}"))
        })
    })
}

/// Says whether it was decided as if it could not wait, although there surely was room.
fn refused_with_room(
    line: &WaitingLine,
    all: &[Visitor<'_>],
    visitor: &Visitor<'_>,
) -> Option<String> {
    let asking = visitor.attempt.asking?;
    if visitor.place != Place::None || is_closed_by(line, asking.asked_us) {
        return None;
    }
    let (from_us, to_us) = (visitor.attempt.sent_us, asking.asked_us);
    let others = all.iter().filter(|other| {
        other.number != visitor.number
            && other.place != Place::None
            && other.attempt.sent_us <= to_us
            && other.over_us() >= from_us
    });
    let mut others: Vec<_> = others
        .map(|other| (other.attempt.sent_us.max(from_us), other.over_us()))
        .collect();
    others.sort_unstable();
    let (mut present, mut most): (Vec<u64>, usize) = (Vec::new(), 0);
    for (from_us, to_us) in others {
        present.retain(|until_us| *until_us >= from_us);
        present.push(to_us);
        most = most.max(present.len());
    }
    (most < line.most).then(|| {
        format!(
            "could not wait, and at most {most} had a place in a line of {}",
            line.most
        )
    })
}

/// Says whether the line may have been closed by then.
fn is_closed_by(line: &WaitingLine, us: u64) -> bool {
    line.closing_us.is_some_and(|closing_us| closing_us <= us)
}

fn let_into_closed(line: &WaitingLine, visitor: &Visitor<'_>) -> Option<String> {
    let closed_us = line.closed_us?;
    let is_late = visitor.attempt.sent_us > closed_us;
    (is_late && matches!(visitor.place, Place::Held(..)))
        .then(|| "had a place in a line that was closed".to_owned())
}

/// Says whether a request that waits was refused as if its line was closed, or late, or goes on although the line is closed.
fn misled(line: &WaitingLine, waits: &Waits, visitor: &Visitor<'_>) -> Option<String> {
    let attempt = visitor.attempt;
    let asking = attempt.asking?;
    let wait_us = attempt.wait_us().filter(|us| *us > 0);
    let kept_us = 2 * waits.during_us(attempt);
    if attempt.fallback == Some(Fallback::Stopped) {
        if wait_us.is_none() || !is_closed_by(line, attempt.heard_us) {
            return Some("was refused as in a closed line, and did not wait in one".to_owned());
        }
        let since_us = line.closed_us?.max(asking.answered_us);
        let took_us = attempt.heard_us.saturating_sub(since_us);
        return (took_us > GRACE_US + kept_us)
            .then(|| format!("was refused {took_us} µs after its line was closed"));
    }
    if attempt.fallback.is_some() || attempt.left_us.is_some() {
        return None;
    }
    let turn_us = asking.answered_us + wait_us?;
    let after_us = turn_us.saturating_sub(line.closed_us?);
    (after_us > GRACE_US + kept_us)
        .then(|| format!("goes on, and its line was closed {after_us} µs before its turn"))
}

impl LineFindings {
    fn count(&mut self, line: &WaitingLine, visitor: &Visitor<'_>) {
        let Outcome::Decided(decided) = &visitor.attempt.outcome else {
            return;
        };
        if visitor.attempt.fallback == Some(Fallback::Stopped) {
            self.stopped += 1;
        } else if visitor.place == Place::None && !decided.admitted {
            let asked_us = visitor.attempt.asking.map_or(0, |asking| asking.asked_us);
            *match is_closed_by(line, asked_us) {
                true => &mut self.closed,
                false => &mut self.full,
            } += 1;
        }
    }
}
