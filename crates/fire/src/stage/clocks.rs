//! The deciding clock, and its offset.

use std::path::PathBuf;

use crate::Result;
use crate::clock;
use crate::history::{Disturbance, Effect, Home};
use crate::wall::now_us;

/// The clocks of the servers, in their order.
#[derive(Debug)]
pub(super) struct Clocks {
    /// The folder of the servers' clocks, if they can be set.
    folder: Option<PathBuf>,
    ahead_us: Vec<i64>,
    /// The home whose deciding clock may change: all callers, unless they live apart.
    home: Option<Home>,
    /// The offset of the clock that was last seen to decide there, and the time.
    last: (i64, u64),
}

impl Clocks {
    pub(super) fn ahead(folder: Option<PathBuf>, seconds: &[i64], home: Option<Home>) -> Self {
        let ahead_us: Vec<_> = seconds.iter().map(|seconds| seconds * 1_000_000).collect();
        let first = ahead_us.first().copied().unwrap_or_default();
        Self {
            folder,
            ahead_us,
            home,
            last: (first, now_us()),
        }
    }

    pub(super) fn can_be_set(&self) -> bool {
        self.folder.is_some()
    }

    /// The offset of the clock from the beginning on.
    pub(super) fn first(&self, number: usize, home: Option<Home>) -> Disturbance {
        let ahead_us = self.ahead_us.get(number).copied().unwrap_or_default();
        Disturbance {
            home,
            ..Disturbance::of_all(Effect::Clock(ahead_us), 0, 0)
        }
    }

    /// Sets the clock of the server that decides. From then on it decides by that clock, even if another server takes over before
    /// the next look.
    pub(super) fn step(
        &mut self,
        number: usize,
        port: u16,
        by_us: i64,
    ) -> Result<Option<Disturbance>> {
        let (Some(folder), Some(ahead_us)) = (&self.folder, self.ahead_us.get_mut(number)) else {
            return Err("this clock cannot be set".into());
        };
        // After it is written: a full folder leaves the clock as it was.
        clock::set(folder, port, *ahead_us + by_us)?;
        *ahead_us += by_us;
        Ok(self.decides(number))
    }

    /// Notes that this server decides now. If its clock is another, that changed after the last look.
    pub(super) fn decides(&mut self, number: usize) -> Option<Disturbance> {
        let ahead_us = self.ahead_us.get(number).copied().unwrap_or_default();
        let (before_us, looked_us) = self.last;
        self.last = (ahead_us, now_us());
        (ahead_us != before_us).then(|| Disturbance {
            home: self.home,
            ..Disturbance::of_all(Effect::Clock(ahead_us), looked_us, self.last.1)
        })
    }

    /// Notes that this server decides now, if one is known to, and that any of them may have decided for a while since the last
    /// look, because a fault did not come to its end. So each of their clocks has an era of its own there, and a decision
    /// belongs to any era that it fits.
    pub(super) fn doubted(&mut self, number: Option<usize>) -> Vec<Disturbance> {
        let (before_us, looked_us) = self.last;
        let ahead_us = number.and_then(|number| self.ahead_us.get(number).copied());
        let ahead_us = ahead_us.unwrap_or(before_us);
        self.last = (ahead_us, now_us());
        let mut clocks = self.ahead_us.clone();
        clocks.retain(|other_us| *other_us != ahead_us);
        if !clocks.is_empty() || ahead_us != before_us {
            clocks.push(ahead_us);
        }
        let era = |ahead_us| Disturbance {
            home: self.home,
            ..Disturbance::of_all(Effect::Clock(ahead_us), looked_us, self.last.1)
        };
        clocks.into_iter().map(era).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn after_a_fault_that_did_not_come_to_its_end_any_clock_may_have_decided() {
        let eras = |seconds: &[i64], number| {
            let mut clocks = Clocks::ahead(None, seconds, None);
            let from_us = clocks.last.1;
            let doubted = clocks.doubted(number);
            for era in &doubted {
                assert_eq!((era.from_us, era.to_us), (from_us, clocks.last.1));
            }
            let after = clocks.decides(number.unwrap_or_default());
            assert_eq!(after, None, "nothing has changed since");
            doubted
                .into_iter()
                .map(|era| era.effect)
                .collect::<Vec<_>>()
        };
        let [three, ten] = [3, 10].map(|seconds| Effect::Clock(seconds * 1_000_000));

        // The first decided before, and does again: the other may have in between.
        assert_eq!(eras(&[3, 10], Some(0)), [ten, three]);
        assert_eq!(eras(&[3, 10], None), [ten, three]);
        // The other decides now, and may not have been the first to.
        assert_eq!(eras(&[3, 10], Some(1)), [three, ten]);
        // There is no other.
        assert_eq!(eras(&[3], Some(0)), []);
        assert_eq!(eras(&[3, 3], Some(1)), []);
    }

    /// A failed write leaves the clock as it was, so that the checker is not told of a clock that no server has.
    #[test]
    fn a_clock_that_could_not_be_set_is_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere");
        let mut clocks = Clocks::ahead(Some(nowhere.clone()), &[3, 10], None);

        clocks.step(0, 1, 5_000_000).unwrap_err();
        let after_none = clocks.decides(0);
        std::fs::create_dir(&nowhere).unwrap();
        let after_one = clocks.step(0, 1, 5_000_000).unwrap();

        assert_eq!(after_none, None);
        // From where it was.
        let effect = after_one.map(|era| era.effect);
        assert_eq!(effect, Some(Effect::Clock(8_000_000)));
    }

    #[test]
    fn a_clock_that_was_set_has_an_era_though_another_server_decides_at_the_next_look() {
        let folder = tempfile::tempdir().unwrap();
        let mut clocks = Clocks::ahead(Some(folder.path().to_owned()), &[3, 10], None);

        let set = clocks.step(0, 1, 5_000_000).unwrap().unwrap();
        let taken_over = clocks.decides(1).unwrap();

        let eras = [set.effect, taken_over.effect];
        assert_eq!(
            eras,
            [8, 10].map(|seconds| Effect::Clock(seconds * 1_000_000))
        );
        // One after the other.
        assert_eq!(taken_over.from_us, set.to_us);
    }
}
