//! Backends with one defect each do not conform, and the behaviour that fails is the rule that the defect breaks.
//!
//! A defect is a type that changes one method of a backend that conforms. Each file has those of one capability.

#[allow(unreachable_pub, reason = "every file of tests has it for itself")]
mod bans;
mod budgets;
mod grants;
mod held;
mod once;
mod shares;
mod waiting;

use std::fmt;
use std::sync::Arc;

use crate::common::{Clocked, Naive};
use tollgate_core::{
    Answer, Backend, BanList, Capabilities, Charge, Clock, Decision, Key, ManualClock, Quota,
    Receipt, Scope, Snapshot, State, Timestamp, Unit,
};

/// A backend that conforms, and its clock.
#[derive(Debug)]
struct Sound {
    backend: Naive,
    clock: ManualClock,
}

impl Sound {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Decides other charges instead of these.
    fn decide_changed(
        &self,
        charges: &[Charge<'_>],
        change: impl for<'a> Fn(Charge<'a>) -> Charge<'a>,
    ) -> Answer<Decision> {
        let changed: Vec<_> = charges.iter().copied().map(change).collect();
        self.backend.decide(&changed)
    }

    /// Decides these charges by other quotas.
    fn decide_by(
        &self,
        charges: &[Charge<'_>],
        quota: impl Fn(&Charge<'_>) -> Quota,
    ) -> Answer<Decision> {
        let quotas: Vec<_> = charges.iter().map(quota).collect();
        let changed: Vec<_> = (charges.iter().zip(&quotas))
            .map(|(charge, quota)| Charge { quota, ..*charge })
            .collect();
        self.backend.decide(&changed)
    }

    /// Changes all states of a unit.
    fn change(&self, unit: Unit, mut change: impl FnMut(&mut Snapshot)) {
        for ((scope, _), state) in self.backend.budgets().iter_mut() {
            if scope.unit() == unit {
                let mut snapshot = state.snapshot();
                change(&mut snapshot);
                *state = State::from(snapshot);
            }
        }
    }
}

/// A defect: the method that a backend gets wrong. The others do as they should.
trait Defect: fmt::Debug + Send + Sync + 'static {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.backend.decide(charges)
    }

    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], least: u64) -> Answer<Decision> {
        sound.backend.decide_up_to(charges, least)
    }

    fn credit(&self, sound: &Sound, receipt: Receipt, n: u64) {
        sound.backend.credit(receipt, n);
    }

    fn debit(&self, sound: &Sound, receipt: &Receipt, n: u64) {
        sound.backend.debit(receipt, n);
    }

    fn bans(&self, sound: &Sound, scope: Scope) -> Answer<BanList> {
        sound.backend.bans(scope)
    }
}

#[derive(Debug)]
struct Broken<D> {
    sound: Sound,
    defect: D,
}

impl<D: Defect> Broken<D> {
    fn subject(defect: D) -> Clocked {
        Clocked::over(|clock| Self {
            sound: Sound {
                backend: Naive::new(clock.clone()),
                clock,
            },
            defect,
        })
    }
}

impl<D: Defect> Backend for Broken<D> {
    fn decide(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.defect.decide(&self.sound, charges)
    }

    fn decide_up_to(&self, charges: &[Charge<'_>], at_least: u64) -> Answer<Decision> {
        self.defect.grant(&self.sound, charges, at_least)
    }

    fn credit(&self, receipt: Receipt, n: u64) {
        self.defect.credit(&self.sound, receipt, n);
    }

    fn debit(&self, receipt: &Receipt, n: u64) {
        self.defect.debit(&self.sound, receipt, n);
    }

    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.sound.backend.reset(scope, key)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.defect.bans(&self.sound, scope)
    }

    fn capabilities(&self) -> Capabilities {
        self.sound.backend.capabilities()
    }
}

/// The decision, which is there at once.
fn at_once(answer: Answer<Decision>) -> Decision {
    answer.try_now().unwrap().unwrap()
}

/// Says whether a behaviour of the suite fails.
async fn fails<F>(subject: Arc<Clocked>, behaviour: impl FnOnce(Arc<Clocked>) -> F) -> bool
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(behaviour(subject)).await.is_err()
}

/// Fails unless each defect fails the behaviour beside it.
macro_rules! are_found {
    ($($defect:expr => $module:ident::$behaviour:ident,)+) => {
        $(
            let rule = stringify!($behaviour);
            let behaviour = |subject: std::sync::Arc<$crate::common::Clocked>| async move {
                tollgate_conformance::$module::$behaviour(&*subject).await;
            };
            let broken = std::sync::Arc::new($crate::broken::Broken::subject($defect));
            let found = $crate::broken::fails(broken, behaviour).await;
            assert!(found, "{} passes {rule}", stringify!($defect));
        )+
    };
}

use are_found;
