//! The log's lines about requests without the token: few, however many come.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Two lines are at least so far apart.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// The requests without the token. They come in floods: a flood has a line when it begins, one a minute while it lasts, and one
/// when a minute has passed without another.
#[derive(Debug)]
pub(super) struct Refusals {
    between_lines: Duration,
    flood: Arc<Mutex<Option<Flood>>>,
}

#[derive(Debug, Default)]
struct Flood {
    all: u64,
    /// Those since the last line.
    untold: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            between_lines: BETWEEN_LINES,
            flood: Arc::default(),
        }
    }
}

impl Refusals {
    /// A request was refused. What it stated is in no line.
    pub(super) fn tell(&self, from: Option<SocketAddr>) {
        let mut flood = self.flood.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flood) = &mut *flood {
            flood.all += 1;
            flood.untold += 1;
            return;
        }
        *flood = Some(Flood { all: 1, untold: 0 });
        let from = from.map(tracing::field::display);
        tracing::warn!(refused = 1, from, "the admin was asked without its token");
        let follow = follow(Arc::downgrade(&self.flood), self.between_lines);
        drop(tokio::spawn(follow));
    }
}

/// Tells of a flood until it is over.
async fn follow(flood: Weak<Mutex<Option<Flood>>>, between_lines: Duration) {
    loop {
        tokio::time::sleep(between_lines).await;
        let Some(flood) = flood.upgrade() else {
            return;
        };
        let mut flood = flood.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Flood { all, untold }) = &mut *flood else {
            return;
        };
        match std::mem::take(untold) {
            0 if *all == 1 => {}
            0 => tracing::warn!(
                refused = *all,
                "the admin is no longer asked without its token"
            ),
            refused => {
                tracing::warn!(refused, "the admin was asked without its token");
                continue;
            }
        }
        *flood = None;
        return;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test says what it expects by panicking")]

    use std::time::Instant;

    use tollgate_testkit::Log;

    use super::*;

    /// A machine that builds beside the test takes its time.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Waits for a line that ends so.
    async fn line(log: &Log, end: &str) {
        let begun = Instant::now();
        while !log.text().lines().any(|line| line.ends_with(end)) {
            assert!(begun.elapsed() < PATIENCE, "{}", log.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_flood_has_a_line_when_it_begins_and_one_with_all_when_it_is_over() {
        let log = Log::default();
        let _guard = log.listen();
        let refusals = Refusals {
            between_lines: Duration::from_millis(100),
            ..Refusals::default()
        };
        for _ in 0..50_000 {
            refusals.tell(None);
        }
        line(
            &log,
            "the admin is no longer asked without its token refused=50000",
        )
        .await;
        // One for the rest, and none for each.
        let told = "the admin was asked without its token refused=";
        let lines = log.text();
        let counts = lines.lines().filter_map(|line| line.split_once(told));
        let counts: Vec<u64> = counts.filter_map(|(_, count)| count.parse().ok()).collect();
        assert_eq!(counts, [1, 49_999], "{lines}");

        // The next one begins anew, and a single request has no second line.
        refusals.tell(None);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(log.text().lines().count(), 4, "{}", log.text());
        refusals.tell(None);
        assert_eq!(log.text().lines().count(), 5, "{}", log.text());
    }
}
