//! The charges of one policy for the messages of a call, with the part that is left.

use std::sync::Arc;

use tollgate_core::{Key, Mode, Receipt, Timestamp, Verdict};
use tollgate_limiter::transport::Limit;
use tollgate_limiter::{Limiter, Messages, Policy, PolicyVerdict};

use super::amount::Amount;

/// One policy's account.
#[derive(Debug)]
pub(super) struct Account {
    messages: Messages,
    mode: Mode,
    /// The cost of each message, or byte.
    cost: u64,
    /// The capacity of the policy's smallest full budget.
    capacity: u64,
    /// The units that were taken and not spent.
    ahead: u64,
    /// The receipt of the last charge, of which `ahead` is a part.
    receipts: Vec<Receipt>,
    /// The units to take at once.
    block: u64,
    /// The units to spend now, the missing part of them, and the units that were asked for.
    need: u64,
    lack: u64,
    asked: u64,
}

/// The most messages, or bytes, that are taken ahead.
const MOST_MESSAGES: u64 = 256;
const MOST_BYTES: u64 = 256 * 1024;

/// The largest part of a full budget that is taken ahead. Other streams have to do without it.
const PART_OF_BUDGET: u64 = 16;

impl Account {
    /// `None` if the policy charges no messages.
    pub(super) fn new(policy: &Policy, limits: &[Limit], cost: u64) -> Option<Self> {
        let capacities = limits.iter().map(|limit| limit.quota.capacity());
        Some(Self {
            messages: policy.messages()?,
            mode: policy.mode(),
            cost,
            capacity: capacities.min().unwrap_or(u64::MAX),
            ahead: 0,
            receipts: Vec::new(),
            block: 0,
            need: 0,
            lack: 0,
            asked: 0,
        })
    }

    /// The most bytes that a full budget could pay for, if bytes are charged. It is at least one: the backend finds out what can
    /// never pass.
    pub(super) fn most_bytes(&self) -> Option<u64> {
        let bytes = self.capacity / self.cost.max(1);
        self.messages.count_bytes().then_some(bytes.max(1))
    }

    /// True if the first excess is the end.
    pub(super) fn ends(&self) -> bool {
        self.is_enforced() && self.messages.excess_ends()
    }

    fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// Computes the units to ask for: the missing ones, or a block if units are taken ahead.
    pub(super) fn ask(&mut self, amount: Amount, ahead: bool) {
        let units = if self.messages.count_bytes() {
            amount.bytes
        } else {
            amount.messages
        };
        self.need = units.saturating_mul(self.cost);
        self.lack = self.need.saturating_sub(self.ahead);
        self.asked = match self.lack {
            0 => 0,
            lack if ahead => lack.max(self.block),
            lack => lack,
        };
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    pub(super) fn has_enough(&self) -> bool {
        self.asked == 0
    }

    /// True if more was asked for than is missing.
    pub(super) fn asked_ahead(&self) -> bool {
        self.asked > self.lack
    }

    /// Asks for at most this next time, or for the missing units if that is too little.
    pub(super) fn content_with(&mut self, most: u64) {
        self.block = self.block.min(most);
    }

    /// The cost that would have passed, if it covers the missing units. A policy on trial holds nothing back.
    pub(super) fn could_do_with(&self, verdicts: &[Verdict]) -> Option<u64> {
        if !self.is_enforced() {
            return Some(u64::MAX);
        }
        let remaining = verdicts.iter().map(Verdict::remaining).min()?;
        (remaining >= self.lack).then_some(remaining)
    }

    /// Books the units that were asked for, after they were taken.
    pub(super) fn take(
        &mut self,
        key: &Key,
        limits: &[Limit],
        verdicts: &[Verdict],
        at: Timestamp,
    ) {
        if self.asked_ahead() {
            let receipts = limits.iter().zip(verdicts).filter_map(|(limit, verdict)| {
                let label = Arc::clone(&limit.label);
                PolicyVerdict::new(label, self.mode, *verdict, Some(at)).receipt(key)
            });
            self.receipts = receipts.collect();
        }
        self.take_on_trust();
    }

    /// Books units that no backend has taken, and that need no credit.
    pub(super) fn take_on_trust(&mut self) {
        if self.asked == 0 {
            return;
        }
        self.ahead += self.asked;
        let most = if self.messages.count_bytes() {
            MOST_BYTES
        } else {
            MOST_MESSAGES
        };
        let most = most
            .saturating_mul(self.cost)
            .min(self.capacity / PART_OF_BUDGET);
        self.block = self.asked.saturating_mul(2).min(most);
    }

    /// Spends the units, because the message passes.
    pub(super) fn spend(&mut self) {
        self.ahead = self.ahead.saturating_sub(self.need);
    }

    /// Nothing more will pass.
    pub(super) fn close(&mut self, limiter: &Limiter) {
        for receipt in self.receipts.drain(..) {
            let left = self.ahead.min(receipt.cost());
            limiter.refund(receipt, left);
        }
        self.ahead = 0;
    }
}
