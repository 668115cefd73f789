//! The blocks of one budget that one process has, and the question when it needs another.

use std::cmp;
use std::time::Duration;

use smallvec::SmallVec;

use super::Lease;
use super::demand::Demand;
use crate::algorithm::Rule;
use crate::{Charge, Decision, Key, Mode, Quota, Receipt, Scope, Timestamp, Verdict};

/// The part of a time by which the server's clock may run ahead of ours: a thousandth. NTP slews each of the two by at most half of
/// that.
const DRIFT: u64 = 1_000;

/// The requests in two times of the lease from which on a block is worth its calls: one to ask for it, and mostly another to give
/// its rest back. With five, calls per decision are 1.05 at most, at thirteen requests a second and leases of 100 ms, and 0.77 at
/// thirty. With two within one time they were 1.33 at seven and 0.71 at thirty; with four within one time, 1.03 and 0.83.
const ENOUGH: u64 = 5;

/// The blocks of one budget that this process has leased, without a clock and without a backend: both are the caller's.
///
/// Times are microseconds of a clock of this process that never steps back. The caller spends from the blocks while they have
/// units, asks the backend for each amount that [`to_ask`](Self::to_ask) names, and tells what came of it. What is left of a block
/// at its end is taken out by [`take_ended`](Self::take_ended), to be credited.
#[derive(Debug)]
pub struct Blocks {
    scope: Scope,
    key: Key,
    quota: Quota,
    lease: Lease,
    blocks: SmallVec<[Block; 2]>,
    demand: Demand,
    /// The time of the lease.
    time_us: u64,
    /// The time from a question to its answer, as it was last.
    lag_us: u64,
    asking: Option<Asking>,
    /// Nothing is asked before this.
    rests_until_us: u64,
    /// The cost of the last request: a smaller block serves none.
    last_cost: u64,
    questions: u64,
}

#[derive(Debug)]
struct Block {
    number: u64,
    /// The verdict of the backend on it.
    verdict: Verdict,
    at: Timestamp,
    rest: u64,
    ends_us: u64,
}

/// A question to the backend that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Asking {
    number: u64,
    asked_at_us: u64,
}

/// The part of a block that one charge took.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The verdict on the charge. Its remaining budget is what this process still has, so that others may find more.
    pub verdict: Verdict,
    /// The server's time at which the block was taken from the budget.
    pub at: Timestamp,
    block: u64,
}

impl Part {
    /// The decision on a call of this part alone.
    #[must_use]
    #[inline]
    pub fn alone(self) -> Decision {
        Decision::of_one(self.at, Mode::Shadow, self.verdict).known()
    }
}

impl Blocks {
    /// No blocks yet of the budget of this charge. The questions are numbered from `number` on, so that no part is mistaken for one
    /// of an earlier owner's block.
    #[must_use]
    pub fn new(charge: &Charge<'_>, lease: &Lease, now_us: u64, number: u64) -> Self {
        let most = cmp::min(lease.most(), charge.quota.capacity());
        Self {
            scope: charge.scope,
            key: charge.key.compact_clone(),
            quota: *charge.quota,
            lease: *lease,
            blocks: SmallVec::new(),
            demand: Demand::new(lease.time_us(), most, now_us),
            time_us: lease.time_us(),
            lag_us: 0,
            asking: None,
            rests_until_us: 0,
            last_cost: 1,
            questions: number,
        }
    }

    /// Says whether they are of the state of this charge, whatever its quota.
    #[must_use]
    pub fn are_of(&self, scope: Scope, key: &Key) -> bool {
        self.scope == scope && self.key == *key
    }

    /// Says whether charges of this one's quota are spent from them, by these terms.
    #[must_use]
    #[inline]
    pub fn are_for(&self, charge: &Charge<'_>, lease: &Lease) -> bool {
        self.are_of(charge.scope, charge.key) && self.quota == *charge.quota && self.lease == *lease
    }

    /// Spends what a charge of the budget costs, at once; `None` if no block has as much, so that the backend decides. Either way
    /// the process has needed it.
    #[inline]
    pub fn spend(&mut self, charge: &Charge<'_>, now_us: u64) -> Option<Part> {
        self.demand.want(now_us, charge.cost);
        self.last_cost = charge.cost;
        let mut blocks = self.blocks.iter_mut();
        let block = blocks.find(|block| now_us < block.ends_us && charge.cost <= block.rest)?;
        block.rest -= charge.cost;
        let (number, verdict, at) = (block.number, block.verdict, block.at);
        let left = self.left(now_us);
        Some(Part {
            verdict: verdict.of_part(charge, left),
            at,
            block: number,
        })
    }

    /// Gives back a part that was not needed after all. False if its block is gone: then it is credited like any other charge.
    #[must_use]
    pub fn unspend(&mut self, part: &Part) -> bool {
        let mut blocks = self.blocks.iter_mut();
        let block = blocks.find(|block| block.number == part.block);
        if let Some(block) = block {
            block.rest += part.verdict.taken();
            return true;
        }
        false
    }

    /// The units that are left in all blocks.
    #[inline]
    fn left(&self, now_us: u64) -> u64 {
        let blocks = self.blocks.iter();
        let live = blocks.filter(|block| now_us < block.ends_us);
        live.map(|block| block.rest).sum()
    }

    /// The amount to ask the backend for now, with the number of the question; mostly `None`. Its answer is told to
    /// [`granted`](Self::granted), [`refused`](Self::refused) or [`failed`](Self::failed), and until then nothing else is asked.
    #[inline]
    pub fn to_ask(&mut self, now_us: u64) -> Option<(u64, u64)> {
        if self.asking.is_some() || now_us < self.rests_until_us {
            return None;
        }
        // A block is there before it is needed: by twice the time that the last one took, and an eighth of the lease at least.
        let lead_us = (2 * self.lag_us).clamp(self.time_us / 8, self.time_us / 2);
        let needed = u128::from(self.demand.of_a_stretch());
        let left = u128::from(self.left(now_us + lead_us)) * u128::from(self.time_us);
        // If the terms allow less than the demand, half of them is used while the other half comes.
        let half = u128::from(self.demand.most() / 2) * u128::from(self.time_us);
        if left > half || left > needed * u128::from(lead_us) {
            return None;
        }
        self.ask_for(now_us, needed * u128::from(self.time_us - lead_us))
    }

    /// Asks for the units that are needed, times the time of the lease.
    fn ask_for(&mut self, now_us: u64, needed: u128) -> Option<(u64, u64)> {
        let needed = needed.div_ceil(u128::from(self.time_us));
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        let held: u64 = self.blocks.iter().map(|block| block.rest).sum();
        let allowance = cmp::min(
            self.demand.allowance(),
            self.demand.most().saturating_sub(held),
        );
        let amount = cmp::min(needed, allowance);
        // A block for one request alone would save no call, and one for a quiet caller comes back.
        let is_large = amount >= self.last_cost.saturating_mul(2);
        let is_needed = self.demand.of_two_stretches() >= self.last_cost.saturating_mul(ENOUGH);
        if !is_large || !is_needed {
            return None;
        }
        self.questions = self.questions.wrapping_add(1);
        self.asking = Some(Asking {
            number: self.questions,
            asked_at_us: now_us,
        });
        Some((self.questions, amount))
    }

    /// The backend granted a block. Returns what of it is more than half of what was left, to be credited.
    pub fn granted(
        &mut self,
        number: u64,
        now_us: u64,
        verdict: Verdict,
        at: Timestamp,
    ) -> Option<(Receipt, u64)> {
        let asking = self.answered(number)?;
        self.lag_us = now_us.saturating_sub(asking.asked_at_us);
        self.demand.told(verdict.remaining());
        let taken = verdict.taken();
        let half = (taken.saturating_add(verdict.remaining()) / 2).max(1);
        let rest = cmp::min(taken, half);
        // A window's budget is full again when the window ends.
        let time_us = match self.quota.rule() {
            Rule::FixedWindow(_) | Rule::Calendar(_) => {
                cmp::min(self.time_us, micros(verdict.reset_after()))
            }
            _ => self.time_us,
        };
        self.blocks.push(Block {
            number,
            verdict,
            at,
            rest,
            ends_us: asking.asked_at_us + (time_us - time_us.div_ceil(DRIFT)),
        });
        if taken > rest {
            let receipt = self.receipt(&verdict, at)?;
            return Some((receipt, taken - rest));
        }
        None
    }

    /// The backend granted nothing.
    pub fn refused(&mut self, number: u64, verdict: &Verdict) {
        if self.answered(number).is_some() {
            self.demand.denied(verdict.remaining());
        }
    }

    /// The backend did not answer. It is not asked again for the time of a lease.
    pub fn failed(&mut self, number: u64, now_us: u64) {
        if self.answered(number).is_some() {
            self.rests_until_us = now_us.saturating_add(self.time_us);
        }
    }

    fn answered(&mut self, number: u64) -> Option<Asking> {
        self.asking.take_if(|asking| asking.number == number)
    }

    /// The backend decided about a charge of this budget by itself.
    pub fn decided(&mut self, verdict: &Verdict) {
        if verdict.is_denied() {
            self.demand.denied(verdict.remaining());
        } else {
            self.demand.told(verdict.remaining());
        }
    }

    /// The time at which the block that this question brought ends, if there is one.
    #[must_use]
    pub fn end_us_of(&self, number: u64) -> Option<u64> {
        let mut blocks = self.blocks.iter();
        let block = blocks.find(|block| block.number == number);
        block.map(|block| block.ends_us)
    }

    /// Takes out what is left of the blocks that have ended, to be credited.
    pub fn take_ended(&mut self, now_us: u64) -> SmallVec<[(Receipt, u64); 1]> {
        self.take_those(|block| block.ends_us <= now_us)
    }

    /// Takes out what is left of all blocks, to be credited.
    pub fn take_all(&mut self) -> SmallVec<[(Receipt, u64); 1]> {
        self.take_those(|_| true)
    }

    fn take_those(&mut self, are_taken: impl Fn(&Block) -> bool) -> SmallVec<[(Receipt, u64); 1]> {
        let mut taken: SmallVec<[Block; 2]> = SmallVec::new();
        while let Some(place) = self.blocks.iter().position(&are_taken) {
            taken.push(self.blocks.remove(place));
        }
        let rests = taken.iter().filter(|block| block.rest > 0);
        rests
            .filter_map(|block| Some((self.receipt(&block.verdict, block.at)?, block.rest)))
            .collect()
    }

    /// Says whether there is neither a block nor a question, and no request has come for two times of the lease.
    #[must_use]
    pub fn are_idle(&self, now_us: u64) -> bool {
        self.blocks.is_empty() && self.asking.is_none() && self.demand.is_over(now_us)
    }

    /// The receipt of the block of this verdict.
    fn receipt(&self, verdict: &Verdict, at: Timestamp) -> Option<Receipt> {
        let charge = Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost: verdict.taken(),
            mode: Mode::Enforce,
        };
        Receipt::of(&charge, verdict, at)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
