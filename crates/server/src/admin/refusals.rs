//! The log's lines about requests without the token: few, however many come.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two lines are at least so far apart.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// The requests without the token.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<RefusalLog>);

#[derive(Debug, Default)]
struct RefusalLog {
    told_at: Option<Instant>,
    /// Those since the last line.
    untold: u64,
}

impl Refusals {
    /// A request was refused. What it stated is in no line.
    pub(super) fn tell(&self, from: Option<SocketAddr>) {
        if let Some(refused) = self.count(Instant::now()) {
            let from = from.map(tracing::field::display);
            tracing::warn!(refused, from, "the admin was asked without its token");
        }
    }

    /// The number of requests since the last line, if another one is due.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.untold += 1;
        let is_due = log
            .told_at
            .is_none_or(|told_at| now.saturating_duration_since(told_at) >= BETWEEN_LINES);
        is_due.then(|| {
            log.told_at = Some(now);
            std::mem::take(&mut log.untold)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_makes_a_line_a_minute_and_none_is_forgotten() {
        let refusals = Refusals::default();
        let begin = Instant::now();
        let lines = (0..180_000).filter_map(|ms| refusals.count(begin + Duration::from_millis(ms)));
        let lines: Vec<_> = lines.collect();

        assert_eq!(lines, [1, 60_000, 60_000]);
        let rest = refusals.count(begin + Duration::from_secs(240));
        assert_eq!(rest, Some(60_000));
    }
}
