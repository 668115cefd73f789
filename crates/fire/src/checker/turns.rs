//! Judges budgets under which requests wait for their turn.
//!
//! Core has two rules: each charge drains in a *stretch* of time of its own, and a charge that passes at *t* drains between *t* and
//! *t* and a full drain. A verdict tells the end of its stretch to the part of a microsecond. So nothing is replayed here; for
//! each budget, in the order of the server's time:
//!
//! * [each verdict](numbers) says how long it waits, by its own stretch, and where the line ends; it waits no longer than the terms
//!   that were asked for let it, and is refused only if it would;
//! * [the line](ends) grows from one verdict to the next by what was taken, or may have been unheard, and is shortened only by
//!   requests that leave and by credits;
//! * [no two stretches overlap](order), but for what was given back. A charge stands behind all that were decided before it, or in
//!   the stretches of requests that left. A credit of a charge that has passed excuses nothing, if a request waited for as long as
//!   the credit may have arrived;
//! * [the next that fits](unused) gets the place of a request that surely has left;
//! * [no time](passing) lets through more than a burst and its rate, by the times of the turns, and a burst and a line more for
//!   each loss.
//!
//! A quota may be replaced by one of another burst and wait. Each charge keeps the second rule by its own quota's full drain.
//!
//! Between decisions by two clocks, and with a loss between them, nothing is compared; these are counted.

mod ends;
mod figures;
mod line;
mod numbers;
mod order;
mod passing;
mod unused;

use tollgate_core::Quota;

use self::line::{Line, Seen};
use self::order::Ruling;
use super::timeline::Moment;
use super::trial::Course;

/// The findings about waiting requests, beside the impossible.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnFindings {
    /// The charges that had to wait.
    pub waited: u64,
    /// The credits of charges whose turn had not come.
    pub left: u64,
    /// The charges that took the place of a request that left.
    pub in_gaps: u64,
    /// The charges of which all of the line before them was judged.
    pub strict: u64,
    /// The charges with a loss or a reset between them and some of the line before them.
    pub after_loss: u64,
    /// The charges soon after a step of the clock, of which the line before is not compared.
    pub after_step: u64,
    /// The charges that may have taken a place whose request or answer was lost.
    pub in_doubt: u64,
    /// The requests that surely had a place to take that another had left.
    pub owed_place: u64,
}

impl TurnFindings {
    /// Judges one budget, and returns the first impossibility of each kind. `seen` is sorted.
    pub(super) fn judge(
        &mut self,
        quota: &Quota,
        replacements: &[Quota],
        seen: &[Seen],
        course: &Course,
    ) -> Vec<(usize, String)> {
        let line = Line::of(quota, replacements, seen, course);
        self.waited += count(line.taken.iter(), |it| it.turn_us > it.moment.at_us);
        self.left += count(line.given_back.iter(), |it| it.leaves && it.is_of_one_clock);
        let mut misplaced = None;
        let mut stepped: Option<Moment> = None;
        for (position, taken) in line.taken.iter().enumerate() {
            let before = position
                .checked_sub(1)
                .map(|before| line.taken[before].moment);
            if before.is_some_and(|before| before.era != taken.moment.era) {
                stepped = Some(taken.moment);
            }
            let (ruling, is_after_loss) = order::judge(&line, position);
            self.in_gaps += u64::from(ruling == Ruling::InGap);
            let is_after_step =
                stepped.is_some_and(|it| taken.moment.at_us - it.at_us <= line.figures.span_us());
            *match ruling {
                Ruling::Wrong(what) => {
                    misplaced.get_or_insert((taken.attempt, what));
                    continue;
                }
                Ruling::InDoubt => &mut self.in_doubt,
                _ if is_after_loss => &mut self.after_loss,
                _ if is_after_step => &mut self.after_step,
                _ => &mut self.strict,
            } += 1;
        }
        let numbers = numbers::contradiction(&line, seen);
        let ends = ends::impossible(&line, seen);
        let exceeded = passing::exceeded(&line);
        let (unused, owed_place) = unused::unused(&line, seen);
        self.owed_place += owed_place;
        [numbers, ends, misplaced, exceeded, unused]
            .into_iter()
            .flatten()
            .collect()
    }
}

fn count<T>(all: impl Iterator<Item = T>, is_one: impl Fn(&T) -> bool) -> u64 {
    all.filter(is_one).count() as u64
}
