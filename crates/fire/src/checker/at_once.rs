//! Says whether no more were held at once than may be, and whether places that were free were given out.
//!
//! Two bounds, for each key:
//!
//! * A place was given out although all were taken, if as many as there are were surely held from before the question until after
//!   the answer. After each loss of data as many may be held once more, until the clients have told what they hold.
//! * A place was refused although one was free, if fewer than there are can have been held. While the servers are well
//!   a place comes back within seconds, and one whose process has died with the end of its lease.
//!
//! And two for requests that wait for a place, while the servers are well:
//!
//! * None waits for longer than it may.
//! * None passes that came after another of its process, while that one still waits.

use std::collections::HashSet;
use std::time::Duration;

use crate::history::{Disturbance, Effect, Wait};
use crate::hold::{Grant, Hold, KEYS, LEASE, PLACES, WAIT};

/// The findings about what was held.
#[derive(Clone, Debug, Default)]
pub struct HeldFindings {
    /// The impossible.
    pub wrong: Vec<String>,
    /// The places that were held.
    pub held: u64,
    /// The attempts that found none free.
    pub denied: u64,
    /// The held places that were judged by the number there is, without any loss before.
    pub strict: u64,
    /// The refused attempts that were judged.
    pub refused: u64,
    /// The requests that waited for a place, and were held to the longest wait and to the order of their process.
    pub stood: u64,
}

/// The time after which every client has told what it holds: a third of a lease, the time for which a silent connection is kept,
/// since nothing is told while the fate of a call is unknown, and time to connect.
const TOLD: Duration = Duration::from_millis(4_000 + 3_000 + 1_500);

/// A client that is kept from its work, or from its servers, for this long may lose its leases.
const TOO_LONG: Duration = Duration::from_millis(4_000);

/// The time in which a place comes back while the servers are well: a call that a busy machine delays is given up, and its key
/// told.
const RELEASED: Duration = Duration::from_millis(4_000);

/// A client that is kept from its work for less is told of in time: the servers are well, and no silent connection is waited for.
const HELD_UP: Duration = Duration::from_millis(500);

/// The time in which a request that comes to a full limit is told so, and stands behind those that came before.
const STANDS: Duration = Duration::from_secs(1);

/// Judges what was held. The disturbances are those of the servers, and the waits those of the clients.
pub(super) fn check_held(
    holds: &[Hold],
    disturbances: &[Disturbance],
    waits: &[Wait],
) -> HeldFindings {
    // The waits of clients that hold: one that looks at the end, when all is over, may wait as it likes.
    let clients: HashSet<_> = holds.iter().map(|hold| hold.process).collect();
    let waits: Vec<_> = { waits.iter() }
        .filter(|wait| clients.contains(&wait.process))
        .copied()
        .collect();
    let losses = losses(disturbances, &waits);
    let mut findings = HeldFindings::default();
    for key in 0..KEYS {
        let mut of_key: Vec<_> = holds.iter().filter(|hold| hold.key == key).collect();
        of_key.sort_by_key(|hold| hold.sent_us);
        for (position, hold) in of_key.iter().enumerate() {
            let others = of_key.iter().enumerate();
            let others = others.filter(|(other, _)| *other != position);
            let others: Vec<_> = others.map(|(_, other)| **other).collect();
            match hold.outcome {
                Grant::Held => {
                    findings.held += 1;
                    findings.judge_grant(hold, &others, &losses);
                }
                Grant::Denied => {
                    findings.denied += 1;
                    findings.judge_denial(hold, &others, disturbances, &waits);
                }
                Grant::Unknown => {}
            }
            if hold.may_wait() && hold.outcome != Grant::Unknown {
                findings.judge_wait(hold, &others, disturbances, &waits);
            }
        }
    }
    findings
}

impl HeldFindings {
    fn judge_grant(&mut self, hold: &Hold, others: &[Hold], losses: &[(u64, u64)]) {
        let held: Vec<_> = others
            .iter()
            .filter(|other| other.is_held_from_to(hold.sent_us, hold.heard_us))
            .collect();
        let since_us = held.iter().map(|other| other.sent_us).min();
        let since_us = since_us.unwrap_or(hold.sent_us).min(hold.sent_us);
        let lost = losses
            .iter()
            .filter(|(from_us, to_us)| *from_us <= hold.heard_us && *to_us >= since_us);
        let lost = lost.count() as u64;
        self.strict += u64::from(lost == 0);
        if held.len() as u64 >= PLACES * (1 + lost) {
            self.wrong.push(format!(
                "key {} at {}: {} are held by others, of {PLACES} places and {lost} losses: {hold:?}",
                hold.key,
                hold.heard_us,
                held.len()
            ));
        }
    }

    fn judge_denial(
        &mut self,
        hold: &Hold,
        others: &[Hold],
        disturbances: &[Disturbance],
        waits: &[Wait],
    ) {
        // After a fault of the servers all is told soon, also that nothing is held. A place whose release a client was kept from comes
        // back with its lease, if no telling comes before.
        let meets = |from_us: u64, to_us: u64, after: Duration| {
            from_us <= hold.heard_us && to_us.saturating_add(micros(after)) >= hold.sent_us
        };
        let is_disturbed = disturbances
            .iter()
            .any(|it| meets(it.from_us, it.to_us, TOLD))
            || (waits
                .iter()
                .filter(|it| it.to_us.saturating_sub(it.from_us) >= micros(HELD_UP)))
            .any(|it| meets(it.from_us, it.to_us, LEASE + TOLD));
        if is_disturbed {
            return;
        }
        self.refused += 1;
        let held = others
            .iter()
            .filter(|other| other.may_be_held_in(hold.sent_us, hold.heard_us))
            .count();
        if (held as u64) < PLACES {
            self.wrong.push(format!(
                "key {} at {}: {held} of {PLACES} places can be held by others, and one was refused: {hold:?}",
                hold.key, hold.heard_us
            ));
        }
    }
}

impl HeldFindings {
    fn judge_wait(
        &mut self,
        hold: &Hold,
        others: &[Hold],
        disturbances: &[Disturbance],
        waits: &[Wait],
    ) {
        let stands_us = micros(STANDS);
        if hold.heard_us - hold.sent_us < 2 * stands_us {
            return;
        }
        let before_us = hold.sent_us.saturating_sub(micros(TOLD));
        let meets = |from_us: u64, to_us: u64| from_us <= hold.heard_us && to_us >= before_us;
        // A process that is kept from its work hears of answers, and of the ends of waits, late.
        let is_late = |it: &&Wait| {
            it.process == hold.process && it.to_us.saturating_sub(it.from_us) >= micros(HELD_UP)
        };
        if disturbances.iter().any(|it| meets(it.from_us, it.to_us))
            || waits
                .iter()
                .filter(is_late)
                .any(|it| meets(it.from_us, it.to_us))
        {
            return;
        }
        self.stood += 1;
        let waited_us = hold.heard_us - hold.sent_us;
        if waited_us > micros(WAIT) + 2 * stands_us {
            self.wrong.push(format!(
                "key {} at {}: a request has waited for {waited_us} us: {hold:?}",
                hold.key, hold.heard_us
            ));
        }
        let overtakes = |other: &&Hold| {
            other.process == hold.process
                && other.outcome == Grant::Held
                && other.sent_us >= hold.sent_us + stands_us
                && other.heard_us + stands_us <= hold.heard_us
        };
        if let Some(other) = others.iter().find(overtakes) {
            self.wrong.push(format!(
                "key {} at {}: {other:?} passes before {hold:?}",
                hold.key, hold.heard_us
            ));
        }
    }
}

impl Hold {
    fn is_held_from_to(&self, from_us: u64, to_us: u64) -> bool {
        self.outcome == Grant::Held
            && self.heard_us <= from_us
            && self.until_us.is_some_and(|until_us| until_us >= to_us)
    }

    fn may_be_held_in(&self, from_us: u64, to_us: u64) -> bool {
        let longest_us = match (self.outcome, self.until_us) {
            (Grant::Denied, _) => return false,
            (Grant::Held, Some(until_us)) => until_us + micros(RELEASED),
            (Grant::Held, None) => self.heard_us + self.lasts_us + micros(LEASE + TOLD),
            (Grant::Unknown, _) => self.heard_us + micros(LEASE + TOLD),
        };
        self.sent_us <= to_us && longest_us >= from_us
    }
}

/// The times in which the servers may count less than is held: data or leases were lost, and not all has been told since.
fn losses(disturbances: &[Disturbance], waits: &[Wait]) -> Vec<(u64, u64)> {
    let told_us = micros(TOLD);
    let too_long_us = micros(TOO_LONG);
    let servers = disturbances.iter().filter(|it| match it.effect {
        Effect::Loss | Effect::MaybeLoss | Effect::Clock(_) => true,
        Effect::Trouble => it.to_us.saturating_sub(it.from_us) >= too_long_us,
    });
    let clients = waits
        .iter()
        .filter(|it| it.to_us.saturating_sub(it.from_us) >= too_long_us);
    let losses = servers
        .map(|it| (it.from_us, it.to_us.saturating_add(told_us)))
        .chain(clients.map(|it| (it.from_us, it.to_us.saturating_add(told_us))));
    losses.map(|loss| put_off(loss, disturbances)).collect()
}

/// The time of a loss, longer by the time for which trouble keeps clients from telling.
fn put_off((from_us, to_us): (u64, u64), disturbances: &[Disturbance]) -> (u64, u64) {
    // In the order in which they began.
    let untold_us = disturbances.iter().fold(to_us, |until_us, it| {
        if it.to_us >= from_us && it.from_us <= until_us {
            until_us.saturating_add(it.to_us.saturating_sub(it.from_us.max(from_us)))
        } else {
            until_us
        }
    });
    (from_us, untold_us)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn held(sent_us: u64, until_us: u64) -> Hold {
        Hold {
            process: 0,
            key: 0,
            sent_us,
            heard_us: sent_us + 10,
            outcome: Grant::Held,
            lasts_us: until_us.saturating_sub(sent_us),
            until_us: Some(until_us),
        }
    }

    fn denied(sent_us: u64) -> Hold {
        Hold {
            outcome: Grant::Denied,
            until_us: None,
            ..held(sent_us, 0)
        }
    }

    fn all_taken(from_us: u64) -> Vec<Hold> {
        (0..PLACES)
            .map(|n| held(from_us + n, from_us + 20 * SECOND))
            .collect()
    }

    fn wrongs(holds: &[Hold], disturbances: &[Disturbance]) -> usize {
        check_held(holds, disturbances, &[]).wrong.len()
    }

    #[test]
    fn one_more_than_there_are_places_is_wrong_and_one_that_may_have_ended_is_not() {
        let mut holds = all_taken(100 * SECOND);
        assert_eq!(wrongs(&holds, &[]), 0);
        holds.push(held(101 * SECOND, 102 * SECOND));
        assert_eq!(wrongs(&holds, &[]), 1);

        // The first ended while the question was under way.
        holds[0].until_us = Some(101 * SECOND + 5);
        assert_eq!(wrongs(&holds, &[]), 0);
        // The end of a process that died is unknown.
        holds[0].until_us = None;
        assert_eq!(wrongs(&holds, &[]), 0);
    }

    #[test]
    fn a_loss_lets_in_as_many_once_more_and_no_more() {
        let mut holds = all_taken(100 * SECOND);
        holds.extend(all_taken(102 * SECOND));
        let loss = Disturbance::of_all(Effect::Loss, 101 * SECOND, 101 * SECOND + 1);
        assert_eq!(wrongs(&holds, &[loss]), 0);
        assert!(wrongs(&holds, &[]) > 0);
        holds.push(held(103 * SECOND, 104 * SECOND));
        assert_eq!(wrongs(&holds, &[loss]), 1);
        // Once all is told, no client is let in.
        let late = held(112 * SECOND, 113 * SECOND);
        let since = all_taken(111 * SECOND);
        let holds: Vec<_> = since.into_iter().chain([late]).collect();
        assert_eq!(wrongs(&holds, &[loss]), 1);
    }

    #[test]
    fn trouble_excuses_what_is_longer_than_a_lease_lives_untold() {
        let mut holds = all_taken(100 * SECOND);
        holds.push(held(104 * SECOND, 105 * SECOND));
        let short = Disturbance::trouble(101 * SECOND, 102 * SECOND);
        let long = Disturbance::trouble(101 * SECOND, 105 * SECOND);
        assert_eq!((wrongs(&holds, &[short]), wrongs(&holds, &[long])), (1, 0));

        // After a loss, nothing is told while there is trouble.
        let loss = Disturbance::of_all(Effect::Loss, 91 * SECOND, 91 * SECOND);
        let then = Disturbance::trouble(93 * SECOND, 94 * SECOND);
        assert_eq!(wrongs(&holds, &[loss]), 1);
        assert_eq!(wrongs(&holds, &[loss, then]), 0);
    }

    #[test]
    fn a_wait_that_is_too_long_and_one_that_is_overtaken_are_wrong() {
        let waited = |sent_us, heard_us, until_us| Hold {
            key: KEYS - 1,
            heard_us,
            ..held(sent_us, until_us)
        };
        let at = |fifths: u64| 100 * SECOND + fifths * SECOND / 5;
        let judged = |holds: &[Hold], disturbances: &[Disturbance]| {
            let findings = check_held(holds, disturbances, &[]);
            (findings.stood, findings.wrong.len())
        };
        let first = waited(at(0), at(19), at(25));
        assert_eq!(judged(&[first], &[]), (1, 0));
        // It may wait for four seconds.
        assert_eq!(judged(&[waited(at(0), at(31), at(40))], &[]), (1, 1));
        // The next came later, and passes while the first still waits.
        let next = waited(at(6), at(13), at(14));
        assert_eq!(judged(&[first, next], &[]), (1, 1));
        let behind = waited(at(6), at(20), at(25));
        assert_eq!(judged(&[first, behind], &[]), (2, 0));
        // Another process has a line of its own.
        let elsewhere = Hold { process: 1, ..next };
        assert_eq!(judged(&[first, elsewhere], &[]), (1, 0));
        // Trouble excuses both.
        let trouble = Disturbance::trouble(at(0), at(1));
        assert_eq!(judged(&[first, next], &[trouble]), (0, 0));
    }

    #[test]
    fn a_refusal_soon_after_a_loss_may_be_right_and_a_later_one_is_wrong() {
        let loss = Disturbance::of_all(Effect::Loss, 100 * SECOND, 100 * SECOND);
        assert_eq!(wrongs(&[denied(108 * SECOND)], &[loss]), 0);
        assert_eq!(wrongs(&[denied(109 * SECOND)], &[loss]), 1);
    }

    #[test]
    fn a_refusal_while_a_place_is_free_is_wrong() {
        let mut holds = vec![denied(200 * SECOND)];
        assert_eq!(wrongs(&holds, &[]), 1);
        // The wait of a process that holds nothing is not an excuse.
        let wait = |process| Wait {
            process,
            from_us: 0,
            to_us: u64::MAX,
        };
        assert_eq!(check_held(&holds, &[], &[wait(7)]).wrong.len(), 1);
        assert_eq!(check_held(&holds, &[], &[wait(0)]).wrong.len(), 0);
        // A short wait is not an excuse either, though a busy machine has many.
        let short = Wait {
            process: 0,
            from_us: 199 * SECOND,
            to_us: 199 * SECOND + SECOND / 4,
        };
        assert_eq!(check_held(&holds, &[], &[short; 9]).wrong.len(), 1);
        let trouble = Disturbance::trouble(199 * SECOND, 199 * SECOND);
        assert_eq!(wrongs(&holds, &[trouble]), 0);

        // The refusal is not wrong if all were taken, or if they may not have come back,
        holds.extend(all_taken(190 * SECOND));
        assert_eq!(wrongs(&holds, &[]), 0);
        for hold in &mut holds[1..] {
            hold.until_us = Some(197 * SECOND);
        }
        assert_eq!(wrongs(&holds, &[]), 0);
        // but if they have.
        holds[1].until_us = Some(195 * SECOND);
        assert_eq!(wrongs(&holds, &[]), 1);
        // A process that died holds until its lease ends.
        holds[1].until_us = None;
        assert_eq!(wrongs(&holds, &[]), 0);
        // So does a question without an answer.
        holds[1].outcome = Grant::Unknown;
        assert_eq!(wrongs(&holds, &[]), 0);
    }
}
