//! The seam: a backend decides, and the answer comes back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{
    BackendError, BanList, Capabilities, Charge, Decision, FailureKind, Figure, Key, Receipt,
    Scope, Verdict,
};

/// Takes charges, gives decisions.
///
/// Object-safe on purpose: limiters and layers hold an `Arc<dyn Backend>` and have no type parameter. The states belong to the
/// backend alone; no code outside reads or writes them.
///
/// # What an implementation promises
///
/// * A call takes all of its [`Enforce`](crate::Mode::Enforce) charges or none; a denied call takes nothing.
/// * A call whose answer is dropped before it came leaves nothing behind: it is withdrawn, or credited when it arrives.
/// * A backend that waits keeps a deadline of its own and answers [`FailureKind::TimedOut`](crate::FailureKind::TimedOut) when
///   it has passed. No caller above it sets a timer.
/// * [`credit`](Self::credit) and [`debit`](Self::debit) neither block nor fail: they are bounded enqueues that may be
///   called from `Drop`. They may be lost with the process.
///
/// `tollgate-conformance` tests each of these promises, and any implementation can run its tests.
///
/// # Wrappers
///
/// A type that holds a backend and is one, such as a counter or a cache in front of it, forwards every method. The compiler
/// does not ask for [`decide_up_to`](Self::decide_up_to), [`assume`](Self::assume), [`bans`](Self::bans),
/// [`place`](Self::place), [`figures`](Self::figures) and [`capabilities`](Self::capabilities), because they have defaults:
/// forward these as well. [`Answer::map`] looks at the answer
/// of the inner backend, and [`Verdict::denied`] and [`Verdict::allowed`] stand for charges that it was not asked about.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Answer, Backend, BanList, Capabilities, Charge, Decision, Figure, Key, Receipt, Scope};
///
/// /// Counts the calls to the backend inside.
/// #[derive(Debug)]
/// struct Counted<B> {
///     inner: B,
///     calls: AtomicU64,
/// }
///
/// impl<B: Backend> Backend for Counted<B> {
///     fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.inner.decide(charges)
///     }
///
///     fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.inner.decide_up_to(charges, at_least)
///     }
///
///     fn credit(&self, receipt: Receipt, n: u64) {
///         self.inner.credit(receipt, n);
///     }
///
///     fn debit(&self, receipt: &Receipt, n: u64) {
///         self.inner.debit(receipt, n);
///     }
///
///     fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
///         self.inner.reset(scope, key)
///     }
///
///     fn assume(&self, charge: &Charge<'_>) -> bool {
///         self.inner.assume(charge)
///     }
///
///     fn bans(&self, scope: Scope) -> Answer<BanList> {
///         self.inner.bans(scope)
///     }
///
///     fn place(&self) -> Option<String> {
///         self.inner.place()
///     }
///
///     fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
///         self.inner.figures(tell);
///     }
///
///     fn capabilities(&self) -> Capabilities {
///         self.inner.capabilities()
///     }
/// }
/// ```
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides all or nothing over the enforced charges.
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision>;

    /// Decides about as much as there is: the charges name the most that the call may take, and `at_least` is the least that it is
    /// worth. If all enforced charges have room for that, the call takes the largest amount that fits all of them. Otherwise the
    /// call is denied and takes nothing. The verdicts tell the amount: see [`Verdict::taken`].
    ///
    /// A backend whose states lie in several places may take from one place after the other and give the surplus back, so that
    /// other callers are denied in between. The default fails with [`FailureKind::InvalidCall`].
    fn decide_up_to(&self, _charges: &[Charge<'_>], _at_least: u64) -> Answer<Decision> {
        let detail = "this backend cannot grant as much as there is";
        Answer::now(Err(BackendError::new(FailureKind::InvalidCall, detail)))
    }

    /// Gives back at most `n` of what `receipt` says was taken, and only what would still count: see [`Receipt`].
    fn credit(&self, receipt: Receipt, n: u64);

    /// Takes `n` more from the budget that `receipt` names, past its capacity if need be: a debt. A budget owes at most
    /// [`DEBT_CEILING`](crate::DEBT_CEILING) times its capacity; anything beyond that is not taken.
    fn debit(&self, receipt: &Receipt, n: u64);

    /// Forgets the state of one identity: its budget is full. Receipts from before lose their meaning, and crediting one of
    /// them afterwards may return units of newer charges.
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()>;

    /// Counts a [held](crate::Concurrent) charge that was not decided, because the backend failed and its request goes on all the
    /// same. True if the charge is counted as soon as that is possible; then a credit of its [receipt](Verdict::assumed) gives it
    /// back. False, the default, means that such requests are not counted.
    fn assume(&self, _charge: &Charge<'_>) -> bool {
        false
    }

    /// Lists the identities that are banned in a scope of [`Unit::Ban`](crate::Unit::Ban), for operators: bans in force, and no
    /// mere strikes. The list is bounded, and so is the work that a call of it makes: see [`BanList`]. The default fails with
    /// [`FailureKind::InvalidCall`].
    fn bans(&self, _scope: Scope) -> Answer<BanList> {
        let detail = "this backend cannot list bans";
        Answer::now(Err(BackendError::new(FailureKind::InvalidCall, detail)))
    }

    /// The place of the states, for logs: `10.0.0.7:6379, database 3`, without any secret. `None`, the default, means in this
    /// process.
    fn place(&self) -> Option<String> {
        None
    }

    /// Tells the figures that the backend has of itself, for metrics; none by default. A scrape asks for them, so that it may take
    /// as long as a look at each shard.
    fn figures(&self, _tell: &mut dyn FnMut(Figure, u64)) {}

    /// The capabilities beyond quotas; none by default. So a limiter that needs more refuses, while it is built, a wrapper that
    /// forgets to forward this method.
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
}

/// A backend that always answers now.
///
/// Callers that cannot wait (the synchronous gRPC interceptor) ask for this trait rather than for [`Backend`].
///
/// ```
/// use tollgate::{BackendError, Charge, ImmediateBackend};
///
/// /// For code that cannot await.
/// fn may_pass(backend: &impl ImmediateBackend, charge: Charge<'_>) -> Result<bool, BackendError> {
///     Ok(backend.decide_now(&[charge])?.is_admitted())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` may have to wait for its decisions",
    label = "this backend does not always answer at once",
    note = "a synchronous caller needs one that does, such as the backend in memory; put `RateLimitLayer` around the service instead"
)]
pub trait ImmediateBackend: Backend {
    /// Decides like [`Backend::decide`], at once.
    ///
    /// # Errors
    ///
    /// If the call is not valid.
    fn decide_now(&self, charges: &[Charge<'_>]) -> Result<Decision, BackendError>;
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        (**self).decide(charges)
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        (**self).decide_up_to(charges, at_least)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        (**self).credit(receipt, n);
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        (**self).debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        (**self).reset(scope, key)
    }

    fn assume(&self, charge: &Charge<'_>) -> bool {
        (**self).assume(charge)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        (**self).bans(scope)
    }

    fn place(&self) -> Option<String> {
        (**self).place()
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        (**self).figures(tell);
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
}

impl<B: ImmediateBackend + ?Sized> ImmediateBackend for Arc<B> {
    fn decide_now(&self, charges: &[Charge<'_>]) -> Result<Decision, BackendError> {
        (**self).decide_now(charges)
    }
}

/// An answer that is there already, or comes later. In both cases it is a future.
///
/// A backend that answers now allocates nothing; one that waits pays one box.
///
/// ```
/// use tollgate::Answer;
///
/// let known = Answer::now(Ok(7));
/// assert!(matches!(known.peek(), Some(Ok(7))));
/// assert!(matches!(known.try_now(), Ok(Ok(7))));
///
/// let asked = Answer::later(async { Ok(7) });
/// assert!(asked.peek().is_none());
/// // The future comes back and can be awaited.
/// assert!(asked.try_now().is_err());
/// ```
///
/// A backend that fails says so:
///
/// ```
/// use tollgate::{Answer, BackendError, Charge, Decision, FailureKind};
///
/// /// A backend that is shutting down fails, so that the failure rule of each policy acts.
/// fn decide(_charges: &[Charge<'_>]) -> Answer<Decision> {
///     Answer::now(Err(BackendError::new(FailureKind::Unready, "shutting down")))
/// }
///
/// assert!(matches!(decide(&[]).peek(), Some(Err(_))));
/// ```
#[must_use = "an answer does nothing unless it is awaited"]
pub struct Answer<T>(Repr<T>);

type LateAnswer<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

enum Repr<T> {
    Now(Option<Result<T, BackendError>>),
    Later(LateAnswer<T>),
}

impl<T> Answer<T> {
    /// An answer that is there already.
    #[inline]
    pub const fn now(result: Result<T, BackendError>) -> Self {
        Self(Repr::Now(Some(result)))
    }

    /// An answer that `future` will bring.
    pub fn later(future: impl Future<Output = Result<T, BackendError>> + Send + 'static) -> Self {
        Self(Repr::Later(Box::pin(future)))
    }

    /// The answer, if it is there already and was not taken yet. Decisions are large: looking at one costs less than taking
    /// it.
    #[must_use]
    #[inline]
    pub const fn peek(&self) -> Option<&Result<T, BackendError>> {
        match &self.0 {
            Repr::Now(result) => result.as_ref(),
            Repr::Later(_) => None,
        }
    }

    /// The answer, if it is there already and was not taken yet; otherwise the future back.
    ///
    /// # Errors
    ///
    /// Gives the future back if the answer is still to come.
    pub fn try_now(self) -> Result<Result<T, BackendError>, Self> {
        match self.0 {
            Repr::Now(Some(result)) => Ok(result),
            repr => Err(Self(repr)),
        }
    }
}

impl<T: Send + 'static> Answer<T> {
    /// The answer with its result turned into another: at once if it is there, and otherwise when it comes. For wrappers around
    /// a backend, which look at the answer or change it.
    ///
    /// ```
    /// use tollgate::Answer;
    ///
    /// let answer = Answer::now(Ok(20)).map(|result| result.map(|n| n + 1));
    /// assert!(matches!(answer.peek(), Some(Ok(21))));
    /// ```
    pub fn map<U>(
        self,
        f: impl FnOnce(Result<T, BackendError>) -> Result<U, BackendError> + Send + 'static,
    ) -> Answer<U> {
        match self.0 {
            Repr::Now(result) => Answer(Repr::Now(result.map(f))),
            Repr::Later(future) => Answer::later(async move { f(future.await) }),
        }
    }
}

impl Answer<Decision> {
    /// The decision and its only verdict, if the answer is there already and has one verdict alone. Such an answer holds
    /// nothing that must be dropped, so a caller with a million of them a second can skip the drop.
    ///
    /// ```
    /// use tollgate::{Charge, Backend, Key, MemoryBackend, Mode, Quota, Scope};
    ///
    /// let quota = Quota::per_minute(5);
    /// let charge = Charge {
    ///     scope: Scope::of("login", 0, &quota),
    ///     quota: &quota,
    ///     key: &Key::from("alice"),
    ///     cost: 1,
    ///     mode: Mode::Enforce,
    /// };
    /// let answer = MemoryBackend::new().decide(&[charge]);
    /// assert!(answer.peek_sole().is_some_and(|(_, verdict)| verdict.remaining() == 4));
    /// ```
    #[must_use]
    #[inline]
    pub fn peek_sole(&self) -> Option<(&Decision, &Verdict)> {
        match &self.0 {
            Repr::Now(Some(Ok(decision))) => decision.sole().map(|verdict| (decision, verdict)),
            _ => None,
        }
    }
}

// Nothing is pinned in place: the result is moved out, and the box pins its own content.
impl<T> Unpin for Answer<T> {}

impl<T> Future for Answer<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Repr::Later(future) => future.as_mut().poll(cx),
            // Taken already: a future that is polled after its end may stay pending, and must not panic here.
            Repr::Now(result) => result.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Repr::Now(_) => "Answer(now)",
            Repr::Later(_) => "Answer(later)",
        })
    }
}
