//! The two directions of a gRPC call.

use std::future::poll_fn;
use std::task::Poll;

use loom::future::block_on;
use loom::thread;

use tollgate::{Quota, RateLimitLayer};
use tollgate_testkit::models::{end, in_every_order};

use super::call::Call;
use meter::Excess;

pub(super) mod meter {
    use bytes::Bytes;
    use http::Response;

    use tollgate_limiter::transport::Ledger;

    pub(crate) enum Excess {
        Quota(Ledger),
        Undecided,
        Refused(Box<Response<Bytes>>),
    }
}

#[test]
fn whoever_answers_a_call_hears_that_it_was_refused() {
    let layer = RateLimitLayer::new(Quota::per_second(1));
    in_every_order(move || {
        let call = Call::new(layer.config());

        let refusing = [(); 2].map(|()| {
            let call = call.clone();
            thread::spawn(move || drop(call.refuse(&Excess::Undecided)))
        });
        let refusal = block_on(poll_fn(|cx| match call.refusal(cx) {
            Some(refusal) => Poll::Ready(refusal),
            None => Poll::Pending,
        }));
        end(refusing);

        // The refusal stays, whichever task refuses next.
        let after = poll_fn(|cx| Poll::Ready(call.refusal(cx)));
        assert_eq!(refusal.body(), block_on(after).unwrap().body());
    });
}
