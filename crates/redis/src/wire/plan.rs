//! Many requests as one call of the script.

use std::collections::{HashMap, HashSet};

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
    fn of_about(names: usize) -> Self {
        Self {
            names: Vec::with_capacity(names),
            numbers: HashMap::with_capacity(names),
        }
    }

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
        let (mut plan, call) = Self::of_alike(&requests, &mut calendars)
            .unwrap_or_else(|| Self::of_any(&requests, &mut calendars));
        plan.calendars = calendars;
        (plan, call)
    }

    /// Plans the usual call, in which all requests are alike and each names another state: as [`of_any`](Self::of_any) does, at
    /// half the cost.
    fn of_alike<'a>(
        requests: &[&'a Request],
        calendars: &mut Calendars,
    ) -> Option<(Self, ScriptCall<'a>)> {
        let first = requests.first()?;
        let mut keys = Vec::with_capacity(requests.len());
        // A lone request shares nothing.
        let is_alone = requests.len() == 1;
        let mut met = HashSet::with_capacity(if is_alone { 0 } else { requests.len() });
        for request in requests {
            let [name] = &request.names[..] else {
                return None;
            };
            if !request.asks_as(first) || !(is_alone || met.insert(&name[..])) {
                return None;
            }
            keys.push(&name[..]);
        }
        let plan = Self {
            order: (0..keys.len()).collect(),
            keys: (0..keys.len())
                .map(|key| smallvec![u8::try_from(key).unwrap_or(u8::MAX)])
                .collect(),
            ..Self::default()
        };
        let mut call = ScriptCall {
            keys,
            runs: Vec::with_capacity(1),
        };
        call.begin_run((1, &first.wording(calendars).shape));
        Some((plan, call))
    }

    /// The number of the key of a request's charge, from 0.
    pub(crate) fn key(&self, request: usize, charge: usize) -> Option<usize> {
        let keys = self.keys.get(request)?;
        keys.get(charge).copied().map(usize::from)
    }

    fn of_any<'a>(requests: &[&'a Request], calendars: &mut Calendars) -> (Self, ScriptCall<'a>) {
        let mut met = KeyNumbers::of_about(requests.len());
        let mut plan = Self {
            order: Vec::with_capacity(requests.len()),
            keys: (requests.iter())
                .map(|request| request.names.iter().map(|name| met.number(name)).collect())
                .collect(),
            ..Self::default()
        };
        let Groups { mut groups, words } =
            Groups::of(requests, &plan.keys, met.names.len(), calendars);
        groups.sort_by(|a, b| {
            let shape = |group: &Group| (group.wave, group.members.len());
            (shape(a), &words[a.words].shape).cmp(&(shape(b), &words[b.words].shape))
        });

        let mut call = ScriptCall {
            keys: Vec::with_capacity(met.names.len()),
            runs: Vec::new(),
        };
        // By the state's number, which is its position among the keys.
        let mut numbers = vec![None; met.names.len()];
        let mut last: Option<(usize, &[u8])> = None;
        for group in &groups {
            for &member in &group.members {
                for key in &mut plan.keys[member] {
                    let met_as = usize::from(*key);
                    *key = *numbers[met_as].get_or_insert_with(|| {
                        call.keys.push(met.names[met_as]);
                        u8::try_from(call.keys.len() - 1).unwrap_or(u8::MAX)
                    });
                }
                plan.order.push(member);
            }
            let words = &words[group.words];
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
        call.drop_obvious_numbers(groups.first().map(|group| &words[group.words]));
        (plan, call)
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

    /// A single run that names each key once, in order, can leave the numbers out.
    fn drop_obvious_numbers(&mut self, words: Option<&Wording>) {
        if let ([run], Some(words)) = (&mut self.runs[..], words) {
            let head = words.shape.len() + 1;
            let numbers = (1..=self.keys.len()).map(|number| u8::try_from(number).unwrap_or(0));
            if words.is_decision()
                && words.names.len() == 1
                && run
                    .get(head..)
                    .is_some_and(|said| numbers.eq(said.iter().copied()))
            {
                run.truncate(head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{Algorithm, Call, Charge, Key, Mode, Quota, Scope};

    use super::*;
    use crate::name::Names;

    fn request(quota: Quota, mode: Mode, cost: u64, caller: usize) -> Request {
        let key = Key::from(caller as u64);
        let charge = Charge {
            scope: Scope::of("api", 0, &quota),
            quota: &quota,
            key: &key,
            cost,
            mode,
        };
        Request::for_decision(Call::of(&[charge]), &Names::new("tollgate".to_owned()))
    }

    #[test]
    fn requests_that_are_alike_are_planned_as_any_others_are() {
        let gcra = Quota::per_second(10);
        let offset = Duration::ZERO;
        let window = gcra.using(Algorithm::FixedWindow { offset });
        for quota in [gcra, gcra.burst(3), window] {
            for (mode, cost) in [(Mode::Enforce, 1), (Mode::Shadow, 2), (Mode::Probe, 0)] {
                for count in [1, 2, 64, MAX_KEYS] {
                    let requests: Vec<_> = (0..count)
                        .map(|caller| request(quota, mode, cost, caller))
                        .collect();
                    let requests: Vec<_> = requests.iter().collect();

                    let alike = Plan::of_alike(&requests, &mut Calendars::default());

                    let any = Plan::of_any(&requests, &mut Calendars::default());
                    assert_eq!(alike, Some(any), "{quota} {mode:?} {cost}, {count} times");
                }
            }
        }
    }

    #[test]
    fn requests_that_differ_or_share_a_state_are_not_alike() {
        let quota = Quota::per_second(10);
        let first = request(quota, Mode::Enforce, 1, 0);
        let others = [
            request(quota, Mode::Enforce, 1, 0),
            request(quota, Mode::Enforce, 2, 1),
            request(quota, Mode::Shadow, 1, 1),
            request(quota.burst(3), Mode::Enforce, 1, 1),
            Request::nothing(),
        ];
        let alike = |requests: &[&Request]| {
            Plan::of_alike(requests, &mut Calendars::default()).map(|(plan, _)| plan)
        };
        for other in &others {
            assert_eq!(alike(&[&first, other]), None, "{other:?}");
            assert_eq!(alike(&[other, &first]), None, "{other:?}");
        }
    }

    /// A request for one state each, by their numbers.
    fn request_for(quota: Quota, states: [usize; 2]) -> Request {
        let keys = states.map(|state| Key::from(state as u64));
        let charges = keys.each_ref().map(|key| Charge {
            scope: Scope::of("api", 0, &quota),
            quota: &quota,
            key,
            cost: 1,
            mode: Mode::Enforce,
        });
        Request::for_decision(Call::of(&charges), &Names::new("tollgate".to_owned()))
    }

    #[test]
    fn equal_requests_are_one_and_its_number_of_times_unless_another_stands_between_them() {
        let quota = Quota::per_second(10);
        let runs = |asked: &[[usize; 2]]| {
            let requests: Vec<_> = asked
                .iter()
                .map(|states| request_for(quota, *states))
                .collect();
            let (plan, call) = Plan::of(&requests);
            assert_eq!(
                plan.order,
                (0..asked.len()).collect::<Vec<_>>(),
                "{asked:?}"
            );
            // The number of times of each run, and the numbers of its keys.
            let told = |run: &Vec<u8>| (run[0], run[3 + 2 * 43..].to_vec());
            call.runs.iter().map(told).collect::<Vec<_>>()
        };
        assert_eq!(runs(&[[5, 9]; 3]), [(3, vec![1, 2])]);
        // In another order, and with a request between that names one of these states.
        assert_eq!(runs(&[[5, 9], [9, 5]]), [(1, vec![1, 2, 2, 1])]);
        let between = runs(&[[5, 9], [7, 9], [5, 9]]);
        assert_eq!(between, [(1, vec![1, 2, 3, 2, 1, 2])]);
        let behind = runs(&[[5, 9], [5, 9], [5, 7]]);
        assert_eq!(behind, [(2, vec![1, 2]), (1, vec![1, 3])]);
    }
}
