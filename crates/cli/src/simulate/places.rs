//! Requests under way: under each policy that limits how many, the most at one time that the log has. Those that the policy refuses
//! count as well, for as long as they took: so many places the callers wanted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::RandomState;
use tollgate::Key;

/// Counts of all policies.
#[derive(Debug, Default)]
pub(super) struct Places {
    policies: Vec<OfPolicy>,
    /// The end of each request under way, its policy and the place of its caller there.
    ends: BinaryHeap<Reverse<(u64, usize, usize)>>,
}

/// Counts of one policy.
#[derive(Debug, Default)]
struct OfPolicy {
    callers: HashMap<Key, usize, RandomState>,
    /// By caller.
    under_way: Vec<u64>,
    all: u64,
    most: Peak,
    most_of_one: Peak,
    /// The place of the caller with the most.
    by: usize,
}

/// The most requests under way, and the first time at which they were so many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) requests: u64,
    pub(super) at_us: u64,
}

impl Peak {
    fn rise(&mut self, requests: u64, at_us: u64) -> bool {
        let rises = requests > self.requests;
        if rises {
            *self = Self { requests, at_us };
        }
        rises
    }
}

impl Places {
    /// Counts a request of a caller from a time on.
    pub(super) fn count(&mut self, policy: usize, caller: &Key, at_us: u64, duration_us: u64) {
        while let Some(Reverse((_, policy, caller))) = self.next_end(at_us) {
            let of = &mut self.policies[policy];
            of.all -= 1;
            of.under_way[caller] -= 1;
        }
        if self.policies.len() <= policy {
            self.policies.resize_with(policy + 1, OfPolicy::default);
        }
        let of = &mut self.policies[policy];
        let known = of.callers.get(caller).copied();
        let place = known.unwrap_or(of.under_way.len());
        if known.is_none() {
            of.callers.insert(caller.clone(), place);
            of.under_way.push(0);
        }
        of.all += 1;
        of.under_way[place] += 1;
        of.most.rise(of.all, at_us);
        if of.most_of_one.rise(of.under_way[place], at_us) {
            of.by = place;
        }
        let end_us = at_us.saturating_add(duration_us);
        self.ends.push(Reverse((end_us, policy, place)));
    }

    fn next_end(&mut self, until_us: u64) -> Option<Reverse<(u64, usize, usize)>> {
        let is_over = self.ends.peek().is_some_and(|next| next.0.0 <= until_us);
        if is_over { self.ends.pop() } else { None }
    }

    /// The policies that limit how many, each with its peak, that of one caller, and the caller.
    pub(super) fn peaks(&self) -> impl Iterator<Item = (usize, Peak, Peak, Option<&Key>)> {
        let policies = self.policies.iter().enumerate();
        let counted = policies.filter(|(_, of)| of.most.requests > 0);
        counted.map(|(policy, of)| {
            let mut callers = of.callers.iter();
            let by = callers.find(|(_, place)| **place == of.by);
            (policy, of.most, of.most_of_one, by.map(|(key, _)| key))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_of_the_times_at_which_requests_overlap() {
        let (alice, bob) = (Key::from("alice"), Key::from("bob"));
        let mut places = Places::default();
        for (caller, at_us, duration_us) in [
            (&alice, 0, 100),
            (&bob, 50, 50),
            // Both have ended at this very time.
            (&bob, 100, 10),
            (&alice, 105, 50),
            (&bob, 109, 10),
            (&bob, 110, 0),
        ] {
            places.count(1, caller, at_us, duration_us);
        }

        let peaks: Vec<_> = places.peaks().collect();

        let [(1, most, of_one, Some(by))] = peaks[..] else {
            panic!("{peaks:?}");
        };
        assert_eq!((most.requests, most.at_us), (3, 109));
        assert_eq!((of_one.requests, of_one.at_us, by), (2, 109, &bob));
    }
}
