//! Who waits for a node, in the order in which calls take them along.

use std::collections::{BTreeMap, VecDeque};

use crate::job::{Job, Route};

/// Jobs that one call may carry together wait together: in a cluster those of one slot. Elsewhere that is all of them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    groups: BTreeMap<Route, VecDeque<Job>>,
    /// Whose turn it is. Each group that has a job stands here once.
    turns: VecDeque<Route>,
    len: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, job: Job) {
        let group = self.groups.entry(job.route).or_default();
        if group.is_empty() {
            self.turns.push_back(job.route);
        }
        group.push_back(job);
        self.len += 1;
    }

    /// Hands the jobs of the group whose turn it is to `take`, the oldest first, for as long as it says that there is
    /// room for the next. What is left of the group has another turn after all others.
    pub(crate) fn take_turn(
        &mut self,
        mut fits: impl FnMut(&Job) -> bool,
        mut take: impl FnMut(Job),
    ) {
        let Some(route) = self.turns.pop_front() else {
            return;
        };
        let Some(group) = self.groups.get_mut(&route) else {
            return;
        };
        while group.front().is_some_and(&mut fits)
            && let Some(job) = group.pop_front()
        {
            self.len -= 1;
            take(job);
        }
        // An empty group keeps its place: there are no more of them than slots.
        if !group.is_empty() {
            self.turns.push_back(route);
        }
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        let groups = std::mem::take(self).groups;
        groups.into_values().flatten()
    }
}
