//! The queue of a node, in the order in which calls take jobs along.

use std::collections::{BTreeMap, VecDeque};

use crate::job::{Job, Route};
use crate::sync::Instant;

/// Jobs that may share a call wait together: in a cluster those of one slot, elsewhere all.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    groups: BTreeMap<Route, Group>,
    /// The turns. Each group that has a job stands here once.
    turns: VecDeque<Route>,
    awaited: usize,
    unattended: usize,
}

/// Jobs of one route, the oldest first.
#[derive(Debug, Default)]
struct Group {
    /// Callers. All have the same time to be answered, so the oldest is the first that is late.
    awaited: VecDeque<Job>,
    /// Credits, debits and releases, which go ahead of the callers in a call: a decision finds all done that was given back before.
    unattended: VecDeque<Job>,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.awaited.is_empty() && self.unattended.is_empty()
    }
}

/// The part of a call that may be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallShare {
    Half,
    Whole,
}

/// The jobs that a call takes along.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) jobs: Vec<Job>,
    /// The callers whose answer would come too late.
    pub(crate) late: Vec<Job>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.awaited + self.unattended
    }

    /// The number of callers that wait.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited
    }

    /// The number of jobs without a caller.
    pub(crate) fn unattended(&self) -> usize {
        self.unattended
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, job: Job) {
        let group = self.groups.entry(job.route).or_default();
        if group.is_empty() {
            self.turns.push_back(job.route);
        }
        if job.is_pending() {
            group.awaited.push_back(job);
            self.awaited += 1;
        } else {
            group.unattended.push_back(job);
            self.unattended += 1;
        }
    }

    /// Takes jobs of the group whose turn it is, the oldest first, for as long as `fits` says that there is room for the next.
    /// While callers wait, half of the call is theirs; the jobs without a caller fill the other half and the rest, and stand ahead of
    /// them. A caller that has gone away takes no room, nor does one whose deadline
    /// would be over if it were answered at `answered_at`. The rest of the group has another turn after all others.
    pub(crate) fn take_turn(
        &mut self,
        answered_at: Instant,
        mut fits: impl FnMut(&Job, CallShare) -> bool,
    ) -> Batch {
        let mut turn = Batch::default();
        let Some(route) = self.turns.pop_front() else {
            return turn;
        };
        let Some(group) = self.groups.get_mut(&route) else {
            return turn;
        };
        while let Some(job) = group.unattended.front()
            && !group.awaited.is_empty()
            && fits(job, CallShare::Half)
        {
            turn.jobs.extend(group.unattended.pop_front());
        }
        let mut callers = Vec::new();
        while let Some(job) = group.awaited.front() {
            let is_late = job.deadline <= answered_at;
            let is_over = is_late || job.is_withdrawn();
            if !is_over && !fits(job, CallShare::Whole) {
                break;
            }
            let job = group.awaited.pop_front();
            self.awaited -= 1;
            if !is_over {
                callers.extend(job);
            } else if is_late {
                turn.late.extend(job);
            }
        }
        while let Some(job) = group.unattended.front()
            && fits(job, CallShare::Whole)
        {
            turn.jobs.extend(group.unattended.pop_front());
        }
        self.unattended -= turn.jobs.len();
        turn.jobs.append(&mut callers);
        // An empty group keeps its place: there are no more of them than slots.
        if !group.is_empty() {
            self.turns.push_back(route);
        }
        turn
    }

    /// Removes the callers whose deadline comes no later than this.
    pub(crate) fn take_late(&mut self, at: Instant) -> Vec<Job> {
        let mut late = Vec::new();
        for route in &self.turns {
            let Some(group) = self.groups.get_mut(route) else {
                continue;
            };
            while group.awaited.front().is_some_and(|job| job.deadline <= at) {
                late.extend(group.awaited.pop_front());
            }
        }
        if !late.is_empty() {
            self.awaited -= late.len();
            let groups = &self.groups;
            self.turns
                .retain(|route| groups.get(route).is_some_and(|group| !group.is_empty()));
        }
        late
    }

    /// The first deadline of the callers.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        let groups = self.turns.iter().filter_map(|route| self.groups.get(route));
        let first = groups.filter_map(|group| group.awaited.front());
        first.map(|job| job.deadline).min()
    }

    /// Removes all jobs.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        let groups = std::mem::take(self).groups;
        let jobs = |group: Group| group.awaited.into_iter().chain(group.unattended);
        groups.into_values().flat_map(jobs)
    }
}
