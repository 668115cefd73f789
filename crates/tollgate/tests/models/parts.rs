//! What the modelled modules use, as far as it matters to them.

#[derive(Debug, Default)]
pub(crate) struct Limiter;

impl Limiter {
    pub(crate) fn generation(&self) -> u64 {
        0
    }
}

pub(crate) mod ledger {
    use super::report::Report;

    #[derive(Debug, Default)]
    pub(crate) struct Ledger {}

    impl Ledger {
        pub(crate) fn report(&self) -> Report<'_> {
            Report::default()
        }
    }
}

pub(crate) mod report {
    use std::marker::PhantomData;

    #[derive(Debug, Default)]
    pub(crate) struct Report<'a>(PhantomData<&'a ()>);
}

pub(crate) mod settings {
    use std::sync::atomic::{AtomicU8, Ordering};

    use bytes::Bytes;
    use http::Response;

    use super::answer::RefusalReason;
    use super::report::Report;

    /// Each refusal is another.
    #[derive(Debug, Default)]
    pub(crate) struct Config(AtomicU8);

    impl Config {
        pub(crate) fn refuse_call(
            &self,
            _reason: RefusalReason,
            _report: Report<'_>,
        ) -> Response<Bytes> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            Response::new(Bytes::copy_from_slice(&[number]))
        }
    }
}

pub(crate) mod layer {
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
