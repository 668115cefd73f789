//! Decisions on calls, and the meaning of their numbers.

use std::fmt;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::algorithm::{Budget, Passage, Point, RetryAfter};
use crate::{BackendError, Charge, Mode, Timestamp};

/// The ruling on one charge.
///
/// ```
/// use tollgate::{Outcome, RetryAfter, Verdict};
///
/// fn in_words(verdict: &Verdict) -> String {
///     match verdict.outcome() {
///         Outcome::Allow => "allowed".to_owned(),
///         Outcome::Deny(RetryAfter::Micros(us)) => format!("denied for {us} µs"),
///         Outcome::Deny(RetryAfter::Unknown) => "denied until somebody else is done".to_owned(),
///         Outcome::Deny(RetryAfter::Never) => "denied, whenever it is repeated".to_owned(),
///         _ => "not asked".to_owned(),
///     }
/// }
///
/// assert_eq!(in_words(&Verdict::unknown(5)), "not asked");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The charge passes. The whole call decides whether the charge was taken: see [`Verdict::taken`].
    Allow,
    /// The charge does not pass.
    Deny(RetryAfter),
    /// The backend was not asked: a wrapper in front of it already knew that the call is denied.
    Unknown,
}

/// The answer to one charge, and the state of its budget after the call, in the quota's own units.
///
/// 48 bytes, because a decision is handed on many times on its way to a request.
///
/// The verdicts of a backend say how full the budget is:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Outcome, Quota, Scope};
///
/// let backend = MemoryBackend::new();
/// let quota = Quota::per_minute(4);
/// let charge = Charge {
///     scope: Scope::of("login", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 3,
///     mode: Mode::Enforce,
/// };
///
/// let decision = backend.decide_now(Call::of(&[charge]))?;
/// let first = &decision.verdicts()[0];
/// assert!(first.is_allowed() && first.outcome() == Outcome::Allow);
/// assert_eq!((first.limit(), first.taken(), first.remaining()), (4, 3, 1));
/// assert_eq!(first.reset_after(), Duration::from_secs(45));
/// // The work turned out cheaper, and the rest of the charge was credited.
/// assert_eq!(first.corrected_to(1).remaining(), 3);
///
/// let decision = backend.decide_now(Call::of(&[charge]))?;
/// let second = &decision.verdicts()[0];
/// assert!(second.is_denied() && !second.never_passes());
/// assert!(second.retry_after() <= Some(Duration::from_secs(30)));
/// assert!(second.is_tighter_than(first));
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    limit: u64,
    /// If taken and waiting, when nothing remains: the wait.
    remaining: u64,
    reset_after_us: u64,
    taken: u64,
    /// If refused: the time until this cost would pass. If taken: the time at which the budget will be full again, with `rest`.
    /// If not taken, but it would wait: the wait.
    us: u64,
    rest: u32,
    tag: Tag,
    /// True if its charge is enforced.
    is_enforced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Allow,
    /// Allowed after a wait, and taken.
    Wait,
    /// Allowed after a wait, but not taken.
    WouldWait,
    DenyForNow,
    DenyUntilGivenBack,
    DenyForEver,
    Unknown,
}

impl Verdict {
    /// The verdict that `passage` and `budget` give on a charge of this mode against a budget of `limit`. If it passes, `taken`
    /// was taken from the budget, which will be full again at `full_at`.
    #[inline]
    pub(crate) fn new(
        mode: Mode,
        passage: Passage,
        limit: u64,
        budget: Budget,
        taken: u64,
        full_at: Point,
    ) -> Self {
        let (tag, us, rest, taken) = match passage {
            Passage::Open => (Tag::Allow, full_at.us, full_at.rest, taken),
            Passage::Later(_) if taken > 0 => (Tag::Wait, full_at.us, full_at.rest, taken),
            Passage::Later(us) => (Tag::WouldWait, us, 0, 0),
            Passage::Closed(RetryAfter::Micros(us)) => (Tag::DenyForNow, us, 0, 0),
            Passage::Closed(RetryAfter::Unknown) => (Tag::DenyUntilGivenBack, 0, 0, 0),
            Passage::Closed(RetryAfter::Never) => (Tag::DenyForEver, 0, 0, 0),
        };
        let Budget {
            remaining,
            reset_after_us,
        } = budget;
        let remaining = match passage {
            Passage::Later(us) if taken > 0 => us,
            _ => remaining,
        };
        Self {
            limit,
            remaining,
            reset_after_us,
            taken,
            us,
            rest,
            tag,
            is_enforced: matches!(mode, Mode::Enforce),
        }
    }

    /// The verdict on a charge that the backend was not asked about, because the call was known to be denied.
    ///
    /// ```
    /// use tollgate::{Outcome, Verdict};
    ///
    /// let verdict = Verdict::unknown(10);
    /// assert_eq!(verdict.outcome(), Outcome::Unknown);
    /// assert!(!verdict.is_allowed() && !verdict.is_denied());
    /// ```
    #[must_use]
    pub const fn unknown(limit: u64) -> Self {
        Self {
            limit,
            remaining: 0,
            reset_after_us: 0,
            taken: 0,
            us: 0,
            rest: 0,
            tag: Tag::Unknown,
            is_enforced: false,
        }
    }

    /// The verdict on a held charge that was not decided and that the backend [assumes](crate::Settlement::Assume): its outcome is
    /// unknown, and its receipt, at the time 0, gives back what is assumed.
    ///
    /// ```
    /// use tollgate::{Call, Charge, Concurrent, Key, Mode, Outcome, Quota, Receipt, Scope, Timestamp, Verdict};
    ///
    /// let quota = Quota::from(Concurrent::at_most(5));
    /// let charge = Charge {
    ///     scope: Scope::of("export", 0, &quota),
    ///     quota: &quota,
    ///     key: &Key::from("alice"),
    ///     cost: 1,
    ///     mode: Mode::Enforce,
    /// };
    /// let verdict = Verdict::assumed(&charge);
    /// assert_eq!((verdict.outcome(), verdict.taken()), (Outcome::Unknown, 1));
    /// assert!(Receipt::of(&charge, &verdict, Timestamp::default()).is_some());
    /// ```
    #[must_use]
    pub fn assumed(charge: &Charge<'_>) -> Self {
        Self {
            taken: charge.cost,
            ..Self::unknown(charge.quota.capacity())
        }
    }

    /// The verdict of a wrapper in front of a backend, such as a cache of denials, that refuses `charge` without asking: it
    /// would pass after `retry_after`, and a cost of `remaining` would pass now. A wait of 0 counts as one of a microsecond.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Call, Charge, Decision, RetryAfter, Timestamp, Verdict};
    ///
    /// /// A cache of denials answers for the backend.
    /// fn from_cache(charge: &Charge<'_>, now: Timestamp, left: Duration) -> Decision {
    ///     let wait = RetryAfter::Micros(left.as_micros() as u64);
    ///     let verdict = Verdict::denied(charge, wait, 0).resetting_after(left);
    ///     Decision::new(now, false, [verdict])
    /// }
    /// ```
    #[must_use]
    pub fn denied(charge: &Charge<'_>, retry_after: RetryAfter, remaining: u64) -> Self {
        let (tag, us) = match retry_after {
            RetryAfter::Micros(us) => (Tag::DenyForNow, us.max(1)),
            RetryAfter::Unknown => (Tag::DenyUntilGivenBack, 0),
            RetryAfter::Never => (Tag::DenyForEver, 0),
        };
        Self {
            remaining: remaining.min(charge.quota.capacity()),
            // The budget is not full before the refused charge would pass.
            reset_after_us: us,
            us,
            tag,
            is_enforced: charge.mode == Mode::Enforce,
            ..Self::unknown(charge.quota.capacity())
        }
    }

    /// The verdict of a wrapper in front of a backend, such as a lease of a part of the budget, that lets `charge` pass without
    /// asking: `taken` was taken for it, and a cost of `remaining` would pass now.
    ///
    /// Its receipt gives nothing back to a bucket behind the wrapper, which has taken nothing: a wrapper that lets charges pass
    /// without asking also handles their credits.
    ///
    /// ```
    /// use tollgate::{Call, Charge, Decision, Timestamp, Verdict};
    ///
    /// /// A lease of a part of the budget answers for the backend while units of it are left.
    /// fn from_lease(charge: &Charge<'_>, now: Timestamp, left: &mut u64) -> Option<Decision> {
    ///     *left = left.checked_sub(charge.cost)?;
    ///     let verdict = Verdict::allowed(charge, charge.cost, *left);
    ///     Some(Decision::new(now, true, [verdict]))
    /// }
    /// ```
    #[must_use]
    pub fn allowed(charge: &Charge<'_>, taken: u64, remaining: u64) -> Self {
        Self {
            remaining: remaining.min(charge.quota.capacity()),
            taken,
            tag: Tag::Allow,
            is_enforced: charge.mode == Mode::Enforce,
            ..Self::unknown(charge.quota.capacity())
        }
    }

    /// The verdict on a charge that is a part of the one of this verdict, which was taken. Its receipt gives back what the whole
    /// charge's would.
    pub(crate) fn of_part(&self, charge: &Charge<'_>, remaining: u64) -> Self {
        Self {
            remaining: remaining.min(self.limit),
            taken: charge.cost,
            is_enforced: charge.mode == Mode::Enforce,
            ..*self
        }
    }

    /// This verdict, given on a probe, as one on an enforced charge: for a backend that asks again about a request that is denied.
    #[doc(hidden)]
    #[must_use]
    pub const fn as_enforced(self) -> Self {
        Self {
            is_enforced: true,
            ..self
        }
    }

    /// This verdict, with a budget that is full again after `reset_after` if nothing else arrives.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Verdict;
    ///
    /// let verdict = Verdict::unknown(10).resetting_after(Duration::from_secs(3));
    /// assert_eq!(verdict.reset_after(), Duration::from_secs(3));
    /// ```
    #[must_use]
    pub fn resetting_after(self, reset_after: Duration) -> Self {
        let reset_after_us = u64::try_from(reset_after.as_micros()).unwrap_or(u64::MAX);
        Self {
            reset_after_us,
            ..self
        }
    }

    /// The ruling.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self.tag {
            Tag::Allow | Tag::Wait | Tag::WouldWait => Outcome::Allow,
            Tag::DenyForNow => Outcome::Deny(RetryAfter::Micros(self.us)),
            Tag::DenyUntilGivenBack => Outcome::Deny(RetryAfter::Unknown),
            Tag::DenyForEver => Outcome::Deny(RetryAfter::Never),
            Tag::Unknown => Outcome::Unknown,
        }
    }

    /// The time at which the budget will be full again, as a charge that was taken left it.
    pub(crate) const fn full_at(&self) -> Point {
        Point {
            us: self.us,
            rest: self.rest,
        }
    }

    /// Says whether this charge passes, be it after a [wait](Self::wait).
    #[must_use]
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.tag, Tag::Allow | Tag::Wait | Tag::WouldWait)
    }

    /// The time until this charge passes, counted from the moment of the answer. Zero if it passes now or not at all.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Call, Charge, ImmediateBackend, Key, ManualClock, MemoryBackend, Mode, Quota, Scope};
    ///
    /// let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    /// let quota = Quota::per_second(10).burst(1).wait_up_to(Duration::from_secs(2));
    /// let charge = Charge {
    ///     scope: Scope::of("page", 0, &quota),
    ///     quota: &quota,
    ///     key: &Key::global(),
    ///     cost: 1,
    ///     mode: Mode::Enforce,
    /// };
    /// for turn in [0, 100, 200] {
    ///     let decision = backend.decide_now(Call::of(&[charge]))?;
    ///     assert_eq!(decision.verdicts()[0].wait(), Duration::from_millis(turn));
    /// }
    /// # Ok::<(), tollgate::BackendError>(())
    /// ```
    #[must_use]
    pub const fn wait(&self) -> Duration {
        match self.tag {
            Tag::Wait => Duration::from_micros(self.remaining),
            Tag::WouldWait => Duration::from_micros(self.us),
            _ => Duration::ZERO,
        }
    }

    /// Says whether this charge was refused.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(
            self.tag,
            Tag::DenyForNow | Tag::DenyUntilGivenBack | Tag::DenyForEver
        )
    }

    /// The capacity of a full budget.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The largest cost that a request could have right now and pass without a wait. For a charge that was taken and waits, 0.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        match self.tag {
            Tag::Wait => 0,
            _ => self.remaining,
        }
    }

    /// The time until the budget is full again if nothing else arrives. Zero for a [`Concurrent`](crate::Concurrent) limit, where
    /// it is unknown.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after_us)
    }

    /// The time until this cost would pass if nothing else arrives. Set only on a denial; `None` also if it is unknown, since
    /// others hold what the cost needs, and if the cost can never pass: see [`Verdict::never_passes`].
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.tag {
            Tag::DenyForNow => Some(Duration::from_micros(self.us)),
            _ => None,
        }
    }

    /// Says whether the charge was refused because it costs more than a full budget holds.
    #[must_use]
    pub const fn never_passes(&self) -> bool {
        matches!(self.tag, Tag::DenyForEver)
    }

    /// The amount taken from the budget for this charge: its cost, or 0.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// This verdict after a credit or debit corrected the charge to its real cost. The remaining budget follows. Only the
    /// backend knows when the budget is full again, so that time stays as it was.
    #[must_use]
    pub fn corrected_to(self, cost: u64) -> Self {
        if matches!(self.tag, Tag::Wait) {
            // Others may wait for what was given back.
            return Self {
                taken: cost,
                ..self
            };
        }
        let remaining = self.remaining.saturating_add(self.taken);
        Self {
            remaining: remaining.saturating_sub(cost).min(self.limit),
            taken: cost,
            ..self
        }
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("outcome", &self.outcome())
            .field("limit", &self.limit)
            .field("remaining", &self.remaining)
            .field("reset_after", &self.reset_after())
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

/// The answer to a call: one verdict per charge, in the order of the charges.
///
/// ```
/// use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
///
/// let backend = MemoryBackend::new();
/// let (second, day) = (Quota::per_second(10), Quota::per_day(1_000));
/// let key = Key::from("alice");
/// let charges = [(0, &second), (1, &day)].map(|(slot, quota)| Charge {
///     scope: Scope::of("api", slot, quota),
///     quota,
///     key: &key,
///     cost: 1,
///     mode: Mode::Enforce,
/// });
///
/// let decision = backend.decide_now(Call::of(&charges))?;
/// assert!(decision.is_admitted());
/// assert_eq!(decision.retry_after(), None);
/// assert_eq!(decision.verdicts()[1].remaining(), 999);
/// // The budget of the second is nearer to its end: 9 of 10 are left, and 999 of 1000 of the day's.
/// assert_eq!(decision.tightest(charges.map(|charge| charge.mode)), Some(0));
/// assert_eq!(decision.verdict_at(0), decision.at());
/// assert_eq!(decision.receipts(&charges).count(), 2);
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    at: Timestamp,
    admitted: bool,
    /// True if the backend's server was not asked.
    known: bool,
    verdicts: Verdicts,
}

#[derive(Clone)]
enum Verdicts {
    /// Verdicts by one clock. A single one has no variant of its own: that bought 6 of the 346 instructions of a check.
    Together(List),
    /// Verdicts by clocks of their own. Boxed, so that only the decisions of a cluster pay for them.
    Separate(Box<SeparateVerdicts>),
}

/// Two verdicts: a caller's own budget and one that all share are the commonest list.
type List = SmallVec<[Verdict; 2]>;

#[derive(Clone)]
struct SeparateVerdicts {
    verdicts: Vec<Verdict>,
    /// One for each verdict.
    times: Vec<Timestamp>,
    failure: Option<BackendError>,
}

impl Verdicts {
    #[inline]
    fn as_slice(&self) -> &[Verdict] {
        match self {
            Self::Together(verdicts) => verdicts,
            Self::Separate(separate) => &separate.verdicts,
        }
    }

    /// The time of each verdict, if not all have the decision's time.
    fn times(&self) -> &[Timestamp] {
        match self {
            Self::Together(_) => &[],
            Self::Separate(separate) => &separate.times,
        }
    }
}

impl PartialEq for Verdicts {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice() && self.times() == other.times()
    }
}

impl Eq for Verdicts {}

impl fmt::Debug for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Decision {
    /// A decision taken at `at`. `admitted` says whether every enforced charge passes.
    ///
    /// ```
    /// use tollgate::{Decision, Timestamp, Verdict};
    ///
    /// let now = Timestamp::from_micros(1_700_000_000_000_000);
    /// let decision = Decision::new(now, true, [Verdict::unknown(10)]);
    /// assert!(decision.is_admitted());
    /// ```
    #[must_use]
    pub fn new(at: Timestamp, admitted: bool, verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        Self::of_several(at, admitted, verdicts.into_iter().collect())
    }

    /// A decision whose verdicts are a list already.
    #[inline]
    pub(crate) fn of_several(at: Timestamp, admitted: bool, verdicts: List) -> Self {
        Self {
            at,
            admitted,
            known: false,
            verdicts: Verdicts::Together(verdicts),
        }
    }

    /// A decision whose verdicts were each given by a clock of its own: the nodes of a cluster need not agree on the time. The
    /// decision's own time is the first.
    ///
    /// ```
    /// use tollgate::{Decision, Timestamp, Verdict};
    ///
    /// // The second node's clock is a second ahead.
    /// let nodes = [1_700_000_000_000_000, 1_700_000_001_000_000].map(Timestamp::from_micros);
    /// let decision = Decision::apart(true, nodes.map(|at| (at, Verdict::unknown(10))));
    /// assert_eq!(decision.at(), nodes[0]);
    /// assert_eq!(decision.verdict_at(1), nodes[1]);
    /// ```
    #[must_use]
    pub fn apart(admitted: bool, verdicts: impl IntoIterator<Item = (Timestamp, Verdict)>) -> Self {
        let (times, verdicts): (Vec<_>, Vec<_>) = verdicts.into_iter().unzip();
        Self {
            at: times.first().copied().unwrap_or_default(),
            admitted,
            known: false,
            verdicts: Verdicts::Separate(Box::new(SeparateVerdicts {
                verdicts,
                times,
                failure: None,
            })),
        }
    }

    /// This decision, if it lets the request pass, as one without a server that failed like this. The verdicts on that server's charges
    /// are [unknown](Verdict::unknown), and their policies' failure rules act. The other charges were taken. A denial is one whatever
    /// failed beside it.
    ///
    /// ```
    /// use tollgate::{BackendError, Decision, FailureKind, Timestamp, Verdict};
    ///
    /// let error = BackendError::new(FailureKind::Unreachable, "connection refused").at("node-2:6379");
    /// let decision = Decision::apart(true, [(Timestamp::default(), Verdict::unknown(10))]).failing(Some(error));
    /// assert_eq!(decision.failure().and_then(BackendError::place), Some("node-2:6379"));
    /// ```
    #[must_use]
    pub fn failing(mut self, failure: Option<BackendError>) -> Self {
        if let Verdicts::Separate(separate) = &mut self.verdicts
            && self.admitted
        {
            separate.failure = failure;
        }
        self
    }

    /// The failure of a server that was asked about some of the charges: their verdicts are unknown. Only decisions of [several
    /// servers](Self::apart) have one.
    #[must_use]
    #[inline]
    pub fn failure(&self) -> Option<&BackendError> {
        match &self.verdicts {
            Verdicts::Together(_) => None,
            Verdicts::Separate(separate) => separate.failure.as_ref(),
        }
    }

    /// A decision with the usual single verdict, on a charge of this mode.
    #[inline]
    pub(crate) fn of_one(at: Timestamp, mode: Mode, verdict: Verdict) -> Self {
        Self {
            at,
            admitted: verdict.is_allowed() || mode != Mode::Enforce,
            known: false,
            verdicts: Verdicts::Together(smallvec![verdict]),
        }
    }

    /// The time of the decision, by the backend's clock; if several nodes decided, by that of the first.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The time of the verdict at this position, by the clock of the node that gave it.
    #[must_use]
    pub fn verdict_at(&self, position: usize) -> Timestamp {
        let times = self.verdicts.times();
        times.get(position).copied().unwrap_or(self.at)
    }

    /// Says whether the request may pass, because every enforced charge was taken.
    #[must_use]
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// True for a decision that was made without the backend's server: a denial that followed from what was known already, or an
    /// admission out of a [leased](crate::Lease) block.
    ///
    /// ```
    /// use tollgate::{Call, Backend, BackendError, Charge};
    ///
    /// /// In words, for a log.
    /// async fn origin(backend: &dyn Backend, charge: Charge<'_>) -> Result<&'static str, BackendError> {
    ///     let decision = backend.decide(Call::of(&[charge])).await?;
    ///     Ok(if decision.is_known() { "from here" } else { "asked" })
    /// }
    /// ```
    #[must_use]
    #[inline]
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// This decision, as one that no server was asked for.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn known(self) -> Self {
        Self {
            known: true,
            ..self
        }
    }

    /// The only verdict, unless it was made by a clock of its own.
    #[inline]
    pub(crate) fn sole(&self) -> Option<&Verdict> {
        match &self.verdicts {
            Verdicts::Together(verdicts) if verdicts.len() == 1 => verdicts.first(),
            Verdicts::Together(_) | Verdicts::Separate(_) => None,
        }
    }

    /// One verdict per charge, in the order of the charges.
    #[must_use]
    #[inline]
    pub fn verdicts(&self) -> &[Verdict] {
        self.verdicts.as_slice()
    }

    /// The longest wait among the enforced charges, if all of them pass: the request goes on after it. Zero if it goes on now, or
    /// is refused. A charge in shadow lets no request wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Call, Charge, ImmediateBackend, Key, ManualClock, MemoryBackend, Mode, Quota, Scope};
    ///
    /// let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    /// let (second, minute) = (Quota::per_second(1), Quota::per_minute(1));
    /// let quotas = [second, minute].map(|quota| quota.wait_up_to(Duration::from_secs(60)));
    /// let key = Key::global();
    /// let charges = [0, 1].map(|slot| Charge {
    ///     scope: Scope::of("page", slot, &quotas[slot as usize]),
    ///     quota: &quotas[slot as usize],
    ///     key: &key,
    ///     cost: 1,
    ///     mode: Mode::Enforce,
    /// });
    /// assert_eq!(backend.decide_now(Call::of(&charges))?.wait(), Duration::ZERO);
    /// // A second by the first quota, and a minute by the other.
    /// assert_eq!(backend.decide_now(Call::of(&charges))?.wait(), Duration::from_secs(60));
    /// # Ok::<(), tollgate::BackendError>(())
    /// ```
    #[must_use]
    pub fn wait(&self) -> Duration {
        if !self.admitted {
            return Duration::ZERO;
        }
        let enforced = self.verdicts().iter().filter(|verdict| verdict.is_enforced);
        enforced.map(Verdict::wait).max().unwrap_or_default()
    }

    /// The longest wait among the refused enforced charges. After it the same call passes, if nothing else arrives. `None` if
    /// the call was admitted, if one of those charges can never pass, or if it needs what others hold. A charge in shadow and a
    /// probe keep no call from passing, and so have no part in it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let enforced = || self.verdicts().iter().filter(|verdict| verdict.is_enforced);
        let waits = enforced().filter_map(|verdict| match verdict.outcome() {
            Outcome::Deny(wait) => Some(wait),
            _ => None,
        });
        match waits.max()? {
            RetryAfter::Micros(us) => Some(Duration::from_micros(us)),
            RetryAfter::Unknown | RetryAfter::Never => None,
        }
    }

    /// The position of the verdict that says most about this request, among the charges whose mode is [`Mode::Enforce`]. On a
    /// denial it is the refused charge with the longest wait; "never" counts as the longest. Otherwise it is the one with the
    /// smallest share of its budget left. `None` if nothing is enforced.
    #[must_use]
    pub fn tightest(&self, modes: impl IntoIterator<Item = Mode>) -> Option<usize> {
        let mut tightest: Option<(usize, &Verdict)> = None;
        for (index, (verdict, mode)) in self.verdicts().iter().zip(modes).enumerate() {
            let enforced = mode == Mode::Enforce && verdict.outcome() != Outcome::Unknown;
            if enforced && tightest.is_none_or(|(_, best)| verdict.is_tighter_than(best)) {
                tightest = Some((index, verdict));
            }
        }
        tightest.map(|(index, _)| index)
    }
}

impl Verdict {
    /// Says whether this verdict tells more about a request than `other`: a refusal before an admission, of two refusals the
    /// one with the longer wait (never is the longest), of two admissions the one with the smaller share of its budget left.
    #[must_use]
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        match (self.outcome(), other.outcome()) {
            (Outcome::Deny(ours), Outcome::Deny(theirs)) => ours > theirs,
            (Outcome::Deny(_), _) => true,
            (_, Outcome::Deny(_)) => false,
            // remaining / limit, compared without dividing.
            _ => {
                u128::from(self.remaining()) * u128::from(other.limit)
                    < u128::from(other.remaining()) * u128::from(self.limit)
            }
        }
    }
}
