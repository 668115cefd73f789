//! Random calls of several charges, in all modes, with debits and credits between them: verdict by verdict.

use proptest::prelude::*;
use tollgate_core::{
    Algorithm, Call, Charge, Key, Mode, Outcome as Real, Receipt, RetryAfter, Scope, State, States,
    Timestamp, Verdict, decide,
};

use crate::oracle::call::{Answer, Ask, Outcome, World};
use crate::oracle::model::Slip;
use crate::support::budget::{Budget, receipt_of};
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Amount, Span, amounts, spans, starts};

/// The steps in a world of a few budgets. Budgets and receipts are named by numbers, modulo how many there are.
#[derive(Clone, Debug)]
enum Event {
    Wait(Span),
    Call(Vec<(usize, Amount, Mode)>),
    Debit(usize, Amount),
    Credit(usize, Amount),
    Reset(usize),
}

fn events() -> impl Strategy<Value = Event> {
    let cost = prop_oneof![
        8 => amounts(),
        1 => Just(Amount::Units(0)),
        1 => Just(Amount::Units(u64::MAX)),
    ];
    let modes = prop_oneof![
        4 => Just(Mode::Enforce),
        1 => Just(Mode::Shadow),
        1 => Just(Mode::Probe),
    ];
    prop_oneof![
        4 => spans().prop_map(Event::Wait),
        6 => prop::collection::vec((0_usize..4, cost, modes), 1..5).prop_map(Event::Call),
        1 => (0_usize..4, amounts()).prop_map(|(n, amount)| Event::Debit(n, amount)),
        2 => (any::<usize>(), amounts()).prop_map(|(n, amount)| Event::Credit(n, amount)),
        // All of it, as a request that is over does.
        2 => any::<usize>().prop_map(|n| Event::Credit(n, Amount::Units(u64::MAX))),
        1 => (0_usize..4).prop_map(Event::Reset),
    ]
}

/// The real budgets, found by the position of a charge in its call.
struct Shelf<'a> {
    states: &'a mut [State],
    of_charge: Vec<usize>,
}

impl States for Shelf<'_> {
    fn state(&mut self, index: usize) -> &mut State {
        &mut self.states[self.of_charge[index]]
    }
}

pub(crate) fn answer(verdict: &Verdict) -> Answer {
    Answer {
        outcome: match verdict.outcome() {
            Real::Allow => Outcome::Allow,
            Real::Deny(RetryAfter::Micros(us)) => Outcome::DenyFor(us),
            Real::Deny(RetryAfter::Unknown) => Outcome::DenyUntilGivenBack,
            Real::Deny(RetryAfter::Never) => Outcome::DenyForEver,
            other => panic!("the crate never says {other:?} by itself"),
        },
        limit: verdict.limit(),
        remaining: verdict.remaining(),
        reset_after_us: crate::support::budget::micros(verdict.reset_after()),
        taken: verdict.taken(),
    }
}

/// A receipt, its slip and its budget.
type Held = (usize, Receipt, Slip);

#[test]
fn every_verdict_of_every_call_is_what_the_oracle_says() {
    let worlds = (
        (
            quotas::any(),
            prop::collection::vec(
                prop_oneof![2 => quotas::any(), 1 => quotas::at_once()],
                0..4,
            ),
        )
            .prop_map(|(first, others)| [vec![first], others].concat()),
        starts(),
        prop::collection::vec(events(), 1..20),
    );
    check(1_500, &worlds, |(quotas, start, events)| {
        let key = Key::from("alice");
        let mut oracle = World::of(quotas.clone());
        let mut states: Vec<State> = quotas.iter().map(State::full).collect();
        let mut held: Vec<Held> = Vec::new();
        let mut credited_at = vec![None; quotas.len()];
        let mut now = start;
        for event in events {
            match event {
                Event::Wait(span) => now += span.micros(&quotas[0], now),
                Event::Call(asks) => {
                    let asks: Vec<Ask> = asks
                        .into_iter()
                        .map(|(n, amount, mode)| {
                            let budget = n % quotas.len();
                            let (quota, state) = (quotas[budget], states[budget].clone());
                            let cost = amount.units(&Budget { quota, state }, now);
                            Ask { budget, cost, mode }
                        })
                        .collect();
                    let charges: Vec<Charge<'_>> = asks
                        .iter()
                        .map(|ask| Charge {
                            scope: Scope::of(
                                "oracle",
                                u16::try_from(ask.budget).unwrap(),
                                &quotas[ask.budget],
                            ),
                            quota: &quotas[ask.budget],
                            key: &key,
                            cost: ask.cost,
                            mode: ask.mode,
                        })
                        .collect();
                    let mut shelf = Shelf {
                        states: &mut states.clone(),
                        of_charge: asks.iter().map(|ask| ask.budget).collect(),
                    };
                    let at = Timestamp::from_micros(now);

                    let decision = decide(at, Call::of(&charges), &mut shelf);
                    let (admitted, expected, slips) = oracle.decide(now, &asks);

                    let answers: Vec<Answer> = decision.verdicts().iter().map(answer).collect();
                    prop_assert_eq!(&answers, &expected, "at {}: {:?}", now, asks);
                    prop_assert_eq!(decision.is_admitted(), admitted);
                    let receipts: Vec<Receipt> = decision.receipts(&charges).collect();
                    prop_assert_eq!(receipts.len(), slips.len());
                    let takers = asks.iter().zip(&answers).filter(|(_, it)| it.taken > 0);
                    for (((ask, answer), receipt), slip) in takers.zip(receipts).zip(slips) {
                        prop_assert_eq!((receipt.cost(), receipt.at()), (answer.taken, at));
                        held.push((ask.budget, receipt, slip));
                    }
                    states = shelf.states.to_vec();
                }
                Event::Debit(n, amount) => {
                    let budget = n % quotas.len();
                    let (quota, state) = (quotas[budget], &mut states[budget]);
                    let peeked = Budget {
                        quota,
                        state: state.clone(),
                    };
                    let n = amount.units(&peeked, now).saturating_mul(3);
                    receipt_of(quota).debit_from(state, Timestamp::from_micros(now), n);
                    // A debit has no receipt, so that nothing is held by it.
                    if !quota.is_held() {
                        oracle.models[budget].take(now, n);
                    }
                }
                Event::Reset(n) => {
                    // Receipts of before are told by their time.
                    now += 1;
                    let budget = n % quotas.len();
                    if quotas[budget].is_held() {
                        states[budget] = State::full(&quotas[budget]);
                        oracle.models[budget].reset();
                    }
                }
                Event::Credit(which, amount) => {
                    // For a charge before the bucket's last credit the crate may return less than the plain rule. A separate
                    // property covers that.
                    held.retain(|(budget, receipt, _)| {
                        let is_bucket = quotas[*budget].algorithm() == Algorithm::Gcra;
                        !is_bucket || Some(receipt.at()) > credited_at[*budget]
                    });
                    if held.is_empty() {
                        continue;
                    }
                    let (budget, receipt, slip) = held.remove(which % held.len());
                    let n = amount.units(&Budget::full(quotas[budget]), now);
                    receipt.credit_to(&mut states[budget], Timestamp::from_micros(now), n);
                    oracle.models[budget].refund(now, &slip, n);
                    credited_at[budget] = Some(Timestamp::from_micros(now));
                }
            }
        }
        Ok(())
    });
}
