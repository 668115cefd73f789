//! The seam: a backend decides, and the answer comes back.

use std::fmt;
use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{
    BackendError, BanList, Call, Capabilities, Charge, Decision, FailureKind, Figure, Key, Receipt,
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
/// * A call whose answer is dropped before it came leaves nothing behind: it is withdrawn, or refunded when it arrives.
/// * A backend that waits keeps a deadline of its own and answers [`FailureKind::TimedOut`](crate::FailureKind::TimedOut) when
///   it has passed. No caller above it sets a timer.
/// * [`settle`](Self::settle) neither blocks nor fails: it is a bounded enqueue that may be called from `Drop`. A settlement may be
///   lost with the process.
///
/// `tollgate-conformance` tests each of these promises, and any implementation can run its tests.
///
/// # Wrappers
///
/// A type that holds a backend and is one, such as a counter or a cache in front of it, forwards all three methods.
/// [`Answer::map`] looks at the answer of the inner backend, and [`Verdict::denied`] and [`Verdict::allowed`] stand for charges
/// that it was not asked about.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Admin, Answer, Backend, Call, Decision, Settlement};
///
/// /// Counts the calls to the backend inside.
/// #[derive(Debug)]
/// struct Counted<B> {
///     inner: B,
///     calls: AtomicU64,
/// }
///
/// impl<B: Backend> Backend for Counted<B> {
///     fn decide(&self, call: Call<'_>) -> Answer<Decision> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.inner.decide(call)
///     }
///
///     fn settle(&self, settlement: Settlement<'_>) {
///         self.inner.settle(settlement);
///     }
///
///     fn admin(&self) -> &dyn Admin {
///         self.inner.admin()
///     }
/// }
/// ```
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides a call: all of its enforced charges or none, or [as much as there is](Call::at_least). One that is not
    /// [valid](Call::check) fails with [`FailureKind::InvalidCall`].
    fn decide(&self, call: Call<'_>) -> Answer<Decision>;

    /// Corrects what was charged.
    fn settle(&self, settlement: Settlement<'_>);

    /// What the backend offers beside decisions. The default offers nothing, so that a limiter that needs more than quotas refuses,
    /// while it is built, a wrapper that forgets to forward this method.
    fn admin(&self) -> &dyn Admin {
        &NoAdmin
    }

    /// Settles by [`Settlement::Refund`].
    fn refund(&self, receipt: Receipt, n: u64) {
        self.settle(Settlement::Refund(receipt, n));
    }

    /// Settles by [`Settlement::Debit`].
    fn debit(&self, receipt: &Receipt, n: u64) {
        self.settle(Settlement::Debit(receipt, n));
    }
}

/// A correction of what was charged.
#[derive(Debug)]
#[non_exhaustive]
pub enum Settlement<'a> {
    /// Returns at most so many of the units that the receipt says were taken, and only those that would still count: see
    /// [`Receipt`].
    Refund(Receipt, u64),
    /// Takes so many more from the budget that the receipt names, past its capacity if need be: a debt. A budget owes at most
    /// [`DEBT_CEILING`](crate::DEBT_CEILING) times its capacity; anything beyond that is not taken.
    Debit(&'a Receipt, u64),
    /// Counts a [permit](crate::Concurrent) that was not decided, because the backend failed and its request goes on all the same. A
    /// refund by its [receipt](Verdict::assumed) releases it. Only for backends with
    /// [`Capability::Assumes`](crate::Capability::Assumes).
    Assume(&'a Charge<'a>),
}

/// What a backend offers beside decisions, for limiters while they are built, for operators and for metrics. Each method has a
/// default for backends that do not offer it.
pub trait Admin: Send + Sync {
    /// The capabilities beyond quotas. Default: none.
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    /// Forgets the state of one identity: its budget is full. Receipts from before lose their meaning, and a refund by one of them
    /// may return units of newer charges. Default: fails with [`FailureKind::InvalidCall`].
    fn reset(&self, _scope: Scope, _key: &Key) -> Answer<()> {
        lacking("this backend cannot reset budgets")
    }

    /// Lists the identities that are banned in a scope of [`Unit::Ban`](crate::Unit::Ban): bans in force, and no mere strikes. The
    /// list is bounded, and so is the work that a call of it makes: see [`BanList`]. Default: fails with
    /// [`FailureKind::InvalidCall`].
    fn bans(&self, _scope: Scope) -> Answer<BanList> {
        lacking("this backend cannot list bans")
    }

    /// The place of the states, for logs: `10.0.0.7:6379, database 3`, without any secret. Default: `None`, which means in this
    /// process.
    fn place(&self) -> Option<String> {
        None
    }

    /// Reports the figures that the backend has of itself, for metrics. A scrape asks for them, so that it may take as long as a look
    /// at each shard. Default: none.
    fn figures(&self, _report: &mut dyn FnMut(Figure, u64)) {}
}

struct NoAdmin;

impl Admin for NoAdmin {}

fn lacking<T>(detail: &str) -> Answer<T> {
    Answer::now(Err(BackendError::new(FailureKind::InvalidCall, detail)))
}

/// A backend that always answers now, also to [`Backend::decide`].
///
/// Callers that cannot wait (the synchronous gRPC interceptor) ask for this trait rather than for [`Backend`].
///
/// ```
/// use tollgate::{Call, BackendError, Charge, ImmediateBackend};
///
/// /// For code that cannot await.
/// fn may_pass(backend: &impl ImmediateBackend, charge: Charge<'_>) -> Result<bool, BackendError> {
///     Ok(backend.decide_now(Call::of(&[charge]))?.is_admitted())
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
    fn decide_now(&self, call: Call<'_>) -> Result<Decision, BackendError>;
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        (**self).decide(call)
    }

    fn settle(&self, settlement: Settlement<'_>) {
        (**self).settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        (**self).admin()
    }
}

impl<B: ImmediateBackend + ?Sized> ImmediateBackend for Arc<B> {
    fn decide_now(&self, call: Call<'_>) -> Result<Decision, BackendError> {
        (**self).decide_now(call)
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
/// // The future, which can be awaited.
/// assert!(asked.try_now().is_err());
/// ```
///
/// A backend that fails says so:
///
/// ```
/// use tollgate::{Answer, BackendError, Call, Decision, FailureKind};
///
/// /// A backend that is shutting down fails, so that the failure rule of each policy acts.
/// fn decide(_call: Call<'_>) -> Answer<Decision> {
///     Answer::now(Err(BackendError::new(FailureKind::Unready, "shutting down")))
/// }
///
/// assert!(matches!(decide(Call::of(&[])).peek(), Some(Err(_))));
/// ```
#[must_use = "an answer does nothing unless it is awaited"]
pub struct Answer<T>(Repr<T>);

/// An answer that is still to come, as a future. It is much smaller than an answer.
#[must_use = "an answer does nothing unless it is awaited"]
pub struct LateAnswer<T>(Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>);

impl<T: Send + 'static> From<Answer<T>> for LateAnswer<T> {
    /// Puts an answer that is there already into a box.
    fn from(answer: Answer<T>) -> Self {
        let known = |known| Self(Box::pin(future::ready(known)));
        answer.try_now().map_or_else(|late| late, known)
    }
}

impl<T> Future for LateAnswer<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for LateAnswer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateAnswer")
    }
}

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
        Self(Repr::Later(LateAnswer(Box::pin(future))))
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

    /// The answer, if it is there already; otherwise what brings it.
    ///
    /// # Errors
    ///
    /// What brings the answer, if it is still to come. It stays pending if the answer was taken before.
    pub fn try_now(self) -> Result<Result<T, BackendError>, LateAnswer<T>>
    where
        T: Send + 'static,
    {
        match self.0 {
            Repr::Now(Some(result)) => Ok(result),
            Repr::Now(None) => Err(LateAnswer(Box::pin(future::pending()))),
            Repr::Later(future) => Err(future),
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
    /// use tollgate::{Call, Charge, Backend, Key, MemoryBackend, Mode, Quota, Scope};
    ///
    /// let quota = Quota::per_minute(5);
    /// let charge = Charge {
    ///     scope: Scope::of("login", 0, &quota),
    ///     quota: &quota,
    ///     key: &Key::from("alice"),
    ///     cost: 1,
    ///     mode: Mode::Enforce,
    /// };
    /// let answer = MemoryBackend::new().decide(Call::of(&[charge]));
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
            Repr::Later(late) => Pin::new(late).poll(cx),
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
