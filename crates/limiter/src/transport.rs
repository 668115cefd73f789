//! How a transport asks the limiter about a request, and what it does with the outcome.
//!
//! | step | what a transport writes |
//! | --- | --- |
//! | ask | [`PolicySet`], then `Limiter::admit`: an [`Admission`], at once or [`Pending`] |
//! | refuse | [`Rejection`] says why, and a [`Report`] what each quota said: the transport makes its answer of both |
//! | let through | [`Judgement`] holds the verdicts; a [`Ledger`] keeps what may still be corrected or given back |
//! | charge parts | a [`Plan`] once for a stream, and a judgement for each message of it |
//!
//! What is here may change with any version of Tollgate: it is made for Tollgate's own transports.

pub use crate::attached::Attached;
pub use crate::key::{ContentType, SeenBody};
pub use crate::limiter::{
    Admission, Entries, Fallback, Judgement, Ledger, MOST_LOG_ENTRIES, Pending, PendingPlan, Plan,
    Planning, PolicySet, Rejection, Ruling, Verdicts,
};
pub use crate::matching::Pattern;
pub use crate::policy::{Label, Limit, is_none};
pub use crate::report::Report;
