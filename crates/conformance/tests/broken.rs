//! Backends with one defect each do not conform, and the failing test is the one for that defect.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "every file of tests has it for itself")]
mod common;

use std::sync::{Arc, Mutex, PoisonError};

use common::{Clocked, Naive};
use tollgate_conformance::{Subject, amounts, calls, identities, promises, undo};
use tollgate_core::{
    Answer, Backend, Capabilities, Charge, Decision, Key, ManualClock, Mode, Receipt, Scope, State,
    Timestamp, decide,
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A denied call takes the charges that fit.
    NotAllOrNothing,
    /// Each charge is decided without the others of its call.
    OneByOne,
    /// Nothing is ever given back.
    LosesCredits,
    /// Every quota of a policy shares one budget of the key.
    SharesBudgets,
    /// Each question is answered, and nothing is remembered.
    ForgetsEverything,
    /// The time stands at the start.
    StandsStill,
}

#[derive(Debug)]
struct Broken {
    inner: Naive,
    fault: Fault,
    first: Mutex<Option<Scope>>,
}

impl Broken {
    fn subject(fault: Fault) -> Clocked {
        Clocked::over(|clock: ManualClock| Self {
            inner: Naive::new(clock),
            fault,
            first: Mutex::new(None),
        })
    }

    fn shared(&self, scope: Scope) -> Scope {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *first.get_or_insert(scope);
        if first.unit() == scope.unit() {
            first
        } else {
            scope
        }
    }
}

impl Backend for Broken {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let turned = |turn: &dyn Fn(&Charge<'_>) -> (Scope, Mode)| -> Answer<Decision> {
            let turned: Vec<_> = charges
                .iter()
                .map(|charge| {
                    let (scope, mode) = turn(charge);
                    Charge {
                        scope,
                        mode,
                        ..*charge
                    }
                })
                .collect();
            self.inner.decide(&turned)
        };
        match self.fault {
            Fault::NotAllOrNothing => turned(&|charge| match charge.mode {
                Mode::Enforce => (charge.scope, Mode::Shadow),
                mode => (charge.scope, mode),
            })
            .map(|result| {
                result.map(|said| {
                    let admits = said.verdicts().iter().all(|verdict| !verdict.is_denied());
                    Decision::new(said.at(), admits, said.verdicts().iter().copied())
                })
            }),
            Fault::OneByOne if charges.len() > 1 => {
                let each = charges.iter().map(|charge| {
                    let said = self.inner.decide(std::slice::from_ref(charge));
                    said.try_now().unwrap().unwrap()
                });
                let each: Vec<_> = each.collect();
                let verdicts = each.iter().map(|said| said.verdicts()[0]);
                let admitted = each.iter().all(Decision::is_admitted);
                Answer::now(Ok(Decision::new(each[0].at(), admitted, verdicts)))
            }
            Fault::SharesBudgets => turned(&|charge| (self.shared(charge.scope), charge.mode)),
            Fault::ForgetsEverything => {
                let mut states: Vec<_> = (charges.iter())
                    .map(|charge| State::full(charge.quota))
                    .collect();
                Answer::now(Ok(decide(
                    Timestamp::from_micros(1),
                    charges,
                    &mut states[..],
                )))
            }
            Fault::StandsStill => self.inner.decide(charges).map(|result| {
                result.map(|said| {
                    let verdicts = said.verdicts().iter().copied();
                    Decision::new(Timestamp::from_micros(1), said.is_admitted(), verdicts)
                })
            }),
            Fault::OneByOne | Fault::LosesCredits => self.inner.decide(charges),
        }
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        self.inner.decide_up_to(charges, at_least)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        if !matches!(self.fault, Fault::LosesCredits) {
            self.inner.credit(receipt, n);
        }
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.inner.debit(receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.inner.reset(scope, key)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

/// Says whether a test finds the defect.
async fn fails<F>(fault: Fault, behaviour: impl FnOnce(Arc<Clocked>) -> F) -> bool
where
    F: Future<Output = ()> + Send + 'static,
{
    let subject = Arc::new(Broken::subject(fault));
    tokio::spawn(behaviour(subject)).await.is_err()
}

macro_rules! is_found {
    ($fault:ident, $module:ident::$behaviour:ident) => {
        let found = fails(Fault::$fault, |subject| async move {
            let subject: &dyn Subject = &*subject;
            $module::$behaviour(subject).await;
        });
        assert!(
            found.await,
            "{:?} passes {}",
            Fault::$fault,
            stringify!($behaviour)
        );
    };
}

#[tokio::test]
async fn each_fault_is_found_by_the_behaviour_that_it_breaks() {
    is_found!(NotAllOrNothing, calls::the_largest_call_is_all_or_nothing);
    is_found!(
        NotAllOrNothing,
        calls::pitfall_the_first_of_several_limits_was_charged_although_the_second_denied
    );
    is_found!(
        OneByOne,
        calls::the_same_key_twice_is_one_charge_of_the_summed_cost
    );
    is_found!(LosesCredits, undo::a_credit_gives_back_what_was_taken);
    is_found!(
        SharesBudgets,
        identities::every_quota_of_a_policy_has_its_own_budget
    );
    is_found!(
        ForgetsEverything,
        amounts::a_budget_admits_what_it_holds_and_not_one_more
    );
    is_found!(
        ForgetsEverything,
        promises::retry_after_is_kept_to_the_microsecond
    );
    is_found!(StandsStill, amounts::verdicts_carry_the_time_of_the_backend);
}
