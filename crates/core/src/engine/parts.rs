//! The parts of a call: its charges, and what each makes of the others.

use smallvec::SmallVec;

use super::states::States;
use crate::algorithm::{Budget, Passage, Point, Step};
use crate::{Charge, Decision, Mode, Quota, Timestamp, Verdict};

/// Says whether a passing charge of this mode is taken.
#[inline]
pub(super) fn takes(mode: Mode, is_admitted: bool) -> bool {
    match mode {
        Mode::Enforce => is_admitted,
        Mode::Shadow => true,
        Mode::Probe => false,
    }
}

/// The verdict on a charge by the step that it took.
#[inline(always)]
pub(super) fn verdict(
    quota: &Quota,
    mode: Mode,
    (passage, full_at, budget): Step,
    taken: u64,
) -> Verdict {
    Verdict::new(mode, passage, quota.capacity(), budget, taken, full_at)
}

const NO_STEP: Step = {
    let budget = Budget {
        remaining: 0,
        reset_after_us: 0,
    };
    (Passage::Open, Point::ZERO, budget)
};

/// A charge as the others of its call leave it.
struct Part<'a> {
    charge: &'a Charge<'a>,
    /// 0 if its request is a replay.
    cost: u64,
    /// A probe for a shadow charge whose caller is banned in shadow mode.
    mode: Mode,
    /// True for a ban in force, and for an idempotency key that is replayed.
    is_in_force: bool,
    takes: bool,
    /// The number of the first budget with this state and in this mode: they take one step together.
    first: usize,
    /// The cost of that step.
    total: u64,
    step: Step,
}

impl<'a> Part<'a> {
    fn new(number: usize, charge: &'a Charge<'a>) -> Self {
        Self {
            charge,
            cost: charge.cost,
            mode: charge.mode,
            is_in_force: false,
            takes: false,
            first: number,
            total: 0,
            step: NO_STEP,
        }
    }

    fn is_budget(&self) -> bool {
        !self.charge.quota.is_ban() && !self.charge.quota.is_once()
    }
}

/// A call under way.
struct CallParts<'s, 'a, S: ?Sized> {
    now_us: u64,
    parts: SmallVec<[Part<'a>; 4]>,
    states: &'s mut S,
    /// True if two parts have one state.
    shares_states: bool,
}

#[inline(never)]
pub(super) fn decide(
    now: Timestamp,
    charges: &[Charge<'_>],
    states: &mut (impl States + ?Sized),
) -> Decision {
    let numbered = charges.iter().enumerate();
    let mut call = CallParts {
        now_us: now.as_micros(),
        parts: numbered
            .map(|(number, charge)| Part::new(number, charge))
            .collect(),
        states,
        shares_states: false,
    };
    let has_others = !call.parts.iter().all(Part::is_budget);
    let is_banned = has_others && call.ask_bans_and_ids();
    call.join();
    let is_admitted = call.take(!is_banned);
    let mut verdicts: SmallVec<[Verdict; 2]> = (0..charges.len())
        .map(|number| call.budget_verdict(number))
        .collect();
    if has_others {
        call.judge_bans(&mut verdicts, is_admitted, is_banned);
        call.judge_ids(&mut verdicts, is_admitted);
    }
    Decision::of_several(now, is_admitted, verdicts)
}

impl<S: States + ?Sized> CallParts<'_, '_, S> {
    /// Asks bans and idempotency keys, which change what budgets are asked. Says whether an enforced ban is in force.
    fn ask_bans_and_ids(&mut self) -> bool {
        for (number, part) in self.parts.iter_mut().enumerate() {
            let (rule, cost) = (part.charge.quota.rule(), part.cost);
            part.is_in_force = !part.is_budget() && {
                let state = self.states.state(number);
                if part.charge.quota.is_ban() {
                    rule.passage(state, self.now_us, cost) != Passage::Open
                } else {
                    cost > 0 && rule.is_replay(state, self.now_us)
                }
            };
        }
        for number in 0..self.parts.len() {
            let charge = self.parts[number].charge;
            let in_force = || self.parts.iter().filter(|part| part.is_in_force);
            let is_replayed = in_force().any(|id| id.charge.is_id_of(charge));
            let is_banned_in_shadow =
                in_force().any(|ban| ban.mode == Mode::Shadow && ban.charge.guards(charge));
            let part = &mut self.parts[number];
            if is_replayed {
                part.cost = 0;
            }
            if is_banned_in_shadow && part.mode == Mode::Shadow && part.is_budget() {
                part.mode = Mode::Probe;
            }
        }
        let mut bans = self.parts.iter().filter(|part| part.charge.quota.is_ban());
        bans.any(|ban| ban.is_in_force && ban.mode == Mode::Enforce)
    }

    /// The numbers of the parts whose quotas are such.
    fn numbers_of(&self, is_such: fn(&Quota) -> bool) -> SmallVec<[usize; 4]> {
        let parts = self.parts.iter().enumerate();
        let such = parts.filter(|(_, part)| is_such(part.charge.quota));
        such.map(|(number, _)| number).collect()
    }

    /// Joins the budgets of one state and mode, and sums their costs up.
    fn join(&mut self) {
        for number in 0..self.parts.len() {
            let (before, rest) = self.parts.split_at_mut(number);
            let Some(part) = rest.first_mut() else {
                continue;
            };
            part.total = part.cost;
            for (first, other) in before.iter_mut().enumerate() {
                if other.charge.shares_state_with(part.charge) {
                    self.shares_states = true;
                    if other.mode == part.mode {
                        part.first = first;
                        other.total = other.total.saturating_add(part.cost);
                        break;
                    }
                }
            }
        }
    }

    /// Takes the budgets, each mode after the one before. Says whether the call is admitted.
    fn take(&mut self, may_admit: bool) -> bool {
        let now_us = self.now_us;
        let enforced = |(number, part): &(usize, &mut Part<'_>)| {
            part.mode == Mode::Enforce && part.is_budget() && part.first == *number
        };
        let is_admitted = may_admit
            && self
                .parts
                .iter_mut()
                .enumerate()
                .filter(enforced)
                .all(|(number, part)| {
                    let rule = part.charge.quota.rule();
                    rule.passage(self.states.state(number), now_us, part.total)
                        .passes()
                });
        for mode in [Mode::Enforce, Mode::Shadow, Mode::Probe] {
            for (number, part) in self.parts.iter_mut().enumerate() {
                if part.mode == mode && part.is_budget() && part.first == number {
                    part.takes = takes(mode, is_admitted);
                    let (rule, state) = (part.charge.quota.rule(), self.states.state(number));
                    part.step = match rule.quick_step(state, now_us, part.total, part.takes) {
                        Some(step) => step,
                        None => rule.step(state, now_us, part.total, part.takes),
                    };
                }
            }
        }
        if !is_admitted && self.shares_states {
            // A shadow may have taken from the budget that an enforced charge waits for. The enforced charge's wait must be true
            // of what is left.
            for (number, part) in self.parts.iter_mut().enumerate().filter(enforced) {
                let rule = part.charge.quota.rule();
                part.step.0 = rule.passage(self.states.state(number), now_us, part.total);
            }
        }
        is_admitted
    }

    /// The verdict on a budget. That on a ban or an idempotency key replaces what this returns for it.
    fn budget_verdict(&mut self, number: usize) -> Verdict {
        let part = &self.parts[number];
        let (quota, mode, first) = (part.charge.quota, part.mode, &self.parts[part.first]);
        let (taken, mut step) = (if first.takes { part.cost } else { 0 }, first.step);
        if self.shares_states {
            let (rule, state) = (quota.rule(), self.states.state(number));
            // The rest that the others have left, seen by this quota. This brings the state to now and has no other effect.
            rule.passage(state, self.now_us, 0);
            step.2 = rule.budget(state, self.now_us);
            // Charges that wait drain one behind the other, so that two of them that are withdrawn free two stretches.
            let next = first.charge.quota.rule().earlier(step.1, taken);
            let first = part.first;
            self.parts[first].step.1 = next;
        }
        verdict(quota, mode, step, taken)
    }

    /// Counts the call under each ban: a request while it is in force, a strike that is charged, or a denial of what it guards.
    fn judge_bans(&mut self, verdicts: &mut [Verdict], is_admitted: bool, is_banned: bool) {
        let strikes = |mode| mode != Mode::Probe && (mode != Mode::Enforce || !is_banned);
        for number in self.numbers_of(Quota::is_ban) {
            let part = &self.parts[number];
            let (ban, mode, is_in_force) = (part.charge, part.mode, part.is_in_force);
            let mut guarded = self.parts.iter().zip(&*verdicts);
            let is_struck = strikes(mode)
                && !is_in_force
                && guarded.any(|(part, verdict)| {
                    let is_guarded = part.is_budget() && ban.guards(part.charge);
                    is_guarded && strikes(part.mode) && verdict.is_denied()
                });
            let counts = takes(mode, is_admitted) || is_in_force && mode != Mode::Probe;
            let (rule, state) = (ban.quota.rule(), self.states.state(number));
            let mut step = rule.step(state, self.now_us, ban.cost, counts);
            let takes = counts && step.0 == Passage::Open;
            if is_struck {
                rule.strike(state, self.now_us);
                step.0 = rule.passage(state, self.now_us, ban.cost);
                step.2 = rule.budget(state, self.now_us);
            }
            let taken = if takes { ban.cost } else { 0 };
            verdicts[number] = verdict(ban.quota, mode, step, taken);
        }
    }

    /// Remembers each idempotency key whose charges pass, or counts a replay of it.
    fn judge_ids(&mut self, verdicts: &mut [Verdict], is_admitted: bool) {
        for number in self.numbers_of(Quota::is_once) {
            let part = &self.parts[number];
            let (id, mode, is_replayed) = (part.charge, part.mode, part.is_in_force);
            let mut others = self.parts.iter().zip(&*verdicts);
            let passes = match mode {
                Mode::Enforce => is_admitted,
                Mode::Shadow => others
                    .all(|(part, verdict)| !id.is_id_beside(part.charge) || verdict.is_allowed()),
                Mode::Probe => false,
            };
            let (rule, state) = (id.quota.rule(), self.states.state(number));
            if passes && is_replayed {
                rule.replay(state);
            }
            let takes = id.cost > 0 && passes && !is_replayed;
            let step = rule.step(state, self.now_us, id.cost, takes);
            let taken = if takes { id.cost } else { 0 };
            verdicts[number] = verdict(id.quota, mode, step, taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Call, Charge, Decision, Key, Mode, Once, Quota, Scope, State, Timestamp, decide};

    /// An order of this cost with an id of this cost, beside another policy's charge, all in one mode.
    fn order(states: &mut [State; 3], mode: Mode, cost: u64, other: u64, id: u64) -> Decision {
        let (quota, once) = (Quota::per_day(2), Quota::from(Once::default()));
        let key = Key::from("alice");
        let charge = |policy, quota, cost| Charge {
            scope: Scope::of(policy, 0, quota),
            quota,
            key: &key,
            cost,
            mode,
        };
        let charges = [
            charge("orders", &quota, cost),
            charge("exports", &quota, other),
            charge("orders", &once, id),
        ];
        decide(
            Timestamp::from_micros(1_000),
            Call::of(&charges),
            &mut states[..],
        )
    }

    fn unused() -> [State; 3] {
        let quota = Quota::per_day(2);
        let once = Quota::from(Once::default());
        [&quota, &quota, &once].map(State::full)
    }

    #[test]
    fn a_question_about_an_id_spares_no_budget_and_is_not_remembered() {
        let mut states = unused();
        order(&mut states, Mode::Enforce, 0, 0, 0);
        assert_eq!(
            order(&mut states, Mode::Enforce, 1, 0, 1).verdicts()[0].taken(),
            1
        );

        assert_eq!(
            order(&mut states, Mode::Enforce, 1, 0, 0).verdicts()[0].taken(),
            1
        );

        let replay = order(&mut states, Mode::Enforce, 1, 0, 1);
        assert!(replay.is_admitted());
        assert_eq!(
            (
                replay.verdicts()[0].taken(),
                replay.verdicts()[2].remaining()
            ),
            (0, 1)
        );
    }

    #[test]
    fn on_trial_an_id_is_remembered_if_the_charges_of_its_own_policy_pass() {
        for (cost, other, is_remembered) in [(1, 1, true), (1, 3, true), (3, 1, false)] {
            let mut states = unused();

            let first = order(&mut states, Mode::Shadow, cost, other, 1);

            assert_eq!(first.verdicts()[2].taken(), u64::from(is_remembered));
            let again = order(&mut states, Mode::Shadow, 1, 0, 1);
            assert_eq!(again.verdicts()[0].taken(), u64::from(!is_remembered));
        }
    }

    #[test]
    fn a_replay_that_another_policy_denies_is_not_counted() {
        let mut states = unused();
        order(&mut states, Mode::Enforce, 1, 0, 1);

        let denied = order(&mut states, Mode::Enforce, 1, 3, 1);

        assert!(!denied.is_admitted());
        assert_eq!(denied.verdicts()[2].remaining(), 2);
    }
}
