//! The seam: who decides, and how the answer comes back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{BackendError, Capabilities, Charge, Decision, Key, Receipt, Scope, Verdict};

/// Takes charges, gives decisions.
///
/// Object-safe on purpose: limiters and layers hold an `Arc<dyn Backend>` and have no type parameter. The states belong
/// to the backend alone; nobody outside reads or writes them.
///
/// # What an implementation promises
///
/// * Of the [`Enforce`](crate::Mode::Enforce) charges of a call all are taken, or none; a denied call takes nothing.
/// * A call whose answer is dropped before it came leaves nothing behind: it is withdrawn, or credited when it arrives.
/// * A backend that waits keeps a deadline of its own and answers [`FailureKind::TimedOut`](crate::FailureKind::TimedOut)
///   when it has passed. Nobody above it sets a timer.
/// * [`credit`](Self::credit) and [`debit`](Self::debit) neither block nor fail: they are bounded enqueues that may be
///   called from `Drop`. They may be lost with the process.
///
/// `tollgate-conformance` has a test for each behaviour that these promises come to, which any implementation can run.
///
/// # Wrappers
///
/// A type that holds a backend and is one, such as a counter or a cache in front of it, forwards every method, of which
/// [`place`](Self::place) and [`capabilities`](Self::capabilities) have defaults that the compiler does not ask for.
/// [`Answer::map`] looks at what the inner one said, and [`Verdict::denied`] and [`Verdict::allowed`] say what it was not asked.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Decides all or nothing over the enforced charges.
    fn decide(&self, charges: &[Charge<'_>]) -> Decide;

    /// Gives back at most `n` of what `receipt` says was taken, and only what would still count: see [`Receipt`].
    fn credit(&self, receipt: Receipt, n: u64);

    /// Takes `n` more from the budget that `receipt` names, past its capacity if need be: a debt. A budget owes at most
    /// [`DEBT_CEILING`](crate::DEBT_CEILING) times what it holds; what is beyond is not taken.
    fn debit(&self, receipt: &Receipt, n: u64);

    /// Forgets the state of one identity: its budget is full. Receipts from before lose their meaning, and crediting one
    /// of them afterwards may return what newer charges took.
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()>;

    /// Where the states are, for logs: `10.0.0.7:6379, database 3`, without any secret. `None` unless an implementation says
    /// so: in this process.
    fn place(&self) -> Option<String> {
        None
    }

    /// What it can beyond quotas. Nothing unless an implementation says so, so that a wrapper that forgets to forward this has a
    /// limiter refused that needs more, and never one that fails at night.
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
}

/// A backend that always answers now.
///
/// What cannot wait (the synchronous gRPC interceptor) asks for this trait rather than for [`Backend`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` may have to wait for its decisions",
    label = "this backend does not always answer at once",
    note = "a synchronous caller needs one that does, such as the backend in memory; put `RateLimitLayer` around the service instead"
)]
pub trait ImmediateBackend: Backend {
    /// The same as [`Backend::decide`], at once.
    ///
    /// # Errors
    ///
    /// If the call is not one that can be decided.
    fn decide_now(&self, charges: &[Charge<'_>]) -> Result<Decision, BackendError>;
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn decide(&self, charges: &[Charge<'_>]) -> Decide {
        (**self).decide(charges)
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

    fn place(&self) -> Option<String> {
        (**self).place()
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

/// What [`Backend::decide`] returns.
pub type Decide = Answer<Decision>;

/// An answer that is there already, or comes later. A future either way.
///
/// A backend that answers now allocates nothing; one that waits pays one box.
#[must_use = "an answer does nothing unless it is awaited"]
pub struct Answer<T>(Repr<T>);

type Later<T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send>>;

enum Repr<T> {
    Now(Option<Result<T, BackendError>>),
    Later(Later<T>),
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
    /// Gives the future back when the answer is still to come.
    pub fn try_now(self) -> Result<Result<T, BackendError>, Self> {
        match self.0 {
            Repr::Now(Some(result)) => Ok(result),
            repr => Err(Self(repr)),
        }
    }
}

impl<T: Send + 'static> Answer<T> {
    /// The answer with its result turned into another: at once if it is there, and otherwise when it comes. For wrappers around a
    /// backend, which look at what it said, or change it.
    ///
    /// ```
    /// use tollgate_core::Answer;
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
    /// The decision and its only verdict, if the answer is there already and such a one. There is nothing in it then that
    /// would have to be dropped: whoever has one a million times a second may spare itself from looking for that.
    #[must_use]
    #[inline]
    pub const fn peek_sole(&self) -> Option<(&Decision, &Verdict)> {
        match &self.0 {
            Repr::Now(Some(Ok(decision))) => match decision.sole() {
                Some(verdict) => Some((decision, verdict)),
                None => None,
            },
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
