//! The two directions of a gRPC call.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use loom::future::block_on;
use loom::thread;

use super::call::Call;
use crate::{end, in_every_order};
use meter::Excess;

pub(super) mod meter {
    use bytes::Bytes;
    use http::Response;

    use crate::ledger::Ledger;

    pub(crate) enum Excess {
        Quota(Ledger),
        Undecided,
        Refused(Box<Response<Bytes>>),
    }
}

#[test]
fn whoever_answers_a_call_hears_that_it_was_refused() {
    in_every_order(|| {
        let call = Call::new(&Arc::default());

        let refusing = [(); 2].map(|()| {
            let call = call.clone();
            thread::spawn(move || drop(call.refuse(&Excess::Undecided)))
        });
        let refusal = block_on(poll_fn(|cx| match call.refusal(cx) {
            Some(refusal) => Poll::Ready(refusal),
            None => Poll::Pending,
        }));
        end(refusing);

        // It stays what it was, whoever refuses next.
        let after = poll_fn(|cx| Poll::Ready(call.refusal(cx)));
        assert_eq!(refusal.body(), block_on(after).unwrap().body());
    });
}
