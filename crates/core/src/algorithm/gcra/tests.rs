//! The facts that a bucket tells of its quota, its credits, and the widths of its arithmetic.

use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_000_000;

/// A full budget of 1 drains in this many µs, and a budget of `burst` in `burst` times as many.
fn rule(interval_us: u64, burst: u64) -> Gcra {
    Gcra::new(1, interval_us, burst).expect("a quota")
}

/// The drain that a state tells: the power of two, and the thirty-seconds.
fn told(state: &Bucket) -> (u8, u8) {
    (state.reach().exponent(), state.reach().thirty_seconds())
}

#[test]
fn a_state_tells_the_longest_drain_that_may_have_left_it_and_exactly_only_for_a_debt() {
    // 96 µs are 64 and 16/32 more; 40 µs are 32 and 8/32 more.
    let (long, short) = (rule(12, 8), rule(10, 4));

    // Up to a full budget, a state tells the power of two alone.
    let mut state = Bucket::default();
    assert!(matches!(
        long.step(&mut state, NOW, 8, true).0,
        Passage::Open
    ));
    assert_eq!((state.full_at().us, told(&state)), (NOW + 96, (6, 0)));

    // A question that changes nothing leaves the reach as it is.
    short.take(&mut state, NOW, 0);
    assert_eq!(told(&state), (6, 0));

    // A charge of a shorter quota on top of it is a debt, and the ceiling is still the longer quota's.
    short.take(&mut state, NOW, 1);
    assert_eq!((state.full_at().us, told(&state)), (NOW + 106, (6, 0)));
    long.take(&mut state, NOW, 1);
    assert_eq!((state.full_at().us, told(&state)), (NOW + 118, (6, 16)));
    short.take(&mut state, NOW, 1);
    assert_eq!((state.full_at().us, told(&state)), (NOW + 128, (6, 16)));

    // A debt on an empty budget is that of the quota that made it, up to its last part.
    let mut state = Bucket::default();
    long.take(&mut state, NOW, 3);
    short.take(&mut state, NOW, 1);
    assert_eq!((state.full_at().us, told(&state)), (NOW + 46, (5, 8)));
    let mut state = Bucket::default();
    short.take(&mut state, NOW, 4);
    assert_eq!((state.full_at().us, told(&state)), (NOW + 40, (5, 0)));
    short.take(&mut state, NOW, 1);
    assert_eq!((state.full_at().us, told(&state)), (NOW + 50, (5, 8)));
}

#[test]
fn a_debt_ends_at_eight_budgets_of_the_longer_quota() {
    let (long, short) = (rule(12, 8), rule(10, 4));

    // The ceiling is at once the own one, whatever was owed before.
    let mut state = Bucket::default();
    short.take(&mut state, NOW, 1_000);
    assert_eq!(state.full_at().us, NOW + 320);
    long.take(&mut state, NOW, 1_000);
    assert_eq!(state.full_at().us, NOW + 768);
    short.take(&mut state, NOW, 1);
    assert_eq!(state.full_at().us, NOW + 768);

    // A shorter quota brings back a state that lies further ahead than the longer one may owe, and a quota of the same
    // drain a state beyond its own ceiling.
    for (rule, back_us) in [(&short, 768), (&long, 768)] {
        let mut state = state.clone();
        let earlier = NOW - 5_000;
        let (passage, ..) = rule.step(&mut state, earlier, 1, true);
        assert!(matches!(passage, Passage::Closed(_)));
        assert_eq!(state.full_at().us, earlier + back_us);
    }
    let mut state = Bucket::default();
    state.put(
        Point {
            us: NOW + 5_000,
            rest: 0,
        },
        1,
        short.reach,
    );
    assert!(matches!(short.passage(&mut state, NOW, 0), Passage::Open));
    assert_eq!(state.full_at().us, NOW + 320);
}

#[test]
fn a_rest_counts_exactly_for_its_denominator_and_as_a_microsecond_for_any_other() {
    // given three sevenths of a microsecond
    let seventh = Gcra::new(7, 10, 7).expect("a quota");
    let ninth = Gcra::new(9, 10, 9).expect("a quota");
    let mut state = Bucket::default();
    state.put(Point { us: NOW, rest: 3 }, seventh.mark, seventh.coarse);

    // then
    assert_eq!(seventh.left::<u128>(&state, NOW), 3);
    assert_eq!(ninth.left::<u128>(&state, NOW), 9);
    assert_eq!(rule(1, 9).left::<u128>(&state, NOW), 1);
    assert_eq!(seventh.left::<u64>(&state, NOW - 1), 10);
    assert_eq!(seventh.left::<u64>(&state, NOW + 1), 0);
    assert_eq!(rule(1, 9).left::<Micros>(&state, NOW - 1), Micros::from(2));
    assert_eq!(rule(1, 9).left::<Micros>(&state, NOW + 1), Micros::from(0));

    // More than a microsecond counts as one.
    state.put(Point { us: NOW, rest: 8 }, seventh.mark, seventh.coarse);
    assert_eq!(seventh.left::<u128>(&state, NOW), 7);
    assert_eq!(seventh.left::<u64>(&state, NOW), 7);
}

#[test]
fn credits_go_with_the_first_change_at_which_no_receipt_can_know_them() {
    let rule = rule(10, 8);
    for is_debit in [false, true] {
        for (later_us, is_kept) in [(29, true), (30, false), (31, false)] {
            // given a charge of 30 µs that was given back
            let mut state = Bucket::default();
            rule.take(&mut state, NOW, 3);
            let full_at = state.full_at();
            rule.give_back(&mut state, NOW, NOW, full_at, 3);
            assert!(state.notes.is_some());

            // when something is charged later
            if is_debit {
                rule.take(&mut state, NOW + later_us, 1);
            } else {
                rule.step(&mut state, NOW + later_us, 1, true);
            }

            // then
            assert_eq!(state.notes.is_some(), is_kept, "{later_us} µs later");
        }
    }
}

#[test]
fn what_is_given_back_is_no_more_than_shows_and_none_of_it_from_the_future() {
    let rule = rule(10, 8);
    for (cost, charged_at, now, left_us) in [
        // It gives back all of it, part of it, and more than there is.
        (3, NOW, NOW, 0),
        (1, NOW, NOW, 20),
        (9, NOW, NOW, 0),
        // The part that has drained meanwhile does not come back.
        (3, NOW, NOW + 12, 0),
        (1, NOW, NOW + 12, 8),
        // By a clock that is behind the charge nothing comes back.
        (3, NOW, NOW - 1, 31),
    ] {
        let mut state = Bucket::default();
        rule.take(&mut state, charged_at, 3);
        let full_at = state.full_at();
        rule.give_back(&mut state, now, charged_at, full_at, cost);
        let left: u64 = rule.left(&state, now);
        assert_eq!(left, left_us, "{cost} at {now}");
    }
}

#[test]
fn a_credit_tells_which_stretch_it_took_out_and_rounds_to_the_strict_side() {
    // One unit drains in 10 µs, and in 1 3/7 µs.
    let (whole, sevenths) = (rule(10, 8), Gcra::new(7, 10, 14).expect("a quota"));
    for (rule, full_at, from_us, length_us, last_us) in [
        // Three units are charged first. When two come back, one unit has drained by half: the second and the third come
        // back.
        (whole, NOW + 30, NOW + 10, 20, NOW + 50),
        // 4 2/7 µs are owed and 2 6/7 come back: those from 1 3/7 on, and the last ends at 7 1/7.
        (sevenths, NOW + 4, NOW + 1, 3, NOW + 8),
    ] {
        // given two charges, the first of which is to be given back in part
        let mut state = Bucket::default();
        rule.take(&mut state, NOW, 3);
        let place = state.full_at();
        assert_eq!(place.us, full_at);
        rule.take(&mut state, NOW, 2);

        // when that is done before any of the returned part has drained
        let now = if full_at == NOW + 30 { NOW + 5 } else { NOW };
        rule.give_back(&mut state, now, NOW, place, 2);

        // then
        let Snapshot::Gcra { credits, .. } = state.snapshot() else {
            panic!("{state:?}");
        };
        let told = CreditMark {
            at_us: now,
            from_us,
            length_us,
            last_us,
        };
        assert_eq!(credits, [told]);
    }
}

proptest! {
    /// A state that a quota of a longer drain may have left as well, and that does not fit 64 bits.
    #[test]
    fn a_quick_step_is_the_step_in_128_bits(
        (limit, period_us, burst) in (1..100_000_u64, 1..100_000_000_u64, 1..100_000_u64),
        whole in any::<bool>(),
        (ahead_us, rest) in (0..1_u64 << 52, any::<u32>()),
        of in any::<Option<u16>>(),
        (exponent, parts) in (0..=48_u8, 0..32_u8),
        near in any::<bool>(),
        cost in 0..200_000_u64,
        take in any::<bool>(),
    ) {
        // given a quota whose interval is a whole number of microseconds in half of the cases
        let period_us = if whole { limit * (period_us / limit).max(1) } else { period_us };
        let rule = Gcra::new(limit, period_us, burst);
        prop_assume!(rule.is_ok_and(|rule| rule.width != Width::Wide));
        let Ok(rule) = rule else { return Ok(()) };
        let now = 1_700_000_000_000_000;
        let ahead_us = if near { ahead_us % (2 * period_us) } else { ahead_us };
        let mut quick = Bucket::default();
        let point = Point { us: now + ahead_us, rest };
        quick.put(point, of.unwrap_or(rule.mark), Reach::new(exponent, parts));
        let (mut asked, mut wide) = (quick.clone(), quick.clone());

        // when
        let passage = rule.passage(&mut asked, now, cost);
        let steps = (
            rule.step(&mut quick, now, cost, take),
            rule.step_in::<u128>(&mut wide, now, cost, take),
        );

        // then
        prop_assert_eq!(steps.0, steps.1);
        prop_assert_eq!(quick.full_at(), wide.full_at());
        prop_assert_eq!(passage, steps.1.0);
    }
}
