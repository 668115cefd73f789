//! The defects of a simulated limiter.

/// A defect of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    None,
    /// A decision is not stored.
    SkipWrite,
    /// A decision is stored twice.
    DoubleCharge,
    /// Another caller's budget is read.
    Neighbour,
    /// A state is forgotten before it has lost its meaning.
    ForgetEarly,
    /// A state is not dropped when a window is over.
    NeverForget,
    /// A call without an answer is sent again, and both are decided.
    SendAgain,
    /// A denied call keeps the charges that fitted.
    TakeInPart,
    /// A denial's wait is a microsecond too short.
    Hasty,
    /// One in ten is denied for no reason.
    Harsh,
    /// A shadow that does not pass denies the call.
    ShadowDenies,
    /// A denied call takes nothing in shadow either.
    ShadowWaits,
    /// A probe takes its cost.
    ProbeTakes,
    /// A credit is done twice.
    CreditTwice,
    /// A credit never arrives.
    CreditLost,
    /// A debit is taken twice.
    DebitTwice,
    /// A debit is never taken.
    DebitLost,
    /// A reset says that it is done, and did nothing.
    ResetIdle,
    /// A reset forgets another caller's budget.
    ResetNeighbour,
    /// Only the first cost on a budget that is named twice is taken.
    TakesOnce,
    /// A wait is a microsecond too short.
    WaitShort,
    /// A turn is promised and not kept.
    TurnUnkept,
    /// A charge that leaves before its turn moves up the charges behind it.
    LeaverMovesUp,
    /// A request waits for as long as its quota lets it, whatever its caller states.
    PatienceIgnored,
    /// A request waits for half as long as its caller states.
    PatienceHalved,
    /// A budget is new for each version of its quota.
    ReplacedAnew,
}

impl Mutation {
    pub(crate) const ALL: [Self; 25] = [
        Self::SkipWrite,
        Self::DoubleCharge,
        Self::Neighbour,
        Self::ForgetEarly,
        Self::NeverForget,
        Self::SendAgain,
        Self::TakeInPart,
        Self::Hasty,
        Self::Harsh,
        Self::ShadowDenies,
        Self::ShadowWaits,
        Self::ProbeTakes,
        Self::CreditTwice,
        Self::CreditLost,
        Self::DebitTwice,
        Self::DebitLost,
        Self::ResetIdle,
        Self::ResetNeighbour,
        Self::TakesOnce,
        Self::WaitShort,
        Self::TurnUnkept,
        Self::LeaverMovesUp,
        Self::PatienceIgnored,
        Self::PatienceHalved,
        Self::ReplacedAnew,
    ];

    /// Says whether it concerns credits and debits. Any fault may lose these, so they are surely missed only without faults.
    pub(crate) fn is_about_corrections(self) -> bool {
        matches!(
            self,
            Self::CreditTwice
                | Self::CreditLost
                | Self::DebitTwice
                | Self::DebitLost
                | Self::LeaverMovesUp
        )
    }

    /// Says whether it shows only where callers state their waits or quotas are replaced.
    pub(super) fn is_about_terms(self) -> bool {
        matches!(
            self,
            Self::PatienceIgnored | Self::PatienceHalved | Self::ReplacedAnew
        )
    }
}
