//! The bound that users are promised, counted without any rule: what passed within any one period.

use tollgate_core::{Algorithm, Quota};

use super::timeline::Moment;

/// Looks for a period in which more passed than may at worst, when `extra` budgets were handed out anew meanwhile.
///
/// `taken` is sorted.
pub(super) fn exceeded(
    quota: &Quota,
    taken: &[(Moment, u64)],
    extra: impl Fn(Moment, Moment) -> u64,
) -> Option<String> {
    let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
    let (mut first, mut sum) = (0, 0_u64);
    for &(last, cost) in taken {
        sum += cost;
        while let Some(&(start, cost)) = taken.get(first)
            && (start.era < last.era || last.at_us - start.at_us >= period_us)
        {
            sum -= cost;
            first += 1;
        }
        let from = taken.get(first).map_or(last, |taken| taken.0);
        let most = worst_case(quota) + extra(from, last) * quota.capacity().max(quota.limit());
        if sum > most {
            let at = last.at_us;
            return Some(format!(
                "{sum} passed in the period until {at}, and at most {most} may"
            ));
        }
    }
    None
}

/// As documented at each algorithm.
fn worst_case(quota: &Quota) -> u64 {
    match quota.algorithm() {
        Algorithm::Gcra => quota.capacity() + quota.limit(),
        Algorithm::SlidingLog => quota.limit(),
        _ => 2 * quota.limit(),
    }
}
