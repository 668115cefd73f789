//! The gate that refuses the unimportant under pressure, before anything else is asked.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::key::Source;
use crate::policy::Rank;
use crate::pressure::{Follower, Level};
use crate::{Pressure, RequestView};

/// The classes of a limiter, and the gate that its signal moves.
pub(super) struct Shedder {
    /// The extractor that names the class of a request.
    source: Source,
    gate: Arc<Gate>,
    retry_after: Duration,
    /// It keeps the signal alive.
    _pressure: Option<Pressure>,
}

/// The levels at which a class is refused, and let in again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    at: Level,
    /// It is let in again below this one.
    end: Level,
}

impl Threshold {
    pub(super) fn new(at: Level, margin: Level) -> Self {
        Self {
            at,
            end: at.less(margin),
        }
    }

    pub(super) fn at(self) -> Level {
        self.at
    }
}

/// The classes that are let in at present.
struct Gate {
    /// The names of the classes, the most important first.
    names: Box<[Box<str>]>,
    /// `None` for a class that is never refused. They fall with the importance of their classes.
    thresholds: Box<[Option<Threshold>]>,
    /// Classes of a lower rank are let in. The signal sets it, and a request only reads it.
    let_in: AtomicU8,
    is_shadow: bool,
    log: Mutex<Log>,
}

impl Shedder {
    pub(super) fn new(
        names: Vec<String>,
        source: Source,
        thresholds: Vec<Option<Threshold>>,
        retry_after: Duration,
        is_shadow: bool,
    ) -> Self {
        Self {
            source,
            gate: Arc::new(Gate {
                names: names.into_iter().map(Into::into).collect(),
                thresholds: thresholds.into(),
                let_in: AtomicU8::new(ALL),
                is_shadow,
                log: Mutex::default(),
            }),
            retry_after,
            _pressure: None,
        }
    }

    pub(super) fn following(mut self, pressure: Pressure) -> Self {
        pressure.tell(&self.gate);
        self._pressure = Some(pressure);
        self
    }

    /// True if no class is refused at present.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.gate.let_in() == ALL
    }

    /// True if the class of a request is found in a part that a gRPC interceptor does not see.
    pub(super) fn needs_whole_request(&self) -> bool {
        self.source.needs_whole_request()
    }

    /// True if a class is let in at present.
    pub(super) fn lets_in(&self, class: Rank) -> bool {
        class < self.gate.let_in()
    }

    /// True if no request is refused, but observers hear of each that would be.
    pub(super) fn is_shadow(&self) -> bool {
        self.gate.is_shadow
    }

    /// The wait that refused callers are told.
    pub(super) fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// The class of a request. One that names none, an unknown one or two has the last: no caller gains by it.
    pub(super) fn class_of(&self, request: &RequestView<'_>) -> Rank {
        let found = self.source.extract_class(request);
        let known = found.and_then(|name| self.class_named(name.text()?));
        known.unwrap_or(self.least())
    }

    pub(super) fn class_named(&self, name: &str) -> Option<Rank> {
        let mut names = self.gate.names.iter();
        names.position(|known| **known == *name).map(rank)
    }

    pub(super) fn least(&self) -> Rank {
        rank(self.gate.names.len().saturating_sub(1))
    }

    pub(super) fn name(&self, class: Rank) -> &str {
        self.gate
            .names
            .get(usize::from(class))
            .map_or("", |name| name)
    }
}

/// The rank below which all classes are. A limiter has at most 64.
const ALL: Rank = Rank::MAX;

fn rank(place: usize) -> Rank {
    Rank::try_from(place).unwrap_or(Rank::MAX)
}

impl Gate {
    #[inline]
    fn let_in(&self) -> Rank {
        self.let_in.load(Ordering::Relaxed)
    }
}

impl Follower for Gate {
    fn hear(&self, level: Level) {
        let before = self.let_in();
        let is_let_in = |(place, threshold): &(usize, &Option<Threshold>)| match threshold {
            None => true,
            Some(threshold) if rank(*place) < before => level < threshold.at,
            Some(threshold) => level < threshold.end,
        };
        // Thresholds fall with the importance, so that those behind the first that is refused are refused as well.
        let let_in = self.thresholds.iter().enumerate().take_while(is_let_in);
        let let_in = match let_in.count() {
            all if all == self.thresholds.len() => ALL,
            some => rank(some),
        };
        self.let_in.store(let_in, Ordering::Relaxed);
        if (before == ALL) != (let_in == ALL) {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.turned(let_in == ALL, level, self.is_shadow);
        }
    }
}

/// The lines about the gate in the log, few enough that a signal that swings does not fill a disk.
#[derive(Debug, Default)]
struct Log {
    told_at: Option<Instant>,
    /// True if the log knows that requests are refused.
    is_told: bool,
}

const BETWEEN_LINES: Duration = Duration::from_secs(10);

impl Log {
    #[cold]
    fn turned(&mut self, is_open: bool, level: Level, shadow: bool) {
        if is_open {
            if self.is_told {
                self.is_told = false;
                tracing::info!(
                    level = level.part(),
                    shadow,
                    "the pressure has fallen: all classes of requests are let in again"
                );
            }
        } else if self.told_at.is_none_or(|at| at.elapsed() >= BETWEEN_LINES) {
            self.told_at = Some(Instant::now());
            self.is_told = true;
            tracing::warn!(
                level = level.part(),
                shadow,
                "under pressure: requests of the least important class are refused"
            );
        }
    }
}

impl fmt::Debug for Shedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedder")
            .field("classes", &self.gate.names)
            .field("thresholds", &self.gate.thresholds)
            .field("retry_after", &self.retry_after)
            .field("is_shadow", &self.gate.is_shadow)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A critical class that is never refused, a normal one from 0.9 until below 0.8, and batches from 0.7 until below 0.6.
    fn gate() -> Option<Gate> {
        let margin = Level::of(0.1)?;
        let at = |part| Some(Threshold::new(Level::of(part)?, margin));
        Some(Gate {
            names: ["critical", "normal", "batch"].map(Into::into).into(),
            thresholds: [None, at(0.9), at(0.7)].into(),
            let_in: AtomicU8::new(ALL),
            is_shadow: false,
            log: Mutex::default(),
        })
    }

    #[test]
    fn a_class_is_refused_at_its_level_exactly_and_let_in_below_the_other_one() {
        let gate = gate().unwrap();
        for (part, let_in) in [
            (0.699_999, ALL),
            (0.7, 2),
            (0.699_999, 2),
            (0.6, 2),
            (0.599_999, ALL),
            (0.699_999, ALL),
            (0.899_999, 2),
            (0.9, 1),
            (0.899_999, 1),
            (0.8, 1),
            (0.799_999, 2),
            (0.899_999, 2),
            (1.0, 1),
            (0.0, ALL),
            // Past both at once, and back between them.
            (1.0, 1),
            (0.65, 2),
            (0.5, ALL),
        ] {
            gate.hear(Level::of(part).unwrap());
            assert_eq!(gate.let_in(), let_in, "at {part}");
        }
    }

    #[test]
    fn the_log_hears_when_the_first_class_is_refused_and_when_the_last_is_let_in() {
        let gate = gate().unwrap();
        let is_told = || gate.log.lock().unwrap().is_told;
        for (part, told) in [
            (0.5, false),
            (0.7, true),
            (0.95, true),
            (0.6, true),
            (0.5, false),
        ] {
            gate.hear(Level::of(part).unwrap());
            assert_eq!(is_told(), told, "at {part}");
        }
    }

    #[test]
    fn the_log_does_not_hear_of_a_signal_that_swings() {
        let (mut log, level) = (Log::default(), Level::of(0.7).unwrap());
        let mut closes = |told_at| {
            log.told_at = told_at;
            log.turned(false, level, false);
            let is_told = log.is_told;
            log.turned(true, level, false);
            is_told
        };
        let now = Instant::now();
        assert!(closes(None));
        // A time ahead has passed by nothing, on a slow machine as well.
        assert!(!closes(Some(now + BETWEEN_LINES)));
        assert!(closes(now.checked_sub(BETWEEN_LINES)));
    }
}
