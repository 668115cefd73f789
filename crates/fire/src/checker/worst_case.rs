//! The bound that users are promised, without any rule: the charges that passed within any one period.

use std::collections::HashMap;

use tollgate_core::{Algorithm, Quota};

use super::timeline::Moment;
use super::trial::{Course, Observation};

/// Looks for a period in which more passed, and was not given back, than the worst case allows with the budgets that were
/// handed out anew meanwhile.
///
/// `seen` is sorted.
pub(super) fn exceeded(
    quota: &Quota,
    seen: &[(Moment, usize, Observation)],
    course: &Course,
) -> Option<String> {
    let mut given_back: HashMap<u64, u64> = HashMap::new();
    for credit in &course.credits {
        if let Some(charged) = credit.charged {
            *given_back.entry(charged.at_us).or_default() += credit.n;
        }
    }
    let whole = quota.capacity().max(quota.limit());
    let extra = |from: Moment, to: Moment| {
        let losses = course.losses.iter();
        let losses = losses.filter(|loss| loss.from <= to && loss.to >= from);
        // Strays belong to earlier charges, which are not among those that count here.
        let strays = course.strays.iter();
        let strays = strays.filter(|stray| stray.from <= to && stray.to >= from);
        let lost = losses.map(|_| whole);
        lost.chain(strays.map(|stray| stray.n)).sum::<u64>()
    };
    let mut net = |(moment, _, seen): &(Moment, usize, Observation)| {
        let back = given_back.entry(moment.at_us).or_default();
        let less = seen.said.taken.min(*back);
        *back -= less;
        (*moment, seen.said.taken - less)
    };
    let taken: Vec<_> = seen.iter().map(&mut net).filter(|(_, n)| *n > 0).collect();
    let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
    let (mut first, mut sum) = (0, 0_u64);
    for &(last, cost) in &taken {
        sum += cost;
        while let Some(&(start, cost)) = taken.get(first)
            && (start.era < last.era || last.at_us - start.at_us >= period_us)
        {
            sum -= cost;
            first += 1;
        }
        let from = taken.get(first).map_or(last, |taken| taken.0);
        let most = worst_case(quota) + extra(from, last);
        if sum > most {
            let at = last.at_us;
            return Some(format!(
                "{sum} passed in the period until {at}, and at most {most} may"
            ));
        }
    }
    None
}

/// The bound in each algorithm's documentation.
pub(super) fn worst_case(quota: &Quota) -> u64 {
    match quota.algorithm() {
        Algorithm::Gcra | Algorithm::IntervalRefill { .. } => quota.capacity() + quota.limit(),
        Algorithm::SlidingLog => quota.limit(),
        _ => 2 * quota.limit(),
    }
}
