//! A worker of a client that spends leased budgets, each with a limiter of its own.

use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tollgate::{Admin, Cause, Event, Limiter, Settlement};
use tollgate_core::{Answer, Backend, Call, Charge, Decision, Key, Mode, Receipt};
use tollgate_redis::RedisBackend;

use super::record::{Line, say};
use super::{Client, pause};
use crate::Result;
use crate::flaw::Flaw;
use crate::leased::{LeasedPolicy, Spend};
use crate::wall::now_us;

/// The number of a client's workers that spend leased budgets.
pub(super) const SPENDERS: u32 = 2;

/// The callers of leased budgets.
const CALLERS: u32 = 2;

/// The longest pause between two records.
const LONGEST_PAUSE_US: u64 = 40_000;

/// The most requests of one record.
const MOST: u64 = 24;

/// Spends in spells, and restarts its limiter now and then, as a service is restarted.
pub(super) async fn spend(client: Arc<Client>, spender: u32) -> std::io::Result<()> {
    let orders = &client.orders;
    let own = orders.number * SPENDERS + spender;
    let mut rng = Rng::with_seed(orders.seed ^ (u64::from(own) << 24));
    while !client.is_over() {
        let service = Service::of(client.entrance.backend(), orders.flaw);
        let service = service.map_err(|error| std::io::Error::other(error.to_string()))?;
        for _ in 0..rng.u32(1..6) {
            let policy = rng.usize(0..service.policies.len());
            let caller = rng.u32(0..CALLERS);
            for _ in 0..rng.u32(4..60) {
                if client.is_over() {
                    break;
                }
                let key = client.entrance.population().key(caller);
                let spent = Spend {
                    process: orders.number,
                    caller,
                    ..service.spend(&mut rng, policy, &key).await
                };
                say(&Line::Spend(spent))?;
                pause(&mut rng, LONGEST_PAUSE_US, spent.undecided > 0).await;
            }
        }
    }
    Ok(())
}

/// A service of the worker: a limiter whose policies are leased.
struct Service {
    policies: [LeasedPolicy; 3],
    limiter: Limiter,
    /// The number of requests that a block has decided.
    leased: Arc<AtomicU64>,
}

impl Service {
    fn of(backend: &RedisBackend, flaw: Option<Flaw>) -> Result<Self> {
        let policies = LeasedPolicy::all();
        let leased = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&leased);
        let mut limiter = Limiter::builder().observe(move |event: &Event<'_>| {
            if event.cause() == Cause::Leased {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        });
        for policy in policies {
            limiter = limiter.policy(policy.policy());
        }
        let limiter = match flaw {
            Some(Flaw::SpendsWhatItGaveBack) => limiter.backend(GenerousBackend(backend.clone())),
            _ => limiter.backend(backend.clone()),
        };
        Ok(Self {
            policies,
            limiter: limiter.build()?,
            leased,
        })
    }

    async fn spend(&self, rng: &mut Rng, policy: usize, key: &Key) -> Spend {
        let mut spent = Spend {
            process: 0,
            policy,
            caller: 0,
            from_us: now_us(),
            to_us: 0,
            passed: 0,
            leased: 0,
            denied: 0,
            undecided: 0,
        };
        let leased = self.leased.load(Ordering::Relaxed);
        for _ in 0..rng.u64(1..=MOST) {
            let check = self.limiter.check(self.policies[policy].name, key.clone());
            *match check.await {
                Ok(outcome) if outcome.is_allowed() => &mut spent.passed,
                Ok(_denied) => &mut spent.denied,
                Err(_unavailable) => &mut spent.undecided,
            } += 1;
            if spent.undecided > 0 {
                break;
            }
        }
        Spend {
            to_us: now_us(),
            leased: self.leased.load(Ordering::Relaxed) - leased,
            ..spent
        }
    }
}

/// The backend of a process that gives each block back as soon as it has it, and spends it all the same.
#[derive(Debug)]
struct GenerousBackend(RedisBackend);

impl Backend for GenerousBackend {
    fn decide(&self, call: Call<'_>) -> Answer<Decision> {
        let ([charge], Some(_)) = (call.charges, call.at_least) else {
            return self.0.decide(call);
        };
        let (backend, scope, quota) = (self.0.clone(), charge.scope, *charge.quota);
        let key = charge.key.clone();
        self.0.decide(call).map(move |answer| {
            let decision = answer?;
            let verdict = decision.verdicts().first();
            let receipt = verdict.and_then(|verdict| {
                let charge = Charge {
                    scope,
                    quota: &quota,
                    key: &key,
                    cost: verdict.taken(),
                    mode: Mode::Enforce,
                };
                Receipt::of(&charge, verdict, decision.at())
            });
            if let Some((receipt, verdict)) = receipt.zip(verdict) {
                backend.refund(receipt, verdict.taken());
            }
            Ok(decision)
        })
    }

    fn settle(&self, settlement: Settlement<'_>) {
        self.0.settle(settlement);
    }

    fn admin(&self) -> &dyn Admin {
        self.0.admin()
    }
}
