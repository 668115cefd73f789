//! What a request was charged, corrected by several at once, in orders drawn at random: by its handler, a layer further out, the
//! end of its body.
//!
//! The modules are the crate's own, with shuttle's locks in place of std's. What they use besides stands in `models/settled.rs`,
//! as far as it matters here.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    clippy::unit_arg,
    clippy::unused_self,
    clippy::unwrap_used,
    reason = "a model is a part of the whole, and fails by panicking"
)]

#[path = "models/settled.rs"]
mod parts;

#[path = "../src"]
mod product {
    pub(crate) mod few;
    pub(crate) mod ledger;
    pub(crate) mod status;
}

mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
}

mod limiter {
    pub(crate) use crate::parts::Plan;
}

use std::sync::Arc;

use shuttle::thread;

use ledger::Ledger;
use parts::{Config, LABELS, Limiter, PolicyVerdict, layer, policy, report};
use product::{few, ledger, status};
use status::RateLimitStatus;
use tollgate::{Key, ResponseView, Timestamp};

/// There are some hundred.
const ORDERS: usize = 1_000;

fn in_many_orders(play: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(play, ORDERS);
}

const CHARGED: u64 = 5;

/// The handle of a layer that has charged so much under the policy of that number.
fn handle(limiter: &Limiter, policy: usize) -> RateLimitStatus {
    let config = Arc::new(Config::of(limiter));
    let verdict = PolicyVerdict::taken(&LABELS[policy], CHARGED);
    let ledger = Ledger::of_one(verdict, Key::from("alice"), Timestamp::from_micros(1));
    RateLimitStatus::new(&config, ledger)
}

fn shown(status: &RateLimitStatus) -> Vec<u64> {
    let verdicts = status.verdicts();
    verdicts.iter().map(|one| one.verdict().taken()).collect()
}

#[test]
fn what_a_request_was_charged_is_what_stands_in_its_ledger_whoever_corrects_it() {
    in_many_orders(|| {
        // given a layer within a layer
        let limiters = [Limiter::default(), Limiter::default()];
        let (inner, outer) = (handle(&limiters[0], 0), handle(&limiters[1], 1));
        inner.show_in(&outer);

        // when the handler settles, and everything is given back
        let settling = thread::spawn({
            let inner = inner.clone();
            move || inner.settle(LABELS[0].policy, 3).is_ok()
        });
        let giving_back = thread::spawn({
            let outer = outer.clone();
            move || outer.give_back()
        });
        assert!(settling.join().unwrap());
        giving_back.join().unwrap();

        // then one came after the other
        let own = shown(&inner);
        assert!([0, 3].contains(&own[0]));
        assert_eq!(shown(&outer), [0, own[0]]);
        assert_eq!(limiters[0].charged(CHARGED), own[0]);
        assert_eq!(limiters[1].charged(CHARGED), 0);
    });
}

#[test]
fn a_charge_is_given_back_once_whoever_gives_it_back() {
    in_many_orders(|| {
        let limiter = Limiter::default();
        let status = handle(&limiter, 0);

        let giving_back = [(); 2].map(|()| {
            let status = status.clone();
            thread::spawn(move || status.give_back())
        });
        status.give_back();
        for giving_back in giving_back {
            giving_back.join().unwrap();
        }

        assert_eq!((limiter.charged(CHARGED), shown(&status)), (0, vec![0]));
        assert_eq!(limiter.credits(), 1);
    });
}
