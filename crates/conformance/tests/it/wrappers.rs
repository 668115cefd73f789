//! Wrappers around a backend, written with the public items of the crate alone: one that counts, and one that remembers
//! denials.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::common::{Clocked, Naive};
use tollgate_conformance::Budget;
use tollgate_core::{
    Admin, Answer, Backend, Ban, BanList, Call, Capabilities, Capability, Charge, Clock, Decision,
    FailureKind, Figure, Key, ManualClock, Mode, Quota, RetryAfter, Scope, Settlement, Timestamp,
    Verdict,
};

/// Counts the decisions of the inner backend, also those that come later.
#[derive(Debug)]
struct Counting<B> {
    inner: B,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    admitted: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
}

impl<B: Backend> Backend for Counting<B> {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let counts = Arc::clone(&self.counts);
        self.inner.decide(call).map(move |result| {
            let count = match &result {
                Ok(decision) if decision.is_admitted() => &counts.admitted,
                Ok(_denied) => &counts.denied,
                Err(_failure) => &counts.failed,
            };
            count.fetch_add(1, Ordering::Relaxed);
            result
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.inner.admin()
    }
}

/// Remembers the denial of a call of one enforced charge, and denies it again until it would pass.
#[derive(Debug)]
struct Denials<B> {
    inner: B,
    known: Arc<Mutex<HashMap<(Scope, Key), Denial>>>,
    clock: ManualClock,
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    cost: u64,
    passes_at: Timestamp,
    remaining: u64,
}

impl<B> Denials<B> {
    fn around(inner: B, clock: ManualClock) -> Self {
        Self {
            inner,
            known: Arc::default(),
            clock,
        }
    }

    fn known(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Verdict> {
        let name = (charge.scope, charge.key.clone());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let denial = known.get(&name)?;
        // A lower cost may pass.
        if charge.cost < denial.cost || now >= denial.passes_at {
            return None;
        }
        let wait = RetryAfter::Micros(denial.passes_at.as_micros() - now.as_micros());
        Some(Verdict::denied(charge, wait, denial.remaining))
    }

    fn forget(&self, scope: Scope, key: &Key) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let _denial = known.remove(&(scope, key.clone()));
    }
}

impl<B: Backend> Backend for Denials<B> {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let [charge] = call.charges else {
            return self.inner.decide(call);
        };
        if charge.mode != Mode::Enforce {
            return self.inner.decide(call);
        }
        let now = self.clock.now();
        if let Some(verdict) = self.known(charge, now) {
            return Answer::now(Ok(Decision::new(now, false, [verdict])));
        }
        let (known, cost) = (Arc::clone(&self.known), charge.cost);
        let name = (charge.scope, charge.key.clone());
        self.inner.decide(call).map(move |result| {
            if let Ok(decision) = &result
                && let Some(wait) = decision.retry_after()
            {
                let denial = Denial {
                    cost,
                    passes_at: decision.at().saturating_add(wait),
                    remaining: decision.verdicts()[0].remaining(),
                };
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(name, denial);
            }
            result
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        if let Settlement::Refund(receipt, _) = &settlement {
            self.forget(receipt.scope(), receipt.key());
        }
        self.inner.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl<B: Backend> Admin for Denials<B> {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.forget(scope, key);
        self.inner.admin().reset(scope, key)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.inner.admin().bans(scope)
    }

    fn place(&self) -> Option<String> {
        self.inner.admin().place()
    }

    fn figures(&self, tell: &mut dyn FnMut(Figure, u64)) {
        self.inner.admin().figures(tell);
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.admin().capabilities()
    }
}

/// Counting changes no decision, and so the wrapper conforms as the inner backend does.
mod counting {
    use super::*;

    tollgate_conformance::conformance!(async {
        Clocked::over(|clock| Counting {
            inner: Naive::new(clock),
            counts: Arc::default(),
        })
    });
}

fn denials() -> (Clocked, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let shared = Arc::clone(&counts);
    let subject = Clocked::over(move |clock| {
        let inner = Counting {
            inner: Naive::new(clock.clone()),
            counts: shared,
        };
        Denials::around(inner, clock)
    });
    (subject, counts)
}

#[tokio::test]
async fn a_wrapper_that_remembers_denials_asks_once_and_keeps_the_promise_to_the_microsecond() {
    // given a budget that is spent
    let (subject, asked) = denials();
    let budget = Budget::of("denials", Quota::per_second(10).burst(1));
    assert!(budget.take(&subject, 1).await.is_admitted());
    let first = budget.take(&subject, 1).await;
    let wait = first.retry_after().unwrap();

    // when it is asked again and again until just before the denied charge passes
    for left in [50_000, 1] {
        subject.clock.set(
            first
                .at()
                .saturating_add(wait - Duration::from_micros(left)),
        );
        let again = budget.take(&subject, 1).await;
        assert!(!again.is_admitted() && again.verdicts()[0].is_denied());
        assert_eq!(again.retry_after(), Some(Duration::from_micros(left)));
        assert_eq!(again.verdicts()[0].limit(), 1);
    }

    // then the backend was asked once, and the charge passes when it was said to
    assert_eq!(asked.denied.load(Ordering::Relaxed), 1);
    subject.clock.set(first.at().saturating_add(wait));
    assert!(budget.take(&subject, 1).await.is_admitted());
}

#[tokio::test]
async fn a_wrapper_that_remembers_denials_forgets_them_with_a_credit_and_a_reset() {
    let (subject, _asked) = denials();
    let budget = Budget::of("denials-undone", Quota::per_hour(2));
    let taken = budget.take(&subject, 2).await;
    let receipt = taken.receipts(&[budget.charge(2)]).next().unwrap();
    assert!(!budget.take(&subject, 1).await.is_admitted());

    subject.backend.refund(receipt, 1);
    assert!(budget.take(&subject, 1).await.is_admitted());
    assert!(!budget.take(&subject, 1).await.is_admitted());

    subject
        .backend
        .admin()
        .reset(budget.scope, &budget.key)
        .await
        .unwrap();
    assert!(budget.take(&subject, 2).await.is_admitted());
}

#[tokio::test]
async fn an_answer_that_comes_later_is_looked_at_when_it_comes() {
    // given a backend that answers later
    let counts = Arc::<Counts>::default();
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let later = Answer::later(async move {
        let _told = told.await;
        Ok(1)
    });
    let counted = Arc::clone(&counts);
    let answer = later.map(move |result| {
        counted.admitted.fetch_add(1, Ordering::Relaxed);
        result.map(|n: u64| n + 1)
    });
    assert!(answer.peek().is_none());
    assert_eq!(counts.admitted.load(Ordering::Relaxed), 0);

    tell.send(()).unwrap();

    assert_eq!(answer.await.unwrap(), 2);
    assert_eq!(counts.admitted.load(Ordering::Relaxed), 1);
}

#[test]
fn a_verdict_that_nobody_was_asked_for_says_what_it_was_told() {
    let budget = Budget::of("made", Quota::per_second(10));
    let charge = budget.charge(3);

    let denied = Verdict::denied(&charge, RetryAfter::Micros(70), 2);
    assert!(denied.is_denied() && !denied.never_passes());
    assert_eq!(
        (denied.limit(), denied.remaining(), denied.taken()),
        (10, 2, 0)
    );
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(70)));
    let decision = Decision::new(Timestamp::default(), false, [denied]);
    assert_eq!(decision.retry_after(), denied.retry_after());
    assert!(Verdict::denied(&charge, RetryAfter::Never, 0).never_passes());
    // A wait of 0 would be no denial.
    let at_once = Verdict::denied(&charge, RetryAfter::Micros(0), 0);
    assert_eq!(at_once.retry_after(), Some(Duration::from_micros(1)));

    let allowed = Verdict::allowed(&charge, 3, 4).resetting_after(Duration::from_secs(1));
    assert!(allowed.is_allowed());
    assert_eq!(
        (allowed.limit(), allowed.remaining(), allowed.taken()),
        (10, 4, 3)
    );
    assert_eq!(allowed.reset_after(), Duration::from_secs(1));
}

#[test]
fn what_a_backend_can_is_asked_through_a_wrapper_and_nothing_unless_it_says_so() {
    /// Implements what it must, and says nothing of the rest.
    #[derive(Debug)]
    struct Bare(Naive);

    impl Backend for Bare {
        fn decide(&self, call: Call<'_>) -> Answer<Decision> {
            self.0.decide(call)
        }

        fn settle(&self, settlement: Settlement<'_>) {
            self.0.settle(settlement);
        }
    }
    let needed = Capabilities::none()
        .with(Capability::Held)
        .with(Capability::Once);
    let ban = Quota::from(Ban::after(3, Duration::from_secs(60)));
    let banned = Budget::of("listed", ban);
    let terms = ban.ban().unwrap().try_imposed(Duration::from_secs(7));
    let imposed = Quota::from(terms.unwrap());
    let counting = Counting {
        inner: Naive::new(ManualClock::new()),
        counts: Arc::default(),
    };
    let shared: Arc<dyn Backend> = Arc::new(counting);

    let charge = Charge {
        quota: &imposed,
        ..banned.charge_in(Mode::Shadow, 1)
    };
    let _imposed = shared.decide(Call::of(&[charge]));
    let list = shared
        .admin()
        .bans(banned.scope)
        .try_now()
        .unwrap()
        .unwrap();

    assert_eq!(list.callers()[0].identity(), "=alice");
    assert_eq!(shared.admin().capabilities().missing(needed).count(), 0);
    let bare = Bare(Naive::new(ManualClock::new()));
    let missing: Vec<_> = bare.admin().capabilities().missing(needed).collect();
    assert_eq!(missing, [Capability::Held, Capability::Once]);
    let cannot = bare.admin().bans(banned.scope).try_now();
    assert_eq!(
        cannot.unwrap().unwrap_err().kind(),
        FailureKind::InvalidCall
    );
}
