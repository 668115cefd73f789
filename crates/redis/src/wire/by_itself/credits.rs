//! Credits, and how long a state keeps them.

use std::time::Duration;

use tollgate_core::Quota;

use super::{KEY, SECOND, START, Server};
use crate::wire::numbers::Reader;

#[test]
fn credits_that_have_lost_their_meaning_are_dropped_by_a_key_that_stays_in_use() {
    let mut server = Server::start();
    for (quota, short) in [
        (Quota::per_second(10).burst(40), 9),
        (Quota::new(10, Duration::from_micros(999_999)).burst(40), 16),
    ] {
        // given a bucket with thirty credits, the last of which gave back a charge that was to have drained three seconds later
        server.forget();
        let at = server.now;
        for _ in 0..30 {
            assert!(server.admits(&quota, 1));
        }
        let full_at = at + server.owed_us();
        for _ in 0..30 {
            server.refund(&quota, 1, at, full_at);
        }
        assert_eq!(server.state().len(), 23 + 30 * 28, "{quota}");

        // when it is charged while a receipt could still be open, and then
        let mut lengths = Vec::new();
        for later in [full_at - 2, full_at] {
            server.now = later;
            assert!(server.admits(&quota, 1));
            lengths.push(server.state().len());
        }

        // then it carries them as long and no longer
        assert_eq!(lengths, [23 + 30 * 28, short], "{quota}");
    }
}

/// The parts of a credit: its time, the start of the stretch that it took out, the length of the stretch, and the last place of
/// any charge then.
type CreditMark = [u64; 4];

fn packed(credits: &[CreditMark]) -> Vec<u8> {
    let numbers = credits.iter().flatten();
    numbers
        .flat_map(|number| number.to_le_bytes()[..7].to_vec())
        .collect()
}

fn credits_of(state: &[u8]) -> Vec<CreditMark> {
    let mut reader = Reader(&state[23..]);
    let mut credits = Vec::new();
    while !reader.0.is_empty() {
        credits.push([(); 4].map(|()| reader.u56().unwrap()));
    }
    credits
}

/// Credits of these lengths, the oldest first, all of which an open receipt could still need.
fn credits_of_lengths(lengths: &[u64; 32]) -> Vec<CreditMark> {
    let credits = (0..).zip(lengths).map(|(n, &length)| {
        // The beginnings and the ends are out of the order of time.
        let (from, last) = (START + 7 * n % 5, START + SECOND + 3 * n % 4);
        [START - 100 + n, from, length, last]
    });
    credits.collect()
}

#[test]
fn of_more_credits_than_are_told_apart_the_oldest_two_become_one_that_are_small_beside_what_came_after()
 {
    const LONGEST: u64 = 1 << 52;
    let mut server = Server::start();
    let quota = Quota::per_second(10).burst(40);
    let then_none = |lengths: &[u64]| {
        let mut all = [0; 32];
        all[..lengths.len()].copy_from_slice(lengths);
        all
    };
    // Each is more than half of all that came after it.
    let falling: [u64; 32] = std::array::from_fn(|n| 3_u64.pow(31 - u32::try_from(n).unwrap()));
    for (lengths, older) in [
        (then_none(&[8, 7, 30]), 0),
        (then_none(&[8, 7, 29]), 3),
        (then_none(&[20, 8, 7, 29, 1]), 1),
        (then_none(&[20, 8, 7, 29]), 4),
        (then_none(&[]), 0),
        (falling, 0),
        // Together longer than anything drains: they are cut to the largest number that Lua counts exactly.
        ([LONGEST; 32], 0),
        ([LONGEST / 2; 32], 0),
    ] {
        // given as many credits as are told apart, in a state that owes a second
        let mut credits = credits_of_lengths(&lengths);
        let newest = START + SECOND;
        let mut state = vec![128 + 21];
        state.extend((newest as f64).to_le_bytes());
        state.extend([0; 7]);
        state.extend(&(newest + 3).to_le_bytes()[..7]);
        state.extend(packed(&credits));
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(&state).exec(&mut server.redis).unwrap();

        // when one more is given, for a charge that was made after all of them
        server.refund(&quota, 2, START, newest);

        // then two of them are one, which errs on the strict side in each of its parts
        let [_, from, length, last] = credits.remove(older);
        let merged = &mut credits[older];
        merged[1] = merged[1].min(from);
        merged[2] = (merged[2] + length).min(LONGEST);
        merged[3] = merged[3].max(last);
        credits.push([START, newest - 200_000, 200_000, newest]);
        assert_eq!(credits_of(&server.state()), credits, "{lengths:?}");
    }
}

#[test]
fn a_credit_is_forgotten_once_all_have_drained_that_stood_when_it_was_given() {
    let mut server = Server::start();
    let quota = Quota::per_second(10).burst(40);
    // given three credits, the last charge of which has drained, drains just now, or is about to
    let of_last = |last| [START - 100, START - 50, 9, last];
    let credits = [START - 1, START, START + 1].map(of_last);
    let mut state = vec![128 + 21];
    state.extend(((START + SECOND) as f64).to_le_bytes());
    state.extend([0; 7]);
    state.extend(&(START + 1).to_le_bytes()[..7]);
    state.extend(packed(&credits));
    let mut set = redis::cmd("SET");
    set.arg(KEY).arg(&state).exec(&mut server.redis).unwrap();

    // when one more is given
    server.refund(&quota, 1, START, START + SECOND);

    // then
    let newest = [START, START + SECOND - 100_000, 100_000, START + SECOND];
    assert_eq!(credits_of(&server.state()), [credits[2], newest]);
}
