//! The frontier by requests: for each rate the least burst that refuses no more than a share of the requests.
//!
//! A caller's spending depends on the refusals before, so a single reading cannot tell it for every burst. Each further reading
//! tries one burst for each rate and halves what is left: a larger burst refuses no more requests.

use super::callers::{Callers, Half, Identity, Refused};
use super::frontier::Point;
use super::rates::RATES;
use crate::failure::Failure;
use crate::figures::Share;

/// The use of a request: its caller, its time and its cost.
pub(super) type Each<'e> = dyn FnMut(&Identity, u64, u64) + 'e;

/// The points by callers become those by requests. `reread` gives each request of the log once more.
pub(super) fn refine(
    callers: &mut Callers,
    share: Share,
    points: &mut [Point],
    reread: &dyn Fn(&mut Each<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let [of_found, of_checked] = [Half::Found, Half::Checked].map(|half| callers.requests(half));
    let may_be_refused = share.of(of_found);
    let (mut least, mut most) = ([1_u32; RATES], [1_u32; RATES]);
    for point in points.iter() {
        // The burst with which no request is refused.
        most[point.place] = point.distribution[4].max(1);
    }
    loop {
        let bursts: [u32; RATES] =
            std::array::from_fn(|place| least[place] + (most[place] - least[place]) / 2);
        let mut refused = Refused::default();
        callers.begin_anew();
        reread(&mut |identity, time_us, cost| {
            callers.try_bursts(identity, time_us, cost, &bursts, &mut refused);
        })?;
        if least == most {
            for point in points.iter_mut() {
                let place = point.place;
                point.burst = bursts[place];
                point.found = (refused.found[place], of_found);
                point.checked = (refused.checked[place], of_checked);
            }
            return Ok(());
        }
        for place in 0..RATES {
            match refused.found[place] > may_be_refused {
                true => least[place] = bursts[place].saturating_add(1).min(most[place]),
                false => most[place] = bursts[place],
            }
        }
    }
}
