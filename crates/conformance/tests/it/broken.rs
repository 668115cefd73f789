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
    Admin, Answer, Backend, BanList, Call, Capabilities, Charge, Clock, Decision, Key, ManualClock,
    Quota, Receipt, Scope, Settlement, Snapshot, State, Timestamp, Unit,
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
        self.backend.decide(Call::of(&changed))
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
        self.backend.decide(Call::of(&changed))
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
        sound.backend.decide(Call::of(charges))
    }

    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], least: u64) -> Answer<Decision> {
        sound.backend.decide(Call::of(charges).at_least(least))
    }

    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        sound.backend.refund(receipt, n);
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
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        match call.at_least {
            None => self.defect.decide(&self.sound, call.charges),
            Some(least) => self.defect.grant(&self.sound, call.charges, least),
        }
    }

    fn settle(&self, settlement: Settlement<'_>) {
        match settlement {
            Settlement::Refund(receipt, n) => self.defect.refund(&self.sound, receipt, n),
            Settlement::Debit(receipt, n) => self.defect.debit(&self.sound, receipt, n),
            other => self.sound.backend.settle(other),
        }
    }

    fn admin(&self) -> &dyn Admin {
        self
    }
}

impl<D: Defect> Admin for Broken<D> {
    fn reset(&self, scope: Scope, key: &Key) -> Answer<()> {
        self.sound.backend.admin().reset(scope, key)
    }

    fn bans(&self, scope: Scope) -> Answer<BanList> {
        self.defect.bans(&self.sound, scope)
    }

    fn capabilities(&self) -> Capabilities {
        self.sound.backend.admin().capabilities()
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
