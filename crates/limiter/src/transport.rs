//! The door for transports: a transport asks the limiter about a request here, and acts on the outcome.
//!
//! | step | what a transport writes |
//! | --- | --- |
//! | ask | `Limiter::admit` with a [`PolicySet`]: the [`Admission`] holds what the transport made of the [`Ruling`], or waits for it as [`PendingAdmission`] |
//! | refuse | a [`Rejection`] is the reason, and a [`Report`] the verdict of each quota: the transport makes its answer of both |
//! | let through | a [`Judgement`] has the verdicts; a [`Ledger`] keeps the payments that may still be corrected or given back |
//! | charge a stream | one [`Plan`] for the call, then `Limiter::decide` and `Limiter::judge` for each message |
//!
//! This module may change with any version of Tollgate: it is made for Tollgate's own transports.

pub use crate::attachments::Attachments;
pub use crate::key::{ContentType, SeenBody};
pub use crate::limiter::{
    Admission, BudgetStanding, Entries, Fallback, Judgement, Ledger, LocalPayers, MOST_LOG_ENTRIES,
    PendingAdmission, PendingPlan, Plan, Planning, PolicySet, Rejection, Ruling, Standing,
    Verdicts,
};
pub use crate::literal::literal;
pub use crate::matching::{Pattern, PortableParam, PortableSegment};
pub use crate::policy::{Label, Limit, PortablePolicy, PortableTier, Unmet, is_none};
pub use crate::report::Report;
pub use crate::request::{Dialect, grpc_timeout};
