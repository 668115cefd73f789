//! Connections that could not be accepted: a line of the log when they begin to fail, and one when they no longer do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The time without a failure after which it is over. Connections that end make room for a moment, also in the middle of it.
const CALM: Duration = Duration::from_secs(10);

/// The failures of one socket.
pub(super) struct Failures {
    calm: Duration,
    spell: Option<Spell>,
}

/// Failures that follow each other.
struct Spell {
    count: u64,
    end: Pin<Box<Sleep>>,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            calm: CALM,
            spell: None,
        }
    }
}

impl Failures {
    /// A connection could not be accepted.
    pub(super) fn tell(&mut self, error: &io::Error) {
        let end = Instant::now() + self.calm;
        match &mut self.spell {
            Some(spell) => {
                spell.count += 1;
                spell.end.as_mut().reset(end);
            }
            None => {
                tracing::error!(%error, "no connection can be accepted; later failures are counted");
                self.spell = Some(Spell {
                    count: 1,
                    end: Box::pin(tokio::time::sleep_until(end)),
                });
            }
        }
    }

    /// Has the end told when it has come.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) {
        if let Some(spell) = &mut self.spell
            && let Poll::Ready(()) = spell.end.as_mut().poll(cx)
        {
            tracing::info!(failed = spell.count, "connections are accepted again");
            self.spell = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test says what it expects by panicking")]

    use std::future::poll_fn;

    use tollgate_testkit::Log;

    use super::*;

    #[tokio::test]
    async fn a_spell_has_a_line_when_it_begins_and_one_with_its_count_when_it_is_over() {
        let log = Log::default();
        let _guard = log.listen();
        let mut failures = Failures {
            calm: Duration::from_millis(50),
            spell: None,
        };
        for (count, lines) in [(1_000, 2), (1, 4)] {
            for _ in 0..count {
                failures.tell(&io::Error::from_raw_os_error(24));
            }
            poll_fn(|cx| {
                failures.poll_end(cx);
                if failures.spell.is_none() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            let told = log.text();
            assert_eq!(told.lines().count(), lines, "{told}");
            let end = format!("connections are accepted again failed={count}\n");
            assert!(told.ends_with(&end), "{told}");
        }
        assert_eq!(log.text().matches("Too many open files").count(), 2);
    }
}
