//! Many requests as one call of the script.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::lower::{Lowered, Request};

/// The most keys of one call: their numbers are bytes.
pub(crate) const MAX_KEYS: usize = 255;

/// What a run begins with that decides once about one enforced GCRA charge, and what it ends with if nothing has a rest: a
/// denominator of 1, and twice 0. In between are the drains of cost and full budget, and the tag.
const ONCE_BY_GCRA: &[u8] = &[1, 0, 1, 1, 0];
const NO_RESTS: &[u8] = &[
    0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
const SHORT: usize = 17;
const COSTS_NOTHING: &[u8] = &[0; 8];

/// What is sent: KEYS and ARGV.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) keys: Vec<Box<[u8]>>,
    pub(crate) runs: Vec<Vec<u8>>,
}

/// In which order the script decides the requests of a call, and where their states are among its keys.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Positions of requests, the first decided first.
    pub(super) order: Vec<usize>,
    /// For each request, the numbers of its keys, from 0.
    pub(super) keys: Vec<SmallVec<[u8; 2]>>,
}

/// Equal requests that are decided one after the other.
struct Group {
    lowered: Lowered,
    members: Vec<usize>,
    /// Groups of one wave have no key in common, so that it does not matter which of them comes first.
    wave: usize,
}

impl Plan {
    /// Plans a call. First come, first served on each key; requests that share none may be decided in any order, and are
    /// put next to those that look like them, so that a quota travels once.
    ///
    /// The requests must have no more than [`MAX_KEYS`] names between them.
    pub(crate) fn of<'a>(requests: impl IntoIterator<Item = &'a Request>) -> (Self, Call) {
        let requests: Vec<_> = requests.into_iter().collect();
        let mut groups = group(&requests);
        groups.sort_by(|a, b| {
            let shape = |group: &Group| (group.wave, group.members.len());
            (shape(a), &a.lowered.shape).cmp(&(shape(b), &b.lowered.shape))
        });

        let mut plan = Self {
            order: Vec::with_capacity(requests.len()),
            keys: vec![SmallVec::new(); requests.len()],
        };
        let mut call = Call::default();
        let mut numbers: HashMap<&[u8], u8> = HashMap::with_capacity(requests.len());
        let mut last: Option<&Group> = None;
        for group in &groups {
            for &member in &group.members {
                for name in &requests[member].names {
                    let number = *numbers.entry(name).or_insert_with(|| {
                        call.keys.push(name.clone());
                        u8::try_from(call.keys.len() - 1).unwrap_or(u8::MAX)
                    });
                    plan.keys[member].push(number);
                }
                plan.order.push(member);
            }
            let continues = last.is_some_and(|last| last.continues_with(group));
            if !continues {
                call.runs.push(group.head());
            }
            if let (Some(run), Some(&member)) = (call.runs.last_mut(), group.members.first()) {
                let names = group.lowered.names.iter();
                run.extend(names.map(|&name| plan.keys[member][name] + 1));
                run.extend_from_slice(&group.lowered.behind);
            }
            last = Some(group);
        }
        let timeless = |position: &usize| requests[*position].names.is_empty();
        plan.order.extend((0..requests.len()).filter(timeless));
        call.drop_obvious_numbers(groups.first());
        call.shorten_if_alone();
        (plan, call)
    }
}

fn group(requests: &[&Request]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::with_capacity(requests.len());
    // By name of a state: the group that spoke of it last.
    let mut latest: HashMap<&[u8], usize> = HashMap::with_capacity(requests.len());
    for (position, request) in requests.iter().enumerate() {
        if request.names.is_empty() {
            // Asks for the time only.
            continue;
        }
        let lowered = request.lower();
        if request.is_one_charge()
            && let Some(&group) = latest.get(&*request.names[0])
            && requests[groups[group].members[0]].is_one_charge()
            && groups[group].lowered.shape == lowered.shape
            && groups[group].members.len() < usize::from(u8::MAX)
        {
            groups[group].members.push(position);
            continue;
        }
        let before = request.names.iter().filter_map(|name| latest.get(&**name));
        let wave = before
            .map(|&group| groups[group].wave + 1)
            .max()
            .unwrap_or(0);
        for name in &request.names {
            latest.insert(name, groups.len());
        }
        groups.push(Group {
            lowered,
            members: vec![position],
            wave,
        });
    }
    groups
}

impl Group {
    fn continues_with(&self, next: &Self) -> bool {
        self.members.len() == next.members.len() && self.lowered.shape == next.lowered.shape
    }

    /// How many times each request, then what they share.
    fn head(&self) -> Vec<u8> {
        let shape = &self.lowered.shape;
        let mut run = Vec::with_capacity(1 + shape.len() + 64);
        run.push(u8::try_from(self.members.len()).unwrap_or(u8::MAX));
        run.extend_from_slice(shape);
        run
    }
}

impl Call {
    /// A single run that speaks of each key once, in order, need not say so.
    fn drop_obvious_numbers(&mut self, group: Option<&Group>) {
        if let ([run], Some(group)) = (&mut self.runs[..], group) {
            let head = group.lowered.shape.len() + 1;
            let numbers = (1..=self.keys.len()).map(|number| u8::try_from(number).unwrap_or(0));
            if group.lowered.is_decision()
                && group.lowered.names.len() == 1
                && run
                    .get(head..)
                    .is_some_and(|said| numbers.eq(said.iter().copied()))
            {
                run.truncate(head);
            }
        }
    }

    /// A request alone is told in fewer bytes, if it is of the usual kind: the script need not look at what is not there.
    fn shorten_if_alone(&mut self) {
        if let ([run], [_]) = (&mut self.runs[..], &self.keys[..])
            && let Some(short) = run.strip_prefix(ONCE_BY_GCRA)
            && let Some(short) = short.strip_suffix(NO_RESTS)
            && short.len() == SHORT
            && !short.starts_with(COSTS_NOTHING)
        {
            *run = short.to_vec();
        }
    }
}
