//! The distance of the server, and the number of calls at once that makes up for it.
//!
//! Near by, one call is answered by the time the next one has gathered, and more calls at once would only be smaller. Far away,
//! callers would wait for the few calls under way. So a connection carries one call for each millisecond of the shortest recent
//! round trip, up to a bound: in each millisecond no more calls leave than to a server one millisecond away. It is the shortest
//! because a busy server answers late as well, and is helped by fewer and larger calls: if round trips grow, the number of
//! calls must not.

use std::time::Duration;

use crate::sync::Instant;

/// The most calls that one connection carries. Two connections then carry 2,048 requests at once, and 22,000 in a second at 90
/// ms.
pub(crate) const MOST_CALLS: usize = 16;

/// One more call at once for each of these.
const FOR_EACH: Duration = Duration::from_millis(1);

/// The shortest round trip counts for this long, and for no more than twice that.
pub(crate) const SPELL: Duration = Duration::from_secs(5);

/// The time for which a round trip shows that an answer would come too late. Then one call measures again.
pub(crate) const TELLS_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Pace {
    /// The shortest round trips of this spell and the one before.
    shortest: [Option<Duration>; 2],
    began_at: Instant,
    heard_at: Instant,
    calls: usize,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            shortest: [None; 2],
            began_at: now,
            heard_at: now,
            calls: 1,
        }
    }
}

impl Pace {
    /// The number of calls at once on a connection.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// The shortest recent round trip, if there was one.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let known = self.shortest.iter().flatten();
        known.min().copied()
    }

    /// The least time of an answer, as far as that is known, if an answer can come within the deadline at all. Otherwise the
    /// callers' own calls measure it.
    pub(crate) fn answer_takes(&self, now: Instant, deadline: Duration) -> Duration {
        match self.round_trip() {
            Some(round_trip) if round_trip < deadline && now < self.heard_at + TELLS_FOR => {
                round_trip
            }
            _ => Duration::ZERO,
        }
    }

    /// Notes a new connection, on which a round trip took this long.
    pub(crate) fn connected(&mut self, now: Instant, round_trip: Duration) {
        self.note(now, round_trip);
        self.calls = self.calls.max(self.most());
    }

    /// Notes a call that was answered.
    pub(crate) fn answered(&mut self, now: Instant, round_trip: Duration) {
        self.note(now, round_trip);
        let shortest = self.round_trip().unwrap_or(round_trip);
        self.calls = if round_trip <= shortest * 3 / 2 + FOR_EACH {
            self.calls * 2
        } else if round_trip > shortest * 2 + FOR_EACH * 2 {
            self.calls - 1
        } else {
            self.calls
        };
        self.calls = self.calls.clamp(1, self.most());
    }

    /// Notes a call that was not answered when it should have been.
    pub(crate) fn stalled(&mut self) {
        self.calls = (self.calls / 2).max(1);
    }

    fn most(&self) -> usize {
        let round_trip = self.round_trip().unwrap_or_default();
        let calls = round_trip.as_micros() / FOR_EACH.as_micros();
        usize::try_from(calls).map_or(MOST_CALLS, |calls| calls.clamp(1, MOST_CALLS))
    }

    fn note(&mut self, now: Instant, round_trip: Duration) {
        self.heard_at = now;
        if now >= self.began_at + SPELL {
            self.shortest = [None, self.shortest[0]];
            self.began_at = now;
        }
        let shortest = &mut self.shortest[0];
        *shortest = Some(shortest.map_or(round_trip, |shortest| shortest.min(round_trip)));
    }
}
