//! Policies, a backend, and the rule for when the backend fails. Every request is decided here.

mod admission;
mod bans;
mod builder;
mod check;
mod coverage;
mod decision_log;
mod entry;
mod event;
mod fallback;
mod health;
#[cfg(test)]
mod health_tests;
mod judgement;
mod ledger;
mod line;
mod local;
mod marks;
mod messages;
#[cfg(feature = "metrics")]
mod meters;
mod observer;
mod offenders;
mod outages;
mod places;
mod plan;
mod planning;
#[cfg(feature = "metrics")]
mod published;
mod settler;
mod shedder;
mod shedding;
mod snapshot;
mod standing;
mod switches;
mod tally;
mod terms;
mod uncovered;
mod watch;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::Guard;
use http::Request;
use tollgate_core::{Backend, MAX_NAME_LEN, Receipt};

pub use self::admission::{Admission, PendingAdmission, PolicySet, Ruling};
pub use self::builder::LimiterBuilder;
pub use self::check::{
    Acquire, Check, CheckError, CheckFuture, CheckOutcome, JointCheck, JointOutcome,
};
pub use self::event::{Cause, Event, Transport};
pub use self::fallback::{Fallback, LocalPayers};
use self::health::Health;
pub use self::judgement::Judgement;
pub use self::ledger::{Ledger, Verdicts};
use self::line::Line;
use self::local::LocalBudgets;
pub use self::observer::Observer;
use self::observer::Observers;
pub use self::offenders::{Offender, Offenders};
use self::places::Places;
pub use self::plan::{Entries, Plan};
pub use self::planning::Rejection;
pub use self::planning::{PendingPlan, Planning};
use self::settler::Settler;
use self::shedder::Shedder;
pub use self::shedding::Shedding;
pub use self::snapshot::MOST_LOG_ENTRIES;
use self::snapshot::Snapshot;
pub use self::standing::{BudgetStanding, Standing};
use self::switches::Switches;
use self::terms::Terms;

use crate::attachments::Attachments;
use crate::key::KeyShape;
use crate::leasing::LeasingBackend;
use crate::literal::literal;
use crate::sync::ArcSwap;
use crate::{Concurrent, ConfigError, Key, Policy, Quota, RequestView};

/// Policies, a backend, and what happens while the backend cannot decide.
///
/// The layer, and everything else that limits, goes through a limiter. It is cheap to clone, and clones share their
/// budgets. It needs no HTTP:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .policy(Policy::new("send-mail", Quota::per_hour(20).burst(2)))
///     .policy(Policy::new("export", [Quota::per_minute(1), Quota::per_day(10)]))
///     .build()?;
///
/// let user = "user-4711";
/// assert!(limiter.check("send-mail", user).await?.is_allowed());
/// assert!(limiter.check("send-mail", user).await?.is_allowed());
/// let third = limiter.check("send-mail", user).await?;
/// assert!(!third.is_allowed());
/// assert!(third.retry_after().is_some_and(|wait| wait <= Duration::from_secs(180)));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    snapshot: ArcSwap<Snapshot>,
    /// The number of times that the policies were replaced or switched.
    generation: AtomicU64,
    /// Held while the policies change.
    switches: Mutex<Switches>,
    /// True if a present or former policy charges by the response.
    follows_responses: AtomicBool,
    terms: Terms,
    /// `None` if the limiter does not shed requests under pressure.
    shedder: Option<Shedder>,
    backend: Arc<dyn Backend>,
    /// The backend again, if budgets can be leased from it.
    leasing: Option<Arc<LeasingBackend>>,
    local: Arc<LocalBudgets>,
    line: Line,
    places: Arc<Places>,
    health: Health,
    observers: Arc<Observers>,
    settler: Arc<Settler>,
    warned_of_missing_peer: AtomicBool,
    /// True if a layer charges messages.
    attends_messages: AtomicBool,
    /// The policies that handlers and routes have brought along.
    attached: Attachments,
}

impl Limiter {
    /// A limiter to be built from policies and, if not the one in memory, a backend.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Decides whether the identity `key` may do once more what the policy named `policy` limits, and counts it if so.
    ///
    /// This reads nothing from any request: the policy's conditions and key are not asked. Its lists and tiers hold, since they are
    /// about identities. See [`Check`] for other costs and for asking without counting.
    pub fn check(&self, policy: &str, key: impl Into<Key>) -> Check<'_> {
        Check::new(self, policy, key.into())
    }

    /// Decides several checks together: all of them are charged, or none is.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let calls = Policy::new("calls", Quota::per_hour(10)).on_demand();
    /// let tokens = Policy::new("tokens", Quota::per_minute(10_000)).on_demand();
    /// let limiter = Limiter::builder().policies([calls, tokens]).build()?;
    ///
    /// let prompt = [limiter.check("calls", "acme"), limiter.check("tokens", "acme").cost(9_000)];
    /// assert!(limiter.check_all(prompt).await?.is_allowed());
    /// let prompt = [limiter.check("calls", "acme"), limiter.check("tokens", "acme").cost(9_000)];
    /// assert!(!limiter.check_all(prompt).await?.is_allowed());
    /// // The second prompt was not counted as a call.
    /// assert_eq!(limiter.check("calls", "acme").probe().await?.remaining(), 9);
    /// # Ok(()) }
    /// ```
    ///
    /// The decision is made at once, also under quotas that let requests wait. Its policies have at most 32 quotas. Each
    /// identity is asked about once under a policy. Either all of the checks are probes, or none is, and none asks for [as much as
    /// there is](Check::up_to). No checks at all are allowed, and cost nothing.
    ///
    /// # Errors
    ///
    /// When it is awaited: for the reasons of each check, and if the checks cannot be one decision.
    pub fn check_all<'a>(&'a self, checks: impl IntoIterator<Item = Check<'a>>) -> JointCheck<'a> {
        JointCheck::new(self, checks)
    }

    /// Decides like [`check`](Self::check), and waits for the turn of the identity if the policy's quotas
    /// [let it wait](Quota::wait_up_to): a worker that paces itself against a foreign API awaits this before each call.
    ///
    /// [`up_to`](Acquire::up_to) states a shorter wait. If the turn is further away, the answer is a denial, at once.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time, and so it may stand in `tokio::select!` and in a `timeout`. Before it is polled
    /// it takes nothing. Dropped before its turn, or before it has a place, it gives back what was taken for it, and the next
    /// request gets the turn. Dropped once its turn has come and before it is polled again, it gives its charge back like a
    /// request that has passed: while others wait, that lets no request pass earlier.
    ///
    /// # Timers
    ///
    /// It waits by tokio's timer, which the runtime must have. Outside of a runtime it decides at once, as `check` does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // The shop's API takes fifty calls a second, one at a time.
    /// let quota = Quota::per_second(50).burst(1).wait_up_to(Duration::from_secs(10));
    /// let limiter = Limiter::from(Policy::new("shop-api", quota));
    ///
    /// for _ in 0..3 {
    ///     let turn = limiter.acquire("shop-api", "our-account").up_to(Duration::from_secs(5)).await?;
    ///     assert!(turn.is_allowed());
    ///     // Call the API.
    /// }
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self, policy: &str, key: impl Into<Key>) -> Acquire<'_> {
        Acquire::new(self.check(policy, key))
    }

    /// Gives back at most `n` of a charge, and only what would still count: see [`Receipt`].
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("render", Quota::per_hour(5)));
    /// let checked = limiter.check("render", "alice").cost(5).await?;
    ///
    /// // The job failed after two pages: three of five units come back.
    /// for receipt in checked.into_receipts() {
    ///     limiter.refund(receipt, 3);
    /// }
    /// assert_eq!(limiter.check("render", "alice").cost(3).await?.remaining(), 0);
    /// # Ok(()) }
    /// ```
    pub fn refund(&self, receipt: Receipt, n: u64) {
        self.corrects_by_hand(&receipt, Cause::Credited);
        self.give_back(receipt, n);
    }

    /// Takes `n` more from the budget that was charged, past its capacity if need be.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("tokens", Quota::per_minute(1_000)));
    /// let receipts = limiter.check("tokens", "alice").cost(100).await?.into_receipts();
    ///
    /// // The answer took 400 tokens, and not the 100 that were guessed.
    /// limiter.debit(&receipts[0], 300);
    /// assert!(limiter.check("tokens", "alice").probe().await?.remaining() < 700);
    /// # Ok(()) }
    /// ```
    pub fn debit(&self, receipt: &Receipt, n: u64) {
        self.0.settler.take(receipt, n);
        self.corrects_by_hand(receipt, Cause::Debited);
    }

    fn corrects_by_hand(&self, receipt: &Receipt, cause: Cause) {
        let policy = |name: &str| self.policy(name);
        self.0.observers.corrected_by_hand(receipt, policy, cause);
    }

    /// Forgets what the identity `key` has spent under a policy, in whatever tier: its budgets are full. Under a policy whose
    /// [quotas are asked for](crate::Policy::quota_by_async) these are the budgets of all kinds of quotas that this process has
    /// heard of.
    ///
    /// A policy whose [key](Policy::key) was never stated takes any text, because [`check`](Self::check) charges any text. If the
    /// key is stated to be the client's address, text is an error.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("login", Quota::per_hour(1)));
    /// limiter.check("login", "alice").await?;
    ///
    /// // The support desk unlocks an account.
    /// limiter.reset("login", "alice").await?;
    /// assert!(limiter.check("login", "alice").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, if no request under it can have an identity such as `key` (text, where its key is an
    /// address), or if the backend fails.
    pub async fn reset(&self, policy: &str, key: impl Into<Key> + Send) -> Result<(), CheckError> {
        let key = key.into();
        let unknown = || CheckError::UnknownPolicy {
            policy: policy.into(),
        };
        let policy = self.policy(policy).ok_or_else(unknown)?;
        let key = self.identity(&policy, &key)?;
        for scope in policy.scopes() {
            let reset = self.0.backend.admin().reset(scope, &key);
            reset.await.map_err(CheckError::Unavailable)?;
        }
        Ok(())
    }

    /// Forgets the tier of the identity `key` under a policy whose [tiers are asked for](crate::Tiers::by_async). Call it when a
    /// customer's plan has changed: the next request of the identity waits for a new answer. An answer that is under way is
    /// dropped. Each process has a cache of its own and has to be told.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::key::Header;
    /// use tollgate::{Key, Limiter, Policy, Quota, Tiers};
    ///
    /// # async fn plan_of(key: Key) -> Result<Option<&'static str>, std::io::Error> { Ok(None) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tiers = Tiers::by_async(Duration::from_secs(300), plan_of).tier("gold", Quota::per_second(1_000));
    /// let api = Policy::new("api", Quota::per_second(10)).key(Header::new("x-api-key")).tiers(tiers);
    /// let limiter = Limiter::from(api);
    ///
    /// // The customer has paid: the next request reads the new plan.
    /// limiter.forget_tier("api", "key-4711")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, or no request under it ever has an identity such as `key`.
    pub fn forget_tier(&self, policy: &str, key: impl Into<Key>) -> Result<(), CheckError> {
        self.forget(policy, &key.into())
    }

    /// Forgets the quotas of the identity `key` under a policy whose [quotas are asked for](crate::Policy::quota_by_async). Call it
    /// when they have changed: the next request of the identity waits for a new answer. An answer that is under way is dropped.
    /// Budgets go on. Each process has a cache of its own and has to be told.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, Policy, Quota, QuotaLookup};
    ///
    /// # async fn quota_of(key: Key) -> Result<Option<Quota>, std::io::Error> { Ok(Some(Quota::per_minute(250))) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let lookup = QuotaLookup::new(Duration::from_secs(300), quota_of);
    /// let limiter = Limiter::from(Policy::new("api", Quota::per_minute(60)).quota_by_async(lookup));
    /// assert_eq!(limiter.check("api", "4711").await?.remaining(), 249);
    ///
    /// // Sales has changed the row of customer 4711.
    /// limiter.forget_quota("api", "4711")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, or no request under it ever has an identity such as `key`.
    pub fn forget_quota(&self, policy: &str, key: impl Into<Key>) -> Result<(), CheckError> {
        self.forget(policy, &key.into())
    }

    fn forget(&self, policy: &str, key: &Key) -> Result<(), CheckError> {
        let unknown = || CheckError::UnknownPolicy {
            policy: policy.into(),
        };
        let policy = self.policy(policy).ok_or_else(unknown)?;
        policy.forget_entitlement(&self.identity(&policy, key)?);
        Ok(())
    }

    /// This identity as requests under the policy have it.
    ///
    /// # Errors
    ///
    /// If none can have it, with the reason.
    #[doc(hidden)]
    pub fn identity(&self, policy: &Policy, key: &Key) -> Result<Key, CheckError> {
        self.identity_of(policy, policy.shape(), key)
    }

    /// This identity as requests under the policy have it that come by a transport. A check by hand may have others.
    ///
    /// # Errors
    ///
    /// If none can have it, with the reason.
    #[doc(hidden)]
    pub fn identity_of_requests(&self, policy: &Policy, key: &Key) -> Result<Key, CheckError> {
        self.identity_of(policy, policy.shape().without_checks(), key)
    }

    fn identity_of(&self, policy: &Policy, shape: &KeyShape, key: &Key) -> Result<Key, CheckError> {
        match shape.misfit(key, &self.0.terms.client) {
            None => Ok(shape.respelled(key).unwrap_or_else(|| key.clone())),
            Some(reason) => Err(CheckError::WrongKey {
                policy: policy.name().into(),
                reason,
            }),
        }
    }

    /// The number of decisions that the backend failed to make, for an alert.
    ///
    /// The log says when an outage begins (a warning), each minute that it lasts, and when it ends: where the backend is, why it
    /// does not decide, for how long, and how many requests passed undecided. Two warnings are at least ten seconds apart. An
    /// outage that begins in between is logged afterwards if it lasts, and is counted in any case. Requests write these lines.
    /// While no request comes, an outage is not logged; the first request that the backend decides again logs the end.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// // For metrics. An alert watches how fast it grows.
    /// let limiter = Limiter::from(Quota::per_second(10));
    /// assert_eq!(limiter.failures(), 0);
    /// ```
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.health.failures()
    }

    /// True while the latest decisions were not made by the backend, for a page about its health. It changes with requests: an
    /// outage in which none comes is not noticed, nor is its end.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// assert!(!Limiter::from(Quota::per_second(10)).is_failing());
    /// ```
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.0.health.is_failing()
    }

    /// The backend, for operators' own views of it.
    #[doc(hidden)]
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// The callers that a policy has denied most since the limiter was built, and the number of all denied callers. Operators find
    /// a flooding caller with it. A policy that is replaced by one of another name is forgotten, and so are those of handlers at
    /// each replacement. Policies on trial count the callers that they would deny.
    ///
    /// The memory is bounded, so that a count may be too high: by how much stands [beside it](Offender::error). Each process counts
    /// for itself.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().policy(Policy::new("api", Quota::per_second(10))).track_offenders().build()?;
    /// for caller in limiter.offenders("api")?.callers().iter().take(10) {
    ///     println!("{:?}: {} denials", caller.key(), caller.denials());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the limiter has no policy of that name, and no handler has one that has denied a caller. Nothing is counted without
    /// [`LimiterBuilder::track_offenders`](crate::LimiterBuilder::track_offenders).
    pub fn offenders(&self, policy: &str) -> Result<Offenders, CheckError> {
        let tracker = self.0.observers.tracker();
        let found = tracker.map(|tracker| tracker.read(policy));
        let found = found.unwrap_or_default();
        if found.denials() == 0 && self.policy(policy).is_none() {
            return Err(CheckError::UnknownPolicy {
                policy: policy.chars().take(MAX_NAME_LEN).collect(),
            });
        }
        Ok(found)
    }

    /// The identity that [`ClientIp`](crate::ClientIp) makes of an address under this limiter, for [`check`](Self::check) and
    /// [`reset`](Self::reset).
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("page", Quota::per_minute(5)));
    /// let caller = limiter.client_key("203.0.113.7".parse()?);
    /// limiter.reset("page", caller).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn client_key(&self, address: IpAddr) -> Key {
        self.0.terms.client.key(address)
    }

    /// The policies, in the order in which they were added.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::from(Quota::per_second(10));
    /// let names: Vec<_> = limiter.policies().iter().map(|policy| policy.name().to_owned()).collect();
    /// assert_eq!(names, ["default"]);
    /// assert!(limiter.policy("default").is_some());
    /// ```
    #[must_use]
    pub fn policies(&self) -> Vec<Arc<Policy>> {
        self.snapshot().policies.to_vec()
    }

    /// Replaces all policies by these, for this limiter and its clones, between two requests. Budgets go on. A budget is identified
    /// by the policy's name, the quota's name (or else its position) and the algorithm. The limit does not matter. A request that
    /// was let in before is settled under the policies as they were then.
    ///
    /// A caller that has spent a budget waits until so much of it has drained that the new quota has room: for one full drain of
    /// the larger quota at most. [`reset`](Self::reset) ends that at once.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::from(Policy::new("mail", Quota::per_hour(2)));
    /// limiter.check("mail", "alice").await?;
    ///
    /// limiter.replace([Policy::new("mail", Quota::per_hour(10))])?;
    /// // Half of the budget was spent, and so half of the new one is, before this.
    /// assert_eq!(limiter.check("mail", "alice").await?.remaining(), 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If [`LimiterBuilder::build`] would refuse the policies. Then those before stay.
    pub fn replace(&self, policies: impl IntoIterator<Item = Policy>) -> Result<(), ConfigError> {
        let replaced = self.replace_uncounted(policies.into_iter().collect());
        if replaced.is_err() {
            self.refuses_replacement();
        }
        replaced
    }

    /// Counts policies that could not replace the present ones.
    pub(crate) fn refuses_replacement(&self) {
        self.0.observers.replaced(None);
    }

    fn install(&self, snapshot: Snapshot) {
        snapshot.go_on_from(&self.snapshot());
        if snapshot.follows_responses {
            self.0.follows_responses.store(true, Ordering::Relaxed);
        }
        if let Some(leasing) = &self.0.leasing {
            leasing.lease(&snapshot.policies);
        }
        self.0.snapshot.store(Arc::new(snapshot));
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Fails unless there is a policy of each of these names. Call it when the server starts, with the names that annotations,
    /// [`check`](Self::check) and `RateLimitStatus::settle` use: otherwise the first request finds the mistake.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("search", Quota::per_second(5)).on_demand())
    ///     .build()?;
    /// limiter.expects(["search"])?;
    /// assert!(limiter.expects(["serach"]).is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of one of these names.
    pub fn expects<'a>(
        &self,
        policies: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        let mut names = policies.into_iter();
        match names.find(|name| self.policy(name).is_none()) {
            Some(name) => Err(ConfigError::UnknownPolicy {
                policy: name.chars().take(MAX_NAME_LEN).collect(),
            }),
            None => Ok(()),
        }
    }

    /// The policy of this name, if there is one.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    ///
    /// assert!(Limiter::from(Quota::per_second(10)).policy("search").is_none());
    /// ```
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<Arc<Policy>> {
        self.snapshot().policy(name).cloned()
    }

    #[inline]
    fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.0.snapshot.load()
    }

    /// The head of a request, read with the proxies that this limiter trusts.
    #[doc(hidden)]
    #[inline]
    pub fn view<'a, B>(&'a self, request: &'a Request<B>) -> RequestView<'a> {
        RequestView::of(request).trusting(&self.0.terms.client)
    }

    /// The head of a request that lies in parts, read with the proxies that this limiter trusts.
    #[doc(hidden)]
    pub fn view_of<'a>(&'a self, parts: &'a http::request::Parts) -> RequestView<'a> {
        RequestView::of_parts(parts).trusting(&self.0.terms.client)
    }

    /// Takes in a policy of a handler, unless it needs more than the backend can, or than the transport can.
    ///
    /// # Errors
    ///
    /// With the reason.
    #[doc(hidden)]
    pub fn check_fit(&self, policy: &Policy) -> Result<(), ConfigError> {
        self.0.terms.check_fit(policy)?;
        if let Some(leasing) = &self.0.leasing {
            leasing.lease_for_handler(policy);
        }
        Ok(())
    }

    /// True if both are one limiter.
    #[doc(hidden)]
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Values that upper modules keep with this limiter.
    #[doc(hidden)]
    pub fn attached(&self) -> &Attachments {
        &self.0.attached
    }

    /// The number of times that the policies were replaced or switched.
    #[doc(hidden)]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// True if responses may matter: one may change the cost of its request, or its end gives back what is held.
    #[doc(hidden)]
    #[inline]
    pub fn follows_responses(&self) -> bool {
        self.0.follows_responses.load(Ordering::Relaxed)
    }

    /// Gives back to the backend, and wakes the requests that wait for it.
    fn give_back(&self, receipt: Receipt, n: u64) {
        self.0.settler.give_back(receipt, n);
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.snapshot().policies)
            .field("client_address", &self.0.terms.client)
            .field("backend", &self.0.backend)
            .finish_non_exhaustive()
    }
}

/// The one policy of this limiter, in memory.
///
/// # Panics
///
/// If [`LimiterBuilder::build`] would refuse the policy. Policies from outside go through the builder.
impl From<Policy> for Limiter {
    fn from(policy: Policy) -> Self {
        literal(Self::builder().policy(policy).build())
    }
}

/// A limiter of one policy named `default`: so many at once for each client address, in memory.
impl From<Concurrent> for Limiter {
    fn from(concurrent: Concurrent) -> Self {
        Policy::new("default", concurrent).into()
    }
}

/// A limiter of one policy named `default`: this quota for each client address, in memory.
impl From<Quota> for Limiter {
    fn from(quota: Quota) -> Self {
        Policy::new("default", quota).into()
    }
}

impl From<&Self> for Limiter {
    fn from(limiter: &Self) -> Self {
        limiter.clone()
    }
}

impl Limiter {
    fn new(
        policies: Snapshot,
        terms: Terms,
        shedder: Option<Shedder>,
        backend: Arc<dyn Backend>,
        leasing: Option<Arc<LeasingBackend>>,
        observers: Observers,
    ) -> Self {
        if let Some(leasing) = &leasing {
            leasing.lease(&policies.policies);
        }
        let (local, places): (Arc<LocalBudgets>, Arc<Places>) = Default::default();
        let observers = Arc::new(observers);
        let settler = Settler {
            backend: Arc::clone(&backend),
            local: Arc::clone(&local),
            observers: Arc::clone(&observers),
            waiting: Arc::clone(&places) as _,
        };
        Self(Arc::new(Inner {
            follows_responses: AtomicBool::new(policies.follows_responses),
            snapshot: ArcSwap::from_pointee(policies),
            generation: AtomicU64::new(0),
            switches: Mutex::default(),
            terms,
            shedder,
            backend,
            leasing,
            local,
            line: Line::default(),
            places,
            health: Health::default(),
            observers,
            settler: Arc::new(settler),
            warned_of_missing_peer: AtomicBool::new(false),
            attends_messages: AtomicBool::new(false),
            attached: Attachments::default(),
        }))
    }
}
