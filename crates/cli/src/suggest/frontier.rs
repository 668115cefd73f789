//! The frontier: for each rate the least burst that refuses no more than a share of the callers. And three points of it.

use tollgate::Quota;

use super::callers::{Caller, Callers, Half};
use super::rates::{ALL, Rate};
use crate::figures::Share;

/// A rate, and the least burst that refuses no more callers than was asked for.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// The place of the rate.
    pub(super) place: usize,
    pub(super) rate: Rate,
    pub(super) burst: u32,
    /// Refused callers and all callers of the half from which the burst was found.
    pub(super) found: (u64, u64),
    /// Refused callers and all callers of the other half.
    pub(super) checked: (u64, u64),
    /// Callers that would be refused if each stamp of a whole second were as kind, and as unkind, as it can be.
    pub(super) between: (u64, u64),
    /// The least bursts of all callers at the middle, at nine of ten, 99 of 100, 999 of 1,000, and at the last.
    pub(super) distribution: [u32; 5],
}

impl Point {
    /// The quota as a configuration writes it.
    pub(super) fn quota(&self) -> String {
        format!("{} burst {}", self.rate.text(), self.burst)
    }

    /// The largest burst that fits surely, whatever parts of seconds the log has cut off.
    pub(super) fn least_burst_in_doubt(&self) -> u32 {
        self.burst.saturating_sub(in_a_second(self.rate)).max(1)
    }
}

/// The frontier, without rates that are not quotas of the library.
pub(super) fn of(callers: &Callers, share: Share) -> Vec<Point> {
    let points = ALL.iter().enumerate().map(|(place, rate)| {
        let bursts_of = |half: Half| {
            let callers = callers.all().filter(|caller| caller.half == half);
            sorted(callers, place)
        };
        let (found, checked) = (bursts_of(Half::Found), bursts_of(Half::Checked));
        let all = sorted(callers.all(), place);
        let may_be_refused = usize::try_from(share.of(found.len() as u64)).unwrap_or(usize::MAX);
        let last = found.len().saturating_sub(1);
        let burst = found
            .get(last.saturating_sub(may_be_refused))
            .copied()
            .unwrap_or(1);
        let drained = in_a_second(*rate);
        Point {
            place,
            rate: *rate,
            burst,
            found: (above(&found, burst), found.len() as u64),
            checked: (above(&checked, burst), checked.len() as u64),
            between: (
                above(&all, burst.saturating_add(drained)),
                above(&all, burst.saturating_sub(drained).max(1)),
            ),
            distribution: [(1, 2), (9, 10), (99, 100), (999, 1_000), (1, 1)].map(
                |(part, whole)| {
                    let place = (all.len() * part).div_ceil(whole).saturating_sub(1);
                    all.get(place).copied().unwrap_or_default()
                },
            ),
        }
    });
    points
        .filter(|point| point.quota().parse::<Quota>().is_ok())
        .collect()
}

/// Requests that a rate lets pass in a second, rounded up. A request with a stamp in whole seconds may be up to a second later than
/// that, so that a bucket drains so much more or less between two requests.
fn in_a_second(rate: Rate) -> u32 {
    let requests = rate
        .limit
        .saturating_mul(1_000_000)
        .div_ceil(rate.period_us);
    u32::try_from(requests).unwrap_or(u32::MAX)
}

fn sorted<'c>(callers: impl Iterator<Item = &'c Caller>, place: usize) -> Vec<u32> {
    let mut bursts: Vec<u32> = callers.map(|caller| caller.bursts[place]).collect();
    bursts.sort_unstable();
    bursts
}

/// The number of callers that need more than this.
fn above(bursts: &[u32], burst: u32) -> u64 {
    (bursts.len() - bursts.partition_point(|needed| *needed <= burst)) as u64
}

/// A point to choose, and the reason.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) point: Point,
    pub(super) time_us: u64,
    pub(super) words: &'static str,
}

/// The points that let a caller do the least in any second, minute and hour.
pub(super) fn choices(frontier: &[Point]) -> Vec<Choice> {
    let times = [
        (1_000_000, "second"),
        (60_000_000, "minute"),
        (3_600_000_000, "hour"),
    ];
    let best = times.into_iter().filter_map(|(time_us, words)| {
        let least = frontier
            .iter()
            .min_by_key(|point| point.rate.most_in(point.burst, time_us))?;
        Some(Choice {
            point: least.clone(),
            time_us,
            words,
        })
    });
    best.collect()
}
