//! The ends of responses, the holds of a request, and limits further in: what is held is given back exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use loom::thread;
use tollgate::{Cause, Concurrent, Event, Limiter, Policy, key::Global};
use tollgate_limiter::transport::{Admission, Ledger, PolicySet, Ruling};
use tollgate_testkit::models::in_every_order;

use crate::RateLimitStatus;
use crate::settings::Config;
use crate::status::ResponseEnd;

/// A limiter of two places, and the number of times that it got one back.
#[derive(Clone)]
struct Places {
    limiter: Limiter,
    released: Arc<AtomicUsize>,
}

impl Places {
    fn new() -> Self {
        let released = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&released);
        let policy = Policy::new("held", Concurrent::at_most(2)).key(Global);
        let limiter = Limiter::builder()
            .policy(policy)
            .observe(move |event: &Event<'_>| {
                if event.cause() == Cause::Released {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        Self {
            limiter: limiter.build().unwrap(),
            released,
        }
    }

    /// The charges of a request that holds one place.
    fn hold(&self) -> Ledger {
        let request = Request::new(());
        let view = self.limiter.view(&request);
        let admission = self.limiter.admit(
            &view,
            PolicySet::Covering,
            || false,
            |ruling| match ruling {
                Ruling::Admitted(decided) => Some(decided.ledger()),
                _ => None,
            },
        );
        match admission {
            Admission::Ruled(Some(ledger)) if ledger.holds() => ledger,
            _ => panic!("a place is not free"),
        }
    }

    /// The number of times since the last call, all of which were right if both places are free.
    fn given_back(&self) -> usize {
        let count = self.released.swap(0, Ordering::SeqCst);
        drop([self.hold(), self.hold()]);
        assert_eq!(self.released.swap(0, Ordering::SeqCst), 2);
        count
    }

    fn so_far(&self) -> usize {
        self.released.load(Ordering::SeqCst)
    }
}

fn outermost(ledger: Ledger) -> (RateLimitStatus, ResponseEnd) {
    let status = RateLimitStatus::outermost(&Arc::new(Config), false, ledger);
    let end = ResponseEnd::of(status.clone(), false);
    (status, end)
}

#[test]
fn what_is_held_is_given_back_once_whichever_of_the_response_and_the_holds_ends_last() {
    let places = Places::new();
    in_every_order(move || {
        let (status, end) = outermost(places.hold());
        let hold = status.hold();

        let responding = thread::spawn(move || drop(end));
        let working = thread::spawn({
            let places = places.clone();
            move || {
                let last = hold.clone();
                drop(hold);
                assert_eq!(places.so_far(), 0, "there is a hold");
                drop(last);
            }
        });
        // A task that takes a hold of its own, perhaps when all is over.
        drop(status.hold());
        responding.join().unwrap();
        working.join().unwrap();

        assert_eq!(places.so_far(), 1, "before the request is gone");
        drop(status);
        assert_eq!(places.given_back(), 1);
    });
}

#[test]
fn each_layer_gives_back_its_own_once_whichever_response_ends_first() {
    let places = Places::new();
    in_every_order(move || {
        let (status, end) = outermost(places.hold());
        let config = Arc::new(Config);
        let inner = status.further_in(&config, false, places.hold());
        let inner_end = ResponseEnd::of(inner, false);

        let ends = [inner_end, end].map(|end| {
            let places = places.clone();
            thread::spawn(move || {
                drop(end);
                assert!(places.so_far() >= 1, "its own");
            })
        });
        for end in ends {
            end.join().unwrap();
        }

        assert_eq!(places.so_far(), 2);
        drop(status);
        assert_eq!(places.given_back(), 2);
    });
}

#[test]
fn what_a_limit_further_in_holds_is_given_back_once_even_if_the_response_ends_meanwhile() {
    let places = Places::new();
    in_every_order(move || {
        let (status, end) = outermost(places.hold());

        let entering = thread::spawn({
            let (places, status) = (places.clone(), status.clone());
            move || {
                status.enter(places.hold());
                drop(status.hold());
            }
        });
        drop(end);
        drop(status);
        entering.join().unwrap();

        // At the latest with the last that knows the request.
        assert_eq!(places.given_back(), 2);
    });
}
