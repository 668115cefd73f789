//! Policies, keys, and the limiter that decides whether a request may pass and whose budget pays.
//!
//! A [`Limiter`] has one entry for requests: the head of a request goes in, an admission comes out. This crate reads the heads of
//! requests (`http`). It has no service, makes no answer and writes no header. A transport does that: `tollgate-http` is the one
//! for tower and axum, `tollgate-grpc` the one for tonic, and [`transport`] is what either is built on.
//!
//! **Users write `tollgate`**, which has everything here under one name. This crate is for authors of a transport.

mod attachments;
mod client;
#[cfg(feature = "serde")]
pub mod config;
mod error;
pub mod key;
mod leasing;
mod limiter;
mod literal;
mod matching;
mod policy;
mod pressure;
mod report;
mod request;
mod sketch;
mod sync;
mod tracked_sketch;
pub mod transport;

pub use tollgate_core::{
    Algorithm, Answer, Backend, BackendError, Ban, Charge, Concurrent, Decision, FailureKind, Key,
    KeyKind, Lease, Mode, Once, Outcome, ParseQuotaError, Quota, QuotaError, Receipt, RetryAfter,
    Scope, Unit, Verdict,
};

pub use self::client::{ClientAddress, Hops, NetworkList, Networks, TrustedProxies};
pub use self::error::ConfigError;
pub use self::key::ClientIp;
pub use self::limiter::{
    Acquire, Cause, Check, CheckError, CheckFuture, CheckOutcome, Event, JointCheck, JointOutcome,
    Limiter, LimiterBuilder, Observer, Offender, Offenders, Shedding, Transport,
};
pub use self::policy::{
    Allowance, Block, Messages, OnFailure, OnMissing, OnUnknown, Policy, QuotaLookup, Quotas,
    ResponseView, Share, Switch, Tiers,
};
pub use self::pressure::{Pressure, PressureGauge};
pub use self::report::PolicyVerdict;
pub use self::request::{PeerAddr, RequestView};
