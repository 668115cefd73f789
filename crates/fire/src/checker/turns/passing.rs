//! The bound that users are promised, without any rule: the charges that pass within any time, at the times of their turns.

use super::super::timeline::Moment;
use super::line::{Line, Taken};

/// Looks for a time in which more passes than a burst and its rate, with a burst and a line for each loss.
pub(super) fn exceeded(line: &Line<'_>) -> Option<(usize, String)> {
    let eras = line
        .taken
        .chunk_by(|one, next| one.moment.era == next.moment.era);
    eras.into_iter().find_map(|era| exceeded_in(line, era))
}

fn exceeded_in(line: &Line<'_>, era: &[Taken]) -> Option<(usize, String)> {
    let last = Moment {
        at_us: u64::MAX,
        ..era.first()?.moment
    };
    let net = |taken: &Taken| {
        let returned = line.returned(taken, last);
        (taken.turn_us, taken.cost.saturating_sub(returned), *taken)
    };
    let mut passing: Vec<_> = era.iter().map(net).filter(|(_, n, _)| *n > 0).collect();
    passing.sort_by_key(|(turn_us, ..)| *turn_us);
    let figures = &line.figures;
    let (limit, period) = (u128::from(figures.limit), u128::from(figures.period_us));
    passing
        .iter()
        .enumerate()
        .find_map(|(first, (from_us, ..))| {
            let mut sum = 0_u64;
            passing[first..].iter().find_map(|(until_us, n, taken)| {
                sum += n;
                // A turn is rounded up to a microsecond.
                let time = u128::from(until_us - from_us + 1);
                let most = u128::from(figures.burst) * period + time * limit;
                if u128::from(sum) * period <= most {
                    return None;
                }
                let anew = handed_out_anew(line, *from_us, taken.moment.era, *until_us);
                let most = most + anew * period;
                (u128::from(sum) * period > most).then(|| {
                    let most = most / period;
                    (
                        taken.attempt,
                        format!(
                            "{sum} pass between {from_us} and {until_us}, and at most {most} may"
                        ),
                    )
                })
            })
        })
}

/// The units that losses have handed out anew, among those that pass between two times.
fn handed_out_anew(line: &Line<'_>, from_us: u64, era: usize, until_us: u64) -> u128 {
    let figures = &line.figures;
    let moment = |at_us: u64| Moment { era, at_us };
    // They were decided at most one wait before.
    let from = moment(from_us.saturating_sub(figures.longest_wait_us));
    let until = moment(until_us);
    let in_time =
        |us: u64| u128::from(us) * u128::from(figures.limit) / u128::from(figures.period_us) + 1;
    let losses = line.course.losses.iter();
    let losses = losses.filter(|it| it.from <= until && it.to >= from);
    let lost = losses.map(|it| {
        // While another takes its place, an isolated master adds its rate.
        let both_us = it
            .to
            .min(until)
            .at_us
            .saturating_sub(it.from.max(from).at_us);
        u128::from(figures.burst) + in_time(figures.longest_wait_us) + in_time(both_us)
    });
    let strays = line.given_back.iter().filter(|it| it.is_stray);
    let strays = strays.map(|it| (it.from, it.to, it.n));
    let unheard = line.unheard.iter().filter(|it| it.is_stray);
    let strays = strays.chain(unheard.map(|it| (it.from, it.to, it.n)));
    let strays = strays.filter(|(start, end, _)| *start <= until && *end >= from);
    lost.chain(strays.map(|(.., n)| u128::from(n))).sum()
}
