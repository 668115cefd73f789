//! What the modelled modules use, as far as it matters to them.

#[derive(Debug, Default)]
pub(crate) struct Limiter;

pub(crate) mod ledger {
    #[derive(Debug, Default)]
    pub(crate) struct Ledger {}
}

pub(crate) mod layer {
    use super::answer::Answers;

    #[derive(Debug, Default)]
    pub(crate) struct Config {
        pub(crate) answers: Answers,
    }

    pub(crate) mod call {
        use http::{Extensions, HeaderMap};
        use tonic::Status;
        use tonic::metadata::MetadataMap;

        pub(crate) fn call_head(_metadata: MetadataMap, _extensions: Extensions) {}

        pub(crate) fn refusal_status(_headers: &HeaderMap) -> Status {
            Status::resource_exhausted("")
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct RequestView;

impl RequestView {
    pub(crate) fn of_parts(_head: &()) -> Self {
        Self
    }
}

pub(crate) mod answer {
    use std::sync::atomic::{AtomicU8, Ordering};

    use bytes::Bytes;
    use http::Response;

    use super::RequestView;
    use crate::ledger::Ledger;

    pub(crate) enum RefusalReason {
        QuotaExceeded,
        Undecided,
    }

    pub(crate) enum Writes {
        Nothing,
    }

    /// Each is another.
    #[derive(Debug, Default)]
    pub(crate) struct Answers(AtomicU8);

    impl Answers {
        pub(crate) fn refuse(
            &self,
            _reason: RefusalReason,
            _ledger: &Ledger,
            _view: RequestView,
            _writes: Writes,
        ) -> Response<Bytes> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            Response::new(Bytes::copy_from_slice(&[number]))
        }
    }
}
