//! Random sequences of calls, against the rule itself.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::{Call, Charge, Key, MAX_CHARGES, Mode, Quota, Receipt, Scope, State, States};

use crate::{Subject, every_algorithm};

const SEQUENCES: u64 = 20;
const CALLS: u64 = 300;

/// One state for each scope and key, all full to begin with.
struct Model {
    scopes: Vec<(Scope, [Quota; 2])>,
    keys: Vec<Key>,
    states: Vec<State>,
}

/// The states of a call, by charge.
struct View<'a> {
    states: &'a mut [State],
    indices: Vec<usize>,
}

impl States for View<'_> {
    fn state(&mut self, index: usize) -> &mut State {
        &mut self.states[self.indices[index]]
    }
}

impl Model {
    fn new(sequence: u64) -> Self {
        let period = Duration::from_millis(1000);
        let quotas = every_algorithm(10, period).into_iter();
        // Its states are those of GCRA, and so it has a name of its own.
        let warming = |limit| Quota::new(limit, period).warm_up(2 * period);
        let scopes: Vec<_> = quotas
            .zip(every_algorithm(17, period))
            .chain([(warming(10), warming(17).cold_factor(5))])
            .zip(0..)
            .map(|((narrow, wide), slot)| {
                let policy = format!("model-{sequence}");
                (Scope::of(&policy, slot, &narrow), [narrow, wide])
            })
            .collect();
        let keys = vec![Key::from(1_u64), Key::from("a key of more than a word")];
        let states = scopes
            .iter()
            .flat_map(|(_, [quota, _])| keys.iter().map(|_| State::full(quota)))
            .collect();
        Self {
            scopes,
            keys,
            states,
        }
    }

    fn index(&self, scope: Scope, key: &Key) -> usize {
        let scope = self.scopes.iter().position(|(other, _)| *other == scope);
        let key = self.keys.iter().position(|other| other == key);
        scope.unwrap() * self.keys.len() + key.unwrap()
    }
}

/// Each call has several charges of every mode and algorithm, in two tiers. Credits, debits and resets come in between. Time
/// stands still or moves by anything from a microsecond to several periods.
pub async fn any_sequence_of_calls_is_decided_as_the_model_does(subject: &dyn Subject) {
    let backend = subject.backend();
    for sequence in 0..SEQUENCES {
        let seed = RandomState::new().hash_one(sequence);
        let mut dice = Dice(seed);
        // A name of this run alone, because a server may remember earlier ones.
        let mut model = Model::new(seed);
        let mut receipts: Vec<Receipt> = Vec::new();

        for step in 0..CALLS {
            let context = format!("seed {seed}, step {step}");
            let pause = [0, 0, 1, 1000, 70_000, 300_000, 2_500_000][dice.below(7)];
            subject
                .advance(Duration::from_micros(pause + dice.upto(3)))
                .await;

            let most = [1, 1, 3, 6, MAX_CHARGES][dice.below(5)];
            let picks: Vec<_> = (0..=dice.below(most))
                .map(|_| {
                    let scope = dice.below(model.scopes.len());
                    let tier = usize::from(dice.below(5) == 0);
                    let cost = [0, 1, 1, 1, 2, 5, 11, 40][dice.below(8)];
                    let mode = [Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Probe];
                    (scope, tier, dice.below(2), cost, mode[dice.below(4)])
                })
                .collect();
            let charges: Vec<_> = picks
                .iter()
                .map(|&(scope, tier, key, cost, mode)| Charge {
                    scope: model.scopes[scope].0,
                    quota: &model.scopes[scope].1[tier],
                    key: &model.keys[key],
                    cost,
                    mode,
                })
                .collect();

            let decision = backend.decide(Call::of(&charges)).await.unwrap();
            let indices = picks.iter().map(|pick| pick.0 * 2 + pick.2).collect();
            let mut view = View {
                states: &mut model.states,
                indices,
            };
            let expected = tollgate_core::decide(decision.at(), Call::of(&charges), &mut view);

            assert_eq!(decision, expected, "{context}: {charges:?}");
            receipts.extend(decision.receipts(&charges));
            if !receipts.is_empty() {
                let receipt = receipts.swap_remove(dice.below(receipts.len()));
                let index = model.index(receipt.scope(), receipt.key());
                match dice.below(8) {
                    0 | 1 => {
                        let n = dice.upto(6);
                        receipt.credit_to(&mut model.states[index], decision.at(), n);
                        backend.refund(receipt, n);
                    }
                    2 => {
                        // Some backends do nothing for a debit of nothing, and others round a foreign rest up to a microsecond.
                        let n = 1 + dice.upto(29);
                        receipt.debit_from(&mut model.states[index], decision.at(), n);
                        backend.debit(&receipt, n);
                    }
                    3 => {
                        model.states[index] = State::full(receipt.quota());
                        let (scope, key) = (receipt.scope(), receipt.key());
                        backend.admin().reset(scope, key).await.unwrap();
                        // Receipts lose their meaning.
                        receipts.retain(|other| (other.scope(), other.key()) != (scope, key));
                    }
                    _ => receipts.push(receipt),
                }
                subject.settle().await;
            }
        }
    }
}

/// SplitMix64: small, and the same sequence for a seed on every machine.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn upto(&mut self, most: u64) -> u64 {
        self.next() % (most + 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }
}
