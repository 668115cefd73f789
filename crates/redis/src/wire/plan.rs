//! Many requests as one call of the script.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};

use super::calendars::Calendars;
use super::request::{Request, Wording};
use crate::holder::Caller;

/// The most keys of one call: their numbers are bytes.
pub(crate) const MAX_KEYS: usize = 255;

/// The words to send: KEYS and ARGV.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ScriptCall<'a> {
    pub(crate) keys: Vec<&'a [u8]>,
    pub(crate) runs: Vec<Vec<u8>>,
}

/// The order in which the script decides the requests of a call, and the place of their states among its keys.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Positions of requests, the first decided first.
    pub(super) order: Vec<usize>,
    /// For each request, the numbers of its keys, from 0.
    pub(super) keys: Vec<SmallVec<[u8; 2]>>,
    /// The windows of the calendars that it names.
    pub(super) calendars: Calendars,
}

/// Equal requests that are decided one after the other.
struct Group {
    /// The position of their words.
    words: usize,
    members: SmallVec<[usize; 2]>,
    /// The wave of the group. Groups of one wave have no key in common, so their order does not matter.
    wave: usize,
}

/// The requests of a call, and their common words.
#[derive(Default)]
struct Groups {
    groups: Vec<Group>,
    /// Most requests of a call ask the same, of different states.
    words: Vec<Wording>,
}

/// The numbers of the keys that the requests of a call name, in the order of their first mention.
struct KeyNumbers<'a> {
    names: Vec<&'a [u8]>,
    /// A hash that no client can foresee, though clients choose identities.
    numbers: HashMap<&'a [u8], u8>,
}

impl<'a> KeyNumbers<'a> {
    fn number(&mut self, name: &'a [u8]) -> u8 {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            u8::try_from(self.names.len() - 1).unwrap_or(u8::MAX)
        })
    }
}

impl Plan {
    /// Plans a call. Each key serves its requests first come, first served. Requests that share no key may be decided in any
    /// order, and are put next to similar ones, so that a quota travels once.
    ///
    /// The requests must have no more than [`MAX_KEYS`] names between them.
    pub(crate) fn of<'a>(
        requests: impl IntoIterator<Item = &'a Request>,
    ) -> (Self, ScriptCall<'a>) {
        Self::with(Calendars::default(), requests)
    }

    /// Plans a call at the time of these calendars, of which none was asked yet.
    pub(super) fn with<'a>(
        mut calendars: Calendars,
        requests: impl IntoIterator<Item = &'a Request>,
    ) -> (Self, ScriptCall<'a>) {
        let requests: Vec<_> = requests.into_iter().collect();
        let (names, numbers) = (
            Vec::with_capacity(requests.len()),
            HashMap::with_capacity(requests.len()),
        );
        let mut met = KeyNumbers { names, numbers };
        let keys = requests.iter().map(|request| {
            // In the order of its words, in which ids stand last.
            if request.names_of(true).next().is_some() {
                { request.names_of(false) }.for_each(|name| _ = met.number(name));
            }
            request.names.iter().map(|name| met.number(name)).collect()
        });
        let mut plan = Self {
            keys: keys.collect(),
            ..Self::default()
        };
        let Groups { mut groups, words } =
            Groups::of(&requests, &plan.keys, met.names.len(), &mut calendars);
        groups.sort_by(|a, b| {
            let shape = |group: &Group| (group.wave, group.members.len());
            (shape(a), &words[a.words].shape).cmp(&(shape(b), &words[b.words].shape))
        });

        let mut call = ScriptCall {
            keys: met.names,
            runs: Vec::new(),
        };
        let mut last: Option<(usize, &[u8])> = None;
        for group in &groups {
            let words = &words[group.words];
            plan.order.extend_from_slice(&group.members);
            let head = (group.members.len(), &words.shape[..]);
            if last != Some(head) {
                call.begin_run(head);
                last = Some(head);
            }
            if let (Some(run), Some(&member)) = (call.runs.last_mut(), group.members.first()) {
                let each = words.behind.len() / words.names.len().max(1);
                for (place, &name) in words.names.iter().enumerate() {
                    run.push(plan.keys[member][name] + 1);
                    run.extend_from_slice(&words.behind[place * each..][..each]);
                }
            }
        }
        let timeless = |position: &usize| requests[*position].names.is_empty();
        plan.order.extend((0..requests.len()).filter(timeless));
        plan.calendars = calendars;
        (plan, call)
    }

    /// The number of the key of a request's charge, from 0.
    pub(crate) fn key(&self, request: usize, charge: usize) -> Option<usize> {
        let keys = self.keys.get(request)?;
        keys.get(charge).copied().map(usize::from)
    }
}

impl Groups {
    /// `states` holds the state numbers of each request's names; there are `count` states.
    fn of(
        requests: &[&Request],
        states: &[SmallVec<[u8; 2]>],
        count: usize,
        calendars: &mut Calendars,
    ) -> Self {
        let mut this = Self {
            groups: Vec::with_capacity(requests.len()),
            ..Self::default()
        };
        // By state: the last group that names it.
        let mut latest: Vec<Option<usize>> = vec![None; count];
        let mut previous = None;
        for (position, (&request, named)) in requests.iter().zip(states).enumerate() {
            let Some(&first) = named.first() else {
                // Asks for the time only.
                continue;
            };
            if !previous.is_some_and(|previous| request.asks_as(previous)) {
                this.words.push(request.wording(calendars));
            }
            previous = Some(request);
            let words = this.words.len() - 1;
            if request.may_repeat()
                && let Some(group) = latest[usize::from(first)]
                && named
                    .iter()
                    .all(|state| latest[usize::from(*state)] == Some(group))
                && let first = this.groups[group].members[0]
                && states[first] == *named
                && requests[first].may_repeat()
                && this.shape(group) == &this.words[words].shape[..]
                && this.groups[group].members.len() < usize::from(u8::MAX)
            {
                this.groups[group].members.push(position);
                continue;
            }
            let before = (named.iter()).filter_map(|state| latest[usize::from(*state)]);
            let wave = (before.map(|group| this.groups[group].wave + 1))
                .max()
                .unwrap_or(0);
            for state in named {
                latest[usize::from(*state)] = Some(this.groups.len());
            }
            this.groups.push(Group {
                words,
                members: smallvec![position],
                wave,
            });
        }
        this
    }

    fn shape(&self, group: usize) -> &[u8] {
        &self.words[self.groups[group].words].shape
    }
}

impl ScriptCall<'_> {
    /// Says whose call it is, and where its entries stand: a place for each key, or nothing.
    pub(crate) fn is_of(&mut self, caller: &Caller, places: &[u16]) {
        self.runs.insert(0, caller.run(places));
    }

    /// The number of times of each request, and then the shared words.
    fn begin_run(&mut self, (times, shape): (usize, &[u8])) {
        let mut run = Vec::with_capacity(1 + shape.len() + 64);
        run.push(u8::try_from(times).unwrap_or(u8::MAX));
        run.extend_from_slice(shape);
        self.runs.push(run);
    }
}
