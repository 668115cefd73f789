//! What the modelled modules use, as far as it matters to them.

#[derive(Debug, Default)]
pub(crate) struct Limiter;

pub(crate) mod ledger {
    #[derive(Debug, Default)]
    pub(crate) struct Ledger {}
}

pub(crate) mod layer {
    use std::sync::atomic::{AtomicU8, Ordering};

    use bytes::Bytes;
    use http::Response;

    use super::answer::RefusalReason;
    use super::ledger::Ledger;

    /// Each refusal is another.
    #[derive(Debug, Default)]
    pub(crate) struct Config(AtomicU8);

    impl Config {
        pub(crate) fn refuse_call(
            &self,
            _reason: RefusalReason,
            _ledger: &Ledger,
        ) -> Response<Bytes> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            Response::new(Bytes::copy_from_slice(&[number]))
        }
    }

    pub(crate) mod call {
        use http::HeaderMap;
        use tonic::Status;

        pub(crate) fn refusal_status(_headers: &HeaderMap) -> Status {
            Status::resource_exhausted("")
        }
    }
}

pub(crate) mod answer {
    pub(crate) enum RefusalReason {
        QuotaExceeded,
        Undecided,
    }
}
