//! Tollgate under fire.
//!
//! Processes with random policies ask real servers for decisions while faults are done to those servers, their network and the
//! processes themselves. Each attempt and its outcome is recorded, and a [checker](check) decides afterwards whether the record
//! is possible if every promise was kept. `GUARANTEES.md` has the promises.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Population`] | policies and callers, from a seed |
//! | [`Attempt`], [`History`] | what was asked and heard, which requests left the line, and what was done meanwhile |
//! | [`check`] | pure: is this possible? |
//! | [`client`] | one process that asks |
//! | [`gateway`] | the process that Envoy asks |
//! | [`Fault`], [`Topology`] | the faults and the servers that they are done to, from a seed |
//! | [`Campaign`] | a run from beginning to end |
//! | [`Soak`] | many decisions without any fault |

mod attempt;
mod campaign;
mod checker;
pub mod client;
mod clock;
mod configured;
mod crew;
mod door;
mod fault;
mod flaw;
mod forger;
mod forgery;
mod front;
mod gate;
pub mod gateway;
mod history;
mod hold;
mod holder;
mod idle_client;
mod instance;
mod kept;
mod knock;
mod leased;
mod leased_bound;
mod observed;
mod operator;
mod order;
mod patience;
mod population;
mod replacement;
mod result;
mod ruling;
mod settling;
mod signal;
mod soak;
mod stage;
mod terms;
mod wall;

pub use attempt::{
    AskedCharge, Asker, Asking, Attempt, AttemptAnswer, Budget, DecisionRecord, Door, Fallback,
    HttpAnswer, Manner, Outcome, Verb, VerdictRecord,
};
pub use campaign::{Campaign, DEADLINE, Report};
pub use checker::{
    BanFindings, EnvoyFindings, Findings, GrantFindings, HeldFindings, LeaseFindings, LineFindings,
    OnceFindings, ReplacedFindings, ToldFindings, TurnFindings, Violation, check,
};
pub use clock::Clockwork;
pub use crew::CLIENT;
pub use fault::{Fault, Topology};
pub use flaw::Flaw;
pub use forgery::Forgery;
pub use front::GATEWAY;
pub use history::{Disturbance, ENVOY_PROCESS, Effect, GATEWAY_PROCESS, History, Home, Wait};
pub use hold::{Grant, Hold};
pub use instance::WaitingLine;
pub use kept::check_again;
pub use knock::{Guarded, Knock};
pub use leased::{LeasedPolicy, Spend};
pub use leased_bound::LeasedBound;
pub use operator::{OperatorAct, OperatorCall};
pub use order::{Identified, Order, OrderName};
pub use population::{ONE_IN, Population, SHARED_CALLERS};
pub use replacement::Replacement;
pub use result::Result;
pub use ruling::{Question, Ruling};
pub use soak::{Held, Soak, SoakReport};
pub use terms::Terms;
