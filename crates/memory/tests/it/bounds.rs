//! The keys that are remembered, and those that are forgotten, and when.

use std::time::Duration;

use crate::common::{every_algorithm, one};
use tollgate_core::{
    Algorithm, Backend, BackendError, Ban, Call, Charge, Decision, FailureKind, ImmediateBackend,
    Key, MAX_CHARGES, ManualClock, Mode, Once, Quota, Receipt, Scope, Timestamp, Verdict,
};
use tollgate_memory::MemoryBackend;

fn backend(max_keys: usize) -> (MemoryBackend, ManualClock) {
    let clock = ManualClock::new();
    let builder = MemoryBackend::builder().max_keys(max_keys);
    (builder.clock(clock.clone()).build(), clock)
}

#[test]
fn what_takes_nothing_is_not_remembered() {
    // given
    let (backend, _) = backend(1000);
    let quota = Quota::per_hour(5);
    let scope = Scope::of("nothing-taken", 0, &quota);
    let key = Key::from("alice");
    let charge = one(scope, &quota, &key);

    // when
    for (cost, mode) in [
        (0, Mode::Enforce),
        (6, Mode::Enforce),
        (6, Mode::Shadow),
        (1, Mode::Probe),
    ] {
        let charge = Charge {
            cost,
            mode,
            ..charge
        };
        backend.decide_now(Call::of(&[charge])).unwrap();
        backend.decide_now(Call::of(&[charge, charge])).unwrap();
    }

    // then
    assert_eq!(backend.stats().keys, 0);
}

#[test]
fn a_denied_call_remembers_none_of_its_keys() {
    // given
    let (backend, _) = backend(1000);
    let quota = Quota::per_hour(1);
    let scope = Scope::of("denied-call", 0, &quota);
    let keys: Vec<Key> = (0..10_u32).map(Key::from).collect();
    let charges: Vec<_> = keys.iter().map(|key| one(scope, &quota, key)).collect();
    backend.decide_now(Call::of(&charges[9..])).unwrap();

    // when
    let decision = backend.decide_now(Call::of(&charges)).unwrap();

    // then
    assert!(!decision.is_admitted());
    assert_eq!(backend.stats().keys, 1);
}

#[test]
fn too_many_charges_are_an_invalid_call() {
    let (backend, _) = backend(1000);
    let quota = Quota::per_hour(100);
    let key = Key::from("alice");
    let charge = one(Scope::of("too-many", 0, &quota), &quota, &key);

    let error = backend
        .decide_now(Call::of(&[charge; MAX_CHARGES + 1]))
        .unwrap_err();

    assert_eq!(error.kind(), FailureKind::InvalidCall);
    assert!(backend.decide_now(Call::of(&[charge; MAX_CHARGES])).is_ok());
}

#[test]
fn keys_that_are_full_again_make_room_without_anybody_being_evicted() {
    for quota in every_algorithm(10, Duration::from_secs(1)) {
        // given a backend that a burst has filled to the last key of its shards
        let (backend, clock) = backend(2000);
        let scope = Scope::of("make-room", 0, &quota);
        spend_once(&backend, scope, &quota, 0..1500);
        let before = backend.stats();

        // when all of them are full again, even for a clock that is a period behind, and as many new ones come
        clock.advance(Duration::from_secs(4));
        spend_once(&backend, scope, &quota, 10_000..11_500);

        // then
        let after = backend.stats();
        assert_eq!(after.evicted, before.evicted, "{quota}");
        assert!(after.expired >= 1000, "{quota}: {after:?}");
        assert!(after.keys <= 2000, "{quota}: {after:?}");
    }
}

#[test]
fn calls_for_known_keys_find_out_which_others_are_full_again() {
    // given
    let (backend, clock) = backend(1000);
    let quota = Quota::per_second(10).burst(1000);
    let scope = Scope::of("tidy", 0, &quota);
    spend_once(&backend, scope, &quota, 0..200);
    let key = Key::from("in debt for a minute");
    let charge = one(scope, &quota, &key);
    backend
        .decide_now(Call::of(&[Charge {
            cost: 600,
            ..charge
        }]))
        .unwrap();
    clock.advance(Duration::from_secs(10));

    // when no new key comes, so that of three shards only this key's moves its hand
    for _ in 0..5000 {
        backend.decide_now(Call::of(&[charge])).unwrap();
    }

    // then
    assert!(backend.stats().expired > 30, "{:?}", backend.stats());
}

#[test]
fn pitfall_unbounded_distinct_keys_grow_until_the_process_dies() {
    for max_keys in [0, 1, 7, 1000, 5000] {
        // given
        let (backend, _) = backend(max_keys);
        let quota = Quota::per_hour(10);
        let scope = Scope::of("unbounded", 0, &quota);

        // when
        spend_once(&backend, scope, &quota, 0..30_000);

        // then
        let stats = backend.stats();
        assert!(stats.keys <= max_keys.max(1), "{max_keys}: {stats:?}");
        assert!(stats.longest_scan <= 16, "{max_keys}: {stats:?}");
        assert_eq!(stats.evicted + stats.keys as u64, 30_000);
    }
}

#[test]
fn a_caller_who_was_denied_survives_a_flood_of_identities_that_come_once() {
    for quota in every_algorithm(10, Duration::from_secs(3600)) {
        // given callers that spent everything and were denied
        let (backend, clock) = backend(5000);
        let scope = Scope::of("denied-stay", 0, &quota);
        let denied: Vec<Key> = (0..100_u32)
            .map(|n| Key::from(format!("denied-{n}")))
            .collect();
        for key in &denied {
            while backend
                .decide_now(Call::of(&[one(scope, &quota, key)]))
                .unwrap()
                .is_admitted()
            {}
        }

        // when forty times as many keys come as there is room for
        spend_once(&backend, scope, &quota, 0..200_000);
        clock.advance(Duration::from_millis(1));

        // then
        let still_denied = denied
            .iter()
            .filter(|key| {
                let decision = backend
                    .decide_now(Call::of(&[one(scope, &quota, key)]))
                    .unwrap();
                !decision.is_admitted()
            })
            .count();
        assert_eq!(still_denied, 100, "{quota}");
    }
}

/// What is settled after a request, as a response tells its cost, is no second visit of its caller.
#[test]
fn a_caller_who_was_denied_survives_a_flood_of_identities_whose_charges_are_settled() {
    let quota = Quota::per_day(10);
    let (backend, _) = backend(5000);
    let scope = Scope::of("settled-flood", 0, &quota);
    let denied: Vec<Key> = (0..100_u32)
        .map(|n| Key::from(format!("denied-{n}")))
        .collect();
    for key in &denied {
        while ask(&backend, scope, &quota, key).is_admitted() {}
    }

    for number in 0..200_000_u64 {
        let key = Key::from(number);
        let charge = Charge {
            cost: 10,
            ..one(scope, &quota, &key)
        };
        let decision = backend.decide_now(Call::of(&[charge])).unwrap();
        let mut receipt = decision.receipts(&[charge]).next().unwrap();
        backend.refund(receipt.split_off(1), 1);
        backend.debit(&receipt, 1);
    }

    for key in &denied {
        assert!(!ask(&backend, scope, &quota, key).is_admitted());
    }
}

/// Strikes of responses are kept for callers that fail again and again, whatever number of others fails once.
#[test]
fn strikes_of_responses_outlive_a_flood_of_callers_that_fail_once() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (backend, _) = backend(2000);
    let ban = Quota::from(Ban::after(3, HOUR).lasting(HOUR));
    let scope = Scope::of("sprayed", 0, &ban);
    let strike = |key: &Key| {
        let charge = one(scope, &ban, key);
        let taken = Verdict::allowed(&charge, 1, 0);
        let receipt = Receipt::of(&charge, &taken, Timestamp::default()).unwrap();
        backend.debit(&receipt, 1);
    };
    let is_banned = |key: &Key| {
        let gate = Charge {
            cost: 0,
            mode: Mode::Probe,
            ..one(scope, &ban, key)
        };
        backend.decide_now(Call::of(&[gate])).unwrap().verdicts()[0].is_denied()
    };
    let guessing: Vec<Key> = (0..100_u32)
        .map(|n| Key::from(format!("guessing-{n}")))
        .collect();
    guessing.iter().chain(&guessing).for_each(strike);

    (0..200_000_u64).for_each(|number| strike(&Key::from(number)));

    guessing.iter().for_each(strike);
    assert!(guessing.iter().all(is_banned));
}

fn ask(backend: &MemoryBackend, scope: Scope, quota: &Quota, key: &Key) -> Decision {
    backend
        .decide_now(Call::of(&[one(scope, quota, key)]))
        .unwrap()
}

/// A quota of one an hour, and a ban of an hour after two strikes.
fn guarded() -> (Quota, Quota) {
    const HOUR: Duration = Duration::from_secs(3600);
    let ban = Ban::after(2, HOUR).lasting(HOUR).doubling_to(HOUR);
    (Quota::per_hour(1), ban.into())
}

/// Asks under a quota and its ban.
fn ask_guarded(backend: &MemoryBackend, policy: &str, key: &Key) -> Result<Decision, BackendError> {
    let (quota, ban) = guarded();
    let budget = one(Scope::of(policy, 0, &quota), &quota, key);
    let gate = Charge {
        cost: 0,
        ..one(Scope::of(policy, 0, &ban), &ban, key)
    };
    backend.decide_now(Call::of(&[budget, gate]))
}

fn is_banned(backend: &MemoryBackend, policy: &str, key: &Key) -> bool {
    let (_, ban) = guarded();
    let gate = Charge {
        cost: 0,
        mode: Mode::Probe,
        ..one(Scope::of(policy, 0, &ban), &ban, key)
    };
    let decision = backend.decide_now(Call::of(&[gate]));
    decision.is_ok_and(|decision| decision.verdicts()[0].retry_after().is_some())
}

#[test]
fn a_ban_without_a_knock_outlives_every_flood_of_other_keys() {
    // given callers that were banned and stay away, and one banned by hand, in room for two thousand keys
    let (backend, clock) = backend(2000);
    let banned: Vec<Key> = (0..300_u32)
        .map(|n| Key::from(format!("banned-{n}")))
        .collect();
    let (by_strikes, by_hand) = banned.split_at(299);
    for key in by_strikes {
        for is_admitted in [true, false, false] {
            let decision = ask_guarded(&backend, "flooded", key).unwrap();
            assert_eq!(decision.is_admitted(), is_admitted);
        }
    }
    let (_, ban) = guarded();
    let imposed = ban.ban().unwrap().try_imposed(Duration::from_secs(3600));
    let imposed = Quota::from(imposed.unwrap());
    let order = Charge {
        mode: Mode::Shadow,
        ..one(Scope::of("flooded", 0, &imposed), &imposed, &by_hand[0])
    };
    backend.decide_now(Call::of(&[order])).unwrap();

    // when keys that last longer come again and again, a hundred times as many as there is room for
    let quota = Quota::per_day(1);
    let scope = Scope::of("flood", 0, &quota);
    for number in 0..200_000_u64 {
        let key = Key::from(number);
        for _ in 0..2 {
            backend
                .decide_now(Call::of(&[one(scope, &quota, &key)]))
                .unwrap();
        }
    }

    // then every ban holds, and the most entries that a call looked at is what it was
    let mut still_banned = banned
        .iter()
        .filter(|key| is_banned(&backend, "flooded", key));
    assert_eq!(still_banned.by_ref().count(), 300);
    assert!(backend.stats().longest_scan <= 16, "{:?}", backend.stats());

    // and once they have ended, they make room for others
    clock.advance(Duration::from_secs(3600));
    assert!(
        banned
            .iter()
            .all(|key| !is_banned(&backend, "flooded", key))
    );
}

#[test]
fn strikes_outlive_a_flood_of_identities_that_come_once() {
    // given callers with a strike each
    let (backend, _) = backend(2000);
    let callers: Vec<Key> = (0..100_u32).map(|n| Key::from(format!("c-{n}"))).collect();
    for key in &callers {
        assert!(ask_guarded(&backend, "struck", key).unwrap().is_admitted());
        assert!(!ask_guarded(&backend, "struck", key).unwrap().is_admitted());
    }

    // when
    let quota = Quota::per_day(1);
    spend_once(&backend, Scope::of("once", 0, &quota), &quota, 0..200_000);

    // then the second strike of each bans
    for key in &callers {
        ask_guarded(&backend, "struck", key).unwrap();
        assert!(is_banned(&backend, "struck", key));
    }
}

#[test]
fn if_all_are_banned_the_ban_goes_that_would_end_first_and_the_backend_goes_on() {
    // given room for a few, and a ban of each of them
    let (backend, _) = backend(50);
    let (_, ban) = guarded();
    for number in 0..10_000_u64 {
        let (key, minutes) = (Key::from(number), 1 + number % 300);
        let imposed = ban.ban().unwrap();
        let imposed = imposed.try_imposed(Duration::from_secs(60 * minutes));
        let imposed = Quota::from(imposed.unwrap());
        let order = Charge {
            mode: Mode::Shadow,
            ..one(Scope::of("all-banned", 0, &imposed), &imposed, &key)
        };

        // when another one comes
        backend.decide_now(Call::of(&[order])).unwrap();

        // then it is banned
        assert!(is_banned(&backend, "all-banned", &key), "{number}");
    }

    // then the longest are left
    let left: Vec<_> = (0..10_000_u64)
        .filter(|number| is_banned(&backend, "all-banned", &Key::from(*number)))
        .map(|number| 1 + number % 300)
        .collect();
    assert!(left.len() <= 50 && left.len() > 30, "{left:?}");
    assert!(
        left.iter().filter(|minutes| **minutes > 250).count() + 4 >= left.len(),
        "{left:?}"
    );
}

#[test]
fn who_is_deepest_in_debt_stays_longest() {
    // given one caller far deeper in debt than the others, which came once each
    let (backend, _) = backend(1000);
    let quota = Quota::per_hour(100);
    let scope = Scope::of("deepest", 0, &quota);
    let key = Key::from("alice");
    let charge = one(scope, &quota, &key);
    backend
        .decide_now(Call::of(&[Charge { cost: 90, ..charge }]))
        .unwrap();

    // when
    spend_once(&backend, scope, &quota, 0..50_000);

    // then
    let peek = backend
        .decide_now(Call::of(&[Charge { cost: 0, ..charge }]))
        .unwrap();
    assert_eq!(peek.verdicts()[0].remaining(), 10);
}

#[test]
fn a_call_whose_keys_evict_each_other_is_still_all_or_nothing() {
    // given room for one key
    let (backend, _) = backend(1);
    let quota = Quota::per_hour(10);
    let scope = Scope::of("evict-each-other", 0, &quota);
    let keys: Vec<Key> = (0..MAX_CHARGES as u64).map(Key::from).collect();
    let charges: Vec<_> = keys.iter().map(|key| one(scope, &quota, key)).collect();

    // when
    let decision = backend.decide_now(Call::of(&charges)).unwrap();

    // then
    assert!(decision.is_admitted());
    assert!(
        decision
            .verdicts()
            .iter()
            .all(|verdict| verdict.taken() == 1)
    );
    assert_eq!(backend.stats().keys, 1);
}

/// The line of a key: one that has passed, and so many that wait.
fn line_up(backend: &MemoryBackend, scope: Scope, quota: &Quota, key: &Key, waiting: u64) {
    for turn in 0..=waiting {
        let decision = backend.decide_now(Call::of(&[one(scope, quota, key)])).ok();
        let wait = decision.map(|decision| decision.wait());
        assert_eq!(wait, Some(Duration::from_secs(turn)));
    }
}

#[test]
fn a_flood_of_identities_that_come_once_evicts_no_key_in_whose_line_requests_wait() {
    // given lines that end long before the budgets of the flood are full again
    let (backend, _) = backend(5000);
    let waits = Quota::per_second(1).wait_up_to(Duration::from_secs(100));
    let lines = Scope::of("lines", 0, &waits);
    let keys: Vec<Key> = (0..100_u32).map(Key::from).collect();
    for key in &keys {
        line_up(&backend, lines, &waits, key, 2);
    }

    // when
    let hourly = Quota::per_hour(10);
    let flood = Scope::of("flood", 0, &hourly);
    spend_once(&backend, flood, &hourly, 0..50_000);

    // then
    assert!(backend.stats().evicted > 40_000);
    for key in &keys {
        let decision = backend
            .decide_now(Call::of(&[one(lines, &waits, key)]))
            .unwrap();
        assert_eq!(decision.wait(), Duration::from_secs(3));
    }
}

#[test]
fn a_key_that_is_evicted_while_requests_wait_starts_from_a_full_budget_and_an_empty_line() {
    // given room for one key
    let (backend, _) = backend(1);
    let waits = Quota::per_second(1).wait_up_to(Duration::from_secs(5));
    let scope = Scope::of("evicted-line", 0, &waits);
    let [first, second] = ["first", "second"].map(Key::from);
    line_up(&backend, scope, &waits, &first, 5);
    let full = backend
        .decide_now(Call::of(&[one(scope, &waits, &first)]))
        .unwrap();
    assert!(!full.is_admitted());

    // when
    line_up(&backend, scope, &waits, &second, 0);

    // then a burst and a line pass once more, and no others
    assert_eq!(backend.stats().evicted, 1);
    line_up(&backend, scope, &waits, &first, 5);
    let full = backend
        .decide_now(Call::of(&[one(scope, &waits, &first)]))
        .unwrap();
    assert!(!full.is_admitted());
}

#[test]
fn keys_of_changing_length_come_and_go_without_being_mixed_up() {
    // given room for few, so that long keys are freed, reused and moved all the time
    let (backend, _) = backend(300);
    let quota = Quota::per_hour(1000);
    let scope = Scope::of("lengths", 0, &quota);

    for n in 0..20_000_u64 {
        // when
        let [length, ..] = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let mut bytes = n.to_le_bytes().to_vec();
        bytes.resize(8 + usize::from(length) / 2, 0xee);
        let key = Key::bytes(&bytes);
        let charge = one(scope, &quota, &key);

        // then it is new, and the second time it is known
        for left in [999, 998] {
            let decision = backend.decide_now(Call::of(&[charge])).unwrap();
            assert_eq!(decision.verdicts()[0].remaining(), left, "{n}");
        }
    }
    assert!(backend.stats().evicted > 19_000);
}

#[test]
fn long_keys_stay_themselves_when_they_are_moved_together() {
    // given keys of each length in turn, and a debt that outlives them
    let (backend, clock) = backend(2000);
    let quota = Quota::per_second(10).burst(10_000);
    let scope = Scope::of("moved", 0, &quota);
    let stays = Key::from("a key of some length that stays");
    let charge = one(scope, &quota, &stays);
    let dear = Charge {
        cost: 9000,
        ..charge
    };
    backend.decide_now(Call::of(&[dear])).unwrap();

    for length in [10, 120, 20, 90, 30, 127] {
        // when they crowd out the keys before them
        clock.advance(Duration::from_secs(10));
        for n in 0..1500_u32 {
            let mut bytes = n.to_le_bytes().to_vec();
            bytes.resize(length, 0xee);
            let key = Key::bytes(&bytes);

            // then each is new, and the second time it is known
            for left in [9999, 9998] {
                let decision = backend
                    .decide_now(Call::of(&[one(scope, &quota, &key)]))
                    .unwrap();
                assert_eq!(decision.verdicts()[0].remaining(), left, "{length}: {n}");
            }
        }
    }
    let left = backend.decide_now(Call::of(&[charge])).unwrap().verdicts()[0].remaining();
    assert_eq!(left, 10_000 - 9000 + 600 - 1);
    assert_eq!(backend.stats().evicted, 0);
}

#[test]
fn a_scope_is_told_apart_however_many_there_are() {
    // given more scopes than fit an entry, and a key short enough for it
    let (backend, _) = backend(100_000);
    let quota = Quota::per_hour(10);
    let scopes: Vec<Scope> = (0..20_000)
        .map(|slot| Scope::of("told-apart", slot, &quota))
        .collect();
    let key = Key::from("a");

    for left in [9, 8] {
        for scope in &scopes {
            // when
            let decision = backend
                .decide_now(Call::of(&[one(*scope, &quota, &key)]))
                .unwrap();

            // then
            assert_eq!(decision.verdicts()[0].remaining(), left, "{scope:?}");
        }
    }
    assert_eq!(backend.stats().keys, 20_000);
}

#[test]
fn debug_output_tells_no_identity() {
    // given
    let (backend, _) = backend(1000);
    let quota = Quota::per_hour(5);
    let scope = Scope::of("debug", 0, &quota);
    let decision: Decision = backend
        .decide_now(Call::of(&[one(scope, &quota, &Key::from("secret"))]))
        .unwrap();
    assert!(decision.is_admitted());

    // when
    let text = format!("{backend:?}");

    // then
    assert!(
        !text.contains("secret") && !text.contains("debug"),
        "{text}"
    );
    assert!(text.contains("keys: 1"), "{text}");
}

#[test]
fn a_backend_is_shared_between_threads_and_behind_its_trait() {
    fn assert<T: std::fmt::Debug + Send + Sync + 'static>(_: &T) {}

    let (backend, _) = backend(10);
    assert(&backend);
    let behind: std::sync::Arc<dyn Backend> = std::sync::Arc::new(backend);
    assert(&behind);
}

fn spend_once(backend: &MemoryBackend, scope: Scope, quota: &Quota, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let key = Key::from(number);
        assert!(
            backend
                .decide_now(Call::of(&[one(scope, quota, &key)]))
                .is_ok()
        );
    }
}

/// A window stays for as long as a clock may come back to it, though the hand has gone round all keys meanwhile.
#[test]
fn no_window_admits_more_than_its_limit_to_a_clock_less_than_a_period_behind() {
    const START: u64 = 1_800_000_000_000_000;
    const PERIOD: u64 = 1_000_000;
    for quota in every_algorithm(10, Duration::from_micros(PERIOD)) {
        if quota.algorithm() == Algorithm::Gcra {
            continue;
        }
        // given a window that was spent at its end
        let (backend, clock) = backend(1_000);
        let scope = Scope::of("behind", 0, &quota);
        let key = Key::from("alice");
        let charge = Charge {
            cost: 10,
            ..one(scope, &quota, &key)
        };
        let spent_at = START + PERIOD - 1;
        clock.set(Timestamp::from_micros(spent_at));
        assert!(
            backend
                .decide_now(Call::of(&[charge]))
                .unwrap()
                .is_admitted()
        );
        let probe = Charge {
            mode: Mode::Probe,
            ..charge
        };
        let decision = backend.decide_now(Call::of(&[probe])).unwrap();
        let counts_for = decision.verdicts()[0].reset_after();
        let over = Timestamp::from_micros(spent_at).saturating_add(counts_for);
        let over = over.as_micros();

        // A call whose time is a millisecond earlier than another's counts as one that waited for it.
        for back in [2_000, PERIOD / 2, PERIOD - 1] {
            // when the clock is past the end, other keys are asked for so often that expired states are dropped, and the clock
            // steps back by less than a period
            clock.set(Timestamp::from_micros(over));
            spend_once(&backend, scope, &quota, 0..500);
            clock.set(Timestamp::from_micros(over - back));

            // then nothing more passes
            let again = backend.decide_now(Call::of(&[charge])).unwrap();
            assert!(!again.is_admitted(), "{quota}, {back} back");
        }
    }
}

#[test]
fn ids_count_among_the_keys_and_are_bounded_with_them() {
    let (backend, clock) = backend(1_000);
    let (quota, once) = (Quota::per_second(1_000_000), Quota::from(Once::default()));
    let [scope, ids] = [&quota, &once].map(|quota| Scope::of("ids", 0, quota));
    let alice = Key::from("alice");
    let order = |id: u32| {
        let id = Key::from(id);
        let charges = [one(scope, &quota, &alice), one(ids, &once, &id)];
        let decision = backend.decide_now(Call::of(&charges)).unwrap();
        assert!(decision.is_admitted());
        decision.verdicts()[0].taken()
    };

    for id in 0..10_000 {
        assert_eq!(order(id), 1);
    }

    let stats = backend.stats();
    assert!(stats.keys <= 1_000 && stats.evicted >= 9_000, "{stats:?}");
    // The last one is remembered, and none is after its life.
    assert_eq!(order(9_999), 0);
    clock.advance(Duration::from_secs(31));
    assert_eq!(order(9_999), 1);
}
