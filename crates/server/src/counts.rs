//! Counts of what gateways ask.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of requests and descriptors since the start, by what came of them.
///
/// ```
/// use tollgate_server::Counts;
///
/// /// For an alert: a gateway asks for something that no rule limits.
/// fn is_suspicious(counts: &Counts) -> bool {
///     counts.unknown_domains + counts.unknown_descriptors > 0
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that may pass.
    pub passed: u64,
    /// Requests that are refused.
    pub refused: u64,
    /// Requests that could not be decided, and were answered UNAVAILABLE.
    pub undecided: u64,
    /// Requests that make no sense, and were answered INVALID_ARGUMENT.
    pub invalid: u64,
    /// Requests whose domain has no rules.
    pub unknown_domains: u64,
    /// Descriptors for which the domain has no rule.
    pub unknown_descriptors: u64,
    /// Reports that were lost, because the backend failed.
    pub lost_reports: u64,
    /// Connections that were dropped, because no handshake of TLS came about.
    pub failed_handshakes: u64,
}

/// A number that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tally {
    Passed,
    Refused,
    Undecided,
    Invalid,
    UnknownDomain,
    UnknownDescriptor,
    LostReport,
    FailedHandshake,
}

/// The counts as requests write them.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 8]);

impl Counters {
    /// Counts one more. Returns true for the first.
    pub(crate) fn add(&self, what: Tally) -> bool {
        self.0[what as usize].fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(crate) fn read(&self) -> Counts {
        let of = |what: Tally| self.0[what as usize].load(Ordering::Relaxed);
        Counts {
            passed: of(Tally::Passed),
            refused: of(Tally::Refused),
            undecided: of(Tally::Undecided),
            invalid: of(Tally::Invalid),
            unknown_domains: of(Tally::UnknownDomain),
            unknown_descriptors: of(Tally::UnknownDescriptor),
            lost_reports: of(Tally::LostReport),
            failed_handshakes: of(Tally::FailedHandshake),
        }
    }
}
