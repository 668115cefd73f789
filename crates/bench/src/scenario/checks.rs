//! A backend asked directly, without a layer; and governor.

use std::array;
use std::hint::black_box;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate::{
    Algorithm, Backend, Calendar, Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Once,
    Quota, Receipt, Scope, Zone,
};

use super::{AT_ONCE, CALLERS, PLENTY, address, each};

/// For calls of several charges, whose rounds take longer: the state lasts for seconds.
const LASTING: Quota = Quota::per_day(10_000);

pub(super) fn by_address() -> Box<dyn FnMut(u32)> {
    check(|caller| Key::from(black_box(IpAddr::V4(address(caller)))))
}

pub(super) fn by_text(names: Vec<String>) -> Box<dyn FnMut(u32)> {
    check(move |caller| Key::from(black_box(&names[caller as usize])))
}

fn check(key: impl Fn(u32) -> Key + 'static) -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let scope = Scope::of("bench", 0, &PLENTY);
    each(move |caller| {
        let key = key(caller);
        let charge = Charge {
            scope,
            quota: &PLENTY,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        black_box(&backend.decide_now(Call::of(&[charge])));
    })
}

/// A quota by another algorithm than the commonest, which no caller reaches.
pub(super) fn by(algorithm: Algorithm) -> Box<dyn FnMut(u32)> {
    under(PLENTY.using(algorithm))
}

/// A day on clocks that change twice a year.
pub(super) fn by_calendar() -> Box<dyn FnMut(u32)> {
    let days = Calendar::day(Zone::named("Europe/Berlin"));
    under(Quota::per_calendar(PLENTY.limit(), days))
}

/// A quota that is cold at first, and stays so under this load.
pub(super) fn warming_up() -> Box<dyn FnMut(u32)> {
    under(PLENTY.warm_up(Duration::from_secs(60)))
}

/// A grant of as much as there is, up to a unit.
pub(super) fn up_to() -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let scope = Scope::of("bench", 0, &PLENTY);
    each(move |caller| {
        let key = Key::from(black_box(IpAddr::V4(address(caller))));
        let charge = Charge {
            scope,
            quota: &PLENTY,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let _ = black_box(&backend.decide_now(Call::of(&[charge]).at_least(1)));
    })
}

/// Charges with ids, of which there are this many for each caller.
pub(super) fn once(ids: u64) -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let ids_of_a_caller = Quota::from(Once::default());
    let scope = Scope::of("bench", 0, &PLENTY);
    let id_scope = Scope::of("bench", 0, &ids_of_a_caller);
    let mut requests = 0;
    each(move |caller| {
        let key = Key::from(black_box(IpAddr::V4(address(caller))));
        requests += 1;
        let id = Key::tuple([&key, &Key::from(requests % ids)]);
        let charge = |scope, quota, key| Charge {
            scope,
            quota,
            key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let charges = [
            charge(scope, &PLENTY, &key),
            charge(id_scope, &ids_of_a_caller, &id),
        ];
        let _ = black_box(&backend.decide_now(Call::of(&charges)));
    })
}

fn under(quota: Quota) -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let scope = Scope::of("bench", 0, &quota);
    each(move |caller| {
        let key = Key::from(black_box(IpAddr::V4(address(caller))));
        let charge = Charge {
            scope,
            quota: &quota,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        black_box(&backend.decide_now(Call::of(&[charge])));
    })
}

/// Takes a unit and gives it back. The key is known: it has taken one before.
pub(super) fn held() -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let quota = Quota::from(AT_ONCE);
    let scope = Scope::of("bench-held", 0, &quota);
    each(move |caller| {
        let key = Key::from(black_box(IpAddr::V4(address(caller))));
        let charge = Charge {
            scope,
            quota: &quota,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        if let Ok(decision) = black_box(&backend.decide_now(Call::of(&[charge])))
            && let [verdict] = decision.verdicts()
            && let Some(receipt) = Receipt::of(&charge, verdict, decision.at())
        {
            backend.refund(black_box(receipt), 1);
        }
    })
}

pub(super) fn governor_s_by_address() -> Box<dyn FnMut(u32)> {
    let limiter = governor::RateLimiter::keyed(governor_s_quota());
    each(move |caller| {
        let _ = black_box(limiter.check_key(&black_box(IpAddr::V4(address(caller)))));
    })
}

pub(super) fn governor_s_by_text(names: Vec<String>) -> Box<dyn FnMut(u32)> {
    let limiter = governor::RateLimiter::keyed(governor_s_quota());
    each(move |caller| {
        let _ = black_box(limiter.check_key(black_box(&names[caller as usize])));
    })
}

fn governor_s_quota() -> governor::Quota {
    // A million a day, as ours.
    let burst = NonZeroU32::new(1_000_000).unwrap_or(NonZeroU32::MIN);
    let quota = governor::Quota::with_period(Duration::from_micros(86_400));
    quota
        .unwrap_or(governor::Quota::per_second(NonZeroU32::MIN))
        .allow_burst(burst)
}

/// The length of an ordinary API key or cache name.
pub(super) fn names() -> Vec<String> {
    named(|caller| format!("customer-{caller:06}-of-the-service"))
}

pub(super) fn short_names() -> Vec<String> {
    named(|caller| format!("c-{caller:06}"))
}

pub(super) fn uuids() -> Vec<String> {
    named(|caller| format!("0192f0c1-5bd4-7e2a-9f33-{caller:012x}"))
}

fn named(name: impl Fn(u32) -> String) -> Vec<String> {
    (0..CALLERS).map(name).collect()
}

/// The usual pair: a caller's own quota, and one for all callers together.
pub(super) fn own_and_shared() -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let shared = Key::global();
    let scopes = [(0, &LASTING), (1, &PLENTY)];
    let [own_scope, shared_scope] = scopes.map(|(slot, quota)| Scope::of("bench", slot, quota));
    each(move |caller| {
        let own = Key::from(black_box(IpAddr::V4(address(caller))));
        let charge = |scope, quota, key| Charge {
            scope,
            quota,
            key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let charges = [
            charge(own_scope, &LASTING, &own),
            charge(shared_scope, &PLENTY, &shared),
        ];
        black_box(&backend.decide_now(Call::of(&charges)));
    })
}

/// The most charges of one request, in [`with_charges`].
const MOST_CHARGES: usize = 8;

/// Requests with this many charges each, up to eight.
#[must_use]
pub fn with_charges(charges: usize) -> Box<dyn FnMut(u32)> {
    let backend = MemoryBackend::new();
    let scopes: [_; MOST_CHARGES] =
        array::from_fn(|slot| Scope::of("bench", u16::try_from(slot).unwrap_or(0), &LASTING));
    let charges = charges.min(MOST_CHARGES);
    each(move |caller| {
        let key = Key::from(black_box(IpAddr::V4(address(caller))));
        let all = scopes.map(|scope| Charge {
            scope,
            quota: &LASTING,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        });
        black_box(&backend.decide_now(Call::of(&all[..charges])));
    })
}
