//! The imports between the rooms of one parent, and the circles that these form.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

/// Imports between rooms of one parent, each with its line of code.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    pub(crate) fn add(&mut self, from: &str, to: &str, line: String) {
        let edges = self.edges.entry(from.to_owned()).or_default();
        edges.entry(to.to_owned()).or_insert(line);
    }

    /// Merges a room with those of these that are in a circle with it, and returns them.
    pub(crate) fn join<'a>(&mut self, room: &str, parts: &'a [String]) -> Vec<&'a String> {
        let in_circle = |part: &&String| self.reaches(room, part) && self.reaches(part, room);
        let joined: Vec<_> = parts.iter().filter(in_circle).collect();
        let merged = |one: &String| match joined.contains(&one) {
            true => room.to_owned(),
            false => one.clone(),
        };
        for (from, edges) in mem::take(&mut self.edges) {
            for (to, line) in edges {
                let (from, to) = (merged(&from), merged(&to));
                if from != to {
                    self.add(&from, &to, line);
                }
            }
        }
        joined
    }

    /// One sentence for each set of rooms in a circle: the shortest circle of it, with its lines.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut told = BTreeSet::new();
        let mut sentences = Vec::new();
        for room in self.edges.keys() {
            if told.contains(room) || !self.reaches(room, room) {
                continue;
            }
            let are_one = |other: &&String| self.reaches(room, other) && self.reaches(other, room);
            let all: Vec<_> = self.edges.keys().filter(are_one).collect();
            let circles = all.iter().filter_map(|start| self.way(start, start));
            let shortest = circles.min_by_key(Vec::len).unwrap_or_default();
            let mut sentence = format!("a circle of imports: {}", shortest.join(" -> "));
            for step in shortest.windows(2) {
                sentence += &format!("\n    {}", self.edges[step[0]][step[1]]);
            }
            sentences.push(sentence);
            told.extend(all);
        }
        sentences
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        self.way(from, to).is_some()
    }

    /// The shortest path from one room to another, over at least one import.
    fn way<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut tried = BTreeSet::new();
        let mut waiting = VecDeque::from([vec![from]]);
        while let Some(way) = waiting.pop_front() {
            let edges = way.last().and_then(|last| self.edges.get(*last));
            for behind in edges.into_iter().flat_map(BTreeMap::keys) {
                let way = [&way[..], &[behind]].concat();
                if behind == to {
                    return Some(way);
                }
                if tried.insert(behind) {
                    waiting.push_back(way);
                }
            }
        }
        None
    }
}
