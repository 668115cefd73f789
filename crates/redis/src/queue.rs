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

    /// Takes jobs of the group whose turn it is, the oldest first, for as long as `fits` says that there is room for the next. Jobs without
    /// a caller stand ahead of the callers. While there are more than fit, one caller leaves with each: so callers cannot take faster
    /// than is given back, and a flood of credits holds up no caller for long. A caller that has gone away takes no room, nor does one
    /// whose deadline would be over if it were answered at `answered_at`. The rest of the group has another turn after all others.
    pub(crate) fn take_turn(
        &mut self,
        answered_at: Instant,
        mut fits: impl FnMut(&Job) -> bool,
    ) -> Batch {
        let mut turn = Batch::default();
        let Some(route) = self.turns.pop_front() else {
            return turn;
        };
        let Some(group) = self.groups.get_mut(&route) else {
            return turn;
        };
        let waiting = group.awaited.len();
        let mut callers = Vec::new();
        loop {
            let left = (group.unattended.len(), group.awaited.len());
            let unattended = pop_front_if(&mut group.unattended, &mut fits);
            if unattended.is_none() && left.0 > 0 {
                break;
            }
            turn.jobs.extend(unattended);
            while let Some(job) = group.awaited.front()
                && (job.deadline <= answered_at || job.is_withdrawn())
            {
                let is_late = job.deadline <= answered_at;
                let job = group.awaited.pop_front();
                turn.late.extend(job.filter(|_| is_late));
            }
            callers.extend(pop_front_if(&mut group.awaited, &mut fits));
            if (group.unattended.len(), group.awaited.len()) == left {
                break;
            }
        }
        self.awaited -= waiting - group.awaited.len();
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

fn pop_front_if(jobs: &mut VecDeque<Job>, mut fits: impl FnMut(&Job) -> bool) -> Option<Job> {
    if fits(jobs.front()?) {
        jobs.pop_front()
    } else {
        None
    }
}
