//! Rooms, the imports between them, and the circles that these form.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Two modules that import each other because they are one thing.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Their names: `cluster`, `algorithm::gcra`.
    pub modules: [&'a str; 2],
    /// The reason why they are one thing.
    pub reason: &'a str,
}

/// A module and its children that are one thing in several files: the parent needs them, and they need the parent.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// The module: `limiter`, `algorithm::gcra`.
    pub module: &'a str,
    /// Those of its children that are in a circle with it.
    pub parts: &'a [&'a str],
    /// The reason why they are one thing.
    pub reason: &'a str,
}

/// Imports between rooms of one parent, each with its line of code.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    pub(crate) fn add(&mut self, from: String, to: String, line: String) {
        self.edges.entry(to.clone()).or_default();
        let edges = self.edges.entry(from).or_default();
        edges.entry(to).or_insert(line);
    }

    /// Merges the two rooms. Says whether they import each other.
    pub(crate) fn join(&mut self, pair: &Pair<'_>) -> bool {
        let [one, other] = pair.modules.map(str::to_owned);
        let imports = |from: &String, to: &String| {
            self.edges
                .get(from)
                .is_some_and(|edges| edges.contains_key(to))
        };
        if !imports(&one, &other) || !imports(&other, &one) {
            return false;
        }
        self.merge(&one, &other);
        true
    }

    /// Merges a module with its parts. Returns the parts that are in no circle with it.
    pub(crate) fn join_whole<'a>(&mut self, whole: &Whole<'a>) -> Vec<&'a str> {
        let module = whole.module.to_owned();
        let named = |part: &str| format!("{module}::{part}");
        let is_in_circle = |part: &&&str| {
            let part = named(part);
            self.edges.contains_key(&part)
                && self.edges.contains_key(&module)
                && self.reached_from(&module).contains(&part)
                && self.reached_from(&part).contains(&module)
        };
        let (parts, others): (Vec<&&str>, Vec<&&str>) = whole.parts.iter().partition(is_in_circle);
        for part in parts {
            self.merge(&module, &named(part));
        }
        others.into_iter().copied().collect()
    }

    fn merge(&mut self, one: &String, other: &String) {
        let theirs = self.edges.remove(other).unwrap_or_default();
        let edges = self.edges.entry(one.clone()).or_default();
        for (to, line) in theirs {
            edges.entry(to).or_insert(line);
        }
        for edges in self.edges.values_mut() {
            if let Some(line) = edges.remove(other) {
                edges.entry(one.clone()).or_insert(line);
            }
        }
        if let Some(edges) = self.edges.get_mut(one) {
            edges.remove(one);
        }
    }

    /// One sentence for each set of rooms in a circle: the shortest circle of it, with its lines.
    pub(crate) fn circles(&self) -> Vec<String> {
        let reached: BTreeMap<&String, BTreeSet<&String>> = self
            .edges
            .keys()
            .map(|room| (room, self.reached_from(room)))
            .collect();
        let in_circle = |one: &String, other: &String| {
            reached[one].contains(other) && reached[other].contains(one)
        };
        let mut told = BTreeSet::new();
        let mut sentences = Vec::new();
        for room in self.edges.keys() {
            if !in_circle(room, room) || told.contains(room) {
                continue;
            }
            let all: Vec<_> = self
                .edges
                .keys()
                .filter(|other| in_circle(room, other))
                .collect();
            told.extend(all.iter().copied());
            let shortest = all
                .iter()
                .map(|start| self.way(start, start))
                .min_by_key(Vec::len)
                .unwrap_or_default();
            sentences.push(self.sentence(&shortest, &all));
        }
        sentences
    }

    fn sentence(&self, circle: &[&String], all: &[&String]) -> String {
        let names: Vec<_> = circle.iter().map(|room| room.as_str()).collect();
        let lines: Vec<_> = circle
            .windows(2)
            .filter_map(|step| self.edges.get(step[0])?.get(step[1]))
            .map(|line| format!("\n    {line}"))
            .collect();
        let others = all.len() + 1 - circle.len();
        let more = match others {
            0 => String::new(),
            _ => {
                let all: Vec<_> = all.iter().map(|room| room.as_str()).collect();
                format!(
                    "\n    it is the shortest circle among {} modules: {}",
                    all.len(),
                    all.join(", ")
                )
            }
        };
        format!(
            "a circle of imports: {}{}{more}",
            names.join(" -> "),
            lines.concat()
        )
    }

    fn reached_from(&self, room: &String) -> BTreeSet<&String> {
        let mut reached = BTreeSet::new();
        let mut waiting: Vec<&String> = self.edges[room].keys().collect();
        while let Some(next) = waiting.pop() {
            if reached.insert(next) {
                waiting.extend(self.edges[next].keys());
            }
        }
        reached
    }

    /// The shortest path from one room to another, over at least one import.
    fn way<'a>(&'a self, from: &'a String, to: &String) -> Vec<&'a String> {
        let mut came_from: BTreeMap<&String, &String> = BTreeMap::new();
        let mut waiting = VecDeque::from([from]);
        while let Some(next) = waiting.pop_front() {
            for behind in self.edges[next].keys() {
                if came_from.contains_key(behind) {
                    continue;
                }
                came_from.insert(behind, next);
                if behind == to {
                    let mut way = vec![behind];
                    let mut at = next;
                    while at != from {
                        way.push(at);
                        at = came_from[at];
                    }
                    way.push(from);
                    way.reverse();
                    return way;
                }
                waiting.push_back(behind);
            }
        }
        Vec::new()
    }
}
