//! Whose clock decides, and how far it is ahead.

use std::path::PathBuf;

use crate::Result;
use crate::client::now_us;
use crate::clock;
use crate::history::{Disturbance, Effect, Home};

/// The clocks of the servers, in their order.
#[derive(Debug)]
pub(super) struct Clocks {
    /// Where servers read them, if they can be set.
    folder: Option<PathBuf>,
    ahead_us: Vec<i64>,
    /// Whose callers are decided by a clock that may become another: all, unless they live apart.
    home: Option<Home>,
    /// How far the clock is ahead that was last seen to decide there, and when that was.
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

    /// What the clock showed from the beginning on.
    pub(super) fn first(&self, number: usize, home: Option<Home>) -> Disturbance {
        let ahead_us = self.ahead_us.get(number).copied().unwrap_or_default();
        Disturbance {
            home,
            ..Disturbance::of_all(Effect::Clock(ahead_us), 0, 0)
        }
    }

    /// Sets the clock of a server.
    pub(super) fn step(&mut self, number: usize, port: u16, by_us: i64) -> Result<()> {
        let (Some(folder), Some(ahead_us)) = (&self.folder, self.ahead_us.get_mut(number)) else {
            return Err("this clock cannot be set".into());
        };
        *ahead_us += by_us;
        clock::set(folder, port, *ahead_us)
    }

    /// This server decides now. If its clock is another, that became so after somebody last looked.
    pub(super) fn decides(&mut self, number: usize) -> Option<Disturbance> {
        let ahead_us = self.ahead_us.get(number).copied().unwrap_or_default();
        let (before_us, looked_us) = self.last;
        self.last = (ahead_us, now_us());
        (ahead_us != before_us).then(|| Disturbance {
            home: self.home,
            ..Disturbance::of_all(Effect::Clock(ahead_us), looked_us, self.last.1)
        })
    }
}
