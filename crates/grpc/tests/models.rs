//! Models of the types that the two directions of a call share, in every order that threads can take.
//!
//! The module is the crate's own, with loom's locks in place of std's.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a model is a part of the whole, and fails by panicking"
)]

mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// Each refusal is another.
mod call {
    use std::sync::atomic::{AtomicU8, Ordering};

    use bytes::Bytes;
    use http::{HeaderMap, Response};
    use tollgate_http::RefusalReason;
    use tollgate_http::transport::Config;
    use tollgate_limiter::transport::Report;
    use tonic::Status;

    static REFUSALS: AtomicU8 = AtomicU8::new(0);

    pub(crate) fn refuse_call(
        _config: &Config,
        _reason: RefusalReason<'_>,
        _report: Report<'_>,
    ) -> Response<Bytes> {
        let number = REFUSALS.fetch_add(1, Ordering::SeqCst);
        Response::new(Bytes::copy_from_slice(&[number]))
    }

    pub(crate) fn refusal_status(_headers: &HeaderMap) -> Status {
        Status::resource_exhausted("")
    }
}

#[path = "../src/messages"]
mod messages {
    mod call;

    #[path = "../../tests/models/call.rs"]
    mod models;

    use models::meter;
}
