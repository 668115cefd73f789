//! The homes of callers in a cluster, which tell the deciding clock.

use std::collections::BTreeMap;

use super::{HOMES, Servers, Stage};
use crate::Result;
use crate::history::Home;
use crate::population::Population;

/// The number of hash tags over which callers spread in a cluster, unless a backend is told otherwise.
const PARTITIONS: u16 = 64;

impl Stage {
    /// The home of each of these callers, if they live apart.
    pub(crate) fn homes(
        &self,
        population: &Population,
        callers: impl Iterator<Item = u32>,
    ) -> Result<BTreeMap<u32, Home>> {
        let Servers::Cluster(cluster) = &self.servers else {
            return Ok(BTreeMap::new());
        };
        let slot_of = |identity: &str| {
            // As in names: all budgets of one caller have the tag of its identity.
            let tag = cluster.slot_of(identity) % PARTITIONS;
            cluster.slot_of(&format!("{{{tag}}}"))
        };
        let mut names = Vec::new();
        for node in cluster.nodes() {
            let answer = node.command(&["KEYS", "tollgate:*"]);
            let lines = answer.lines().filter(|line| line.starts_with("tollgate:"));
            names.extend(lines.map(str::to_owned));
        }
        let identities = names.iter().filter_map(|name| name.rsplit_once(':'));
        let (_, example) = identities.clone().next().ok_or("there are no keys")?;
        let is_as_thought =
            |(name, identity): (&str, &str)| slot_of(identity) == cluster.slot_of(name);
        if !identities.into_iter().take(20).all(is_as_thought) {
            return Err("callers live elsewhere than thought".into());
        }
        // The sign of a text.
        let kind = example.chars().next().unwrap_or_default();
        let home = |caller: u32| {
            let slot = slot_of(&format!("{kind}{}", population.identity(caller)));
            HOMES[usize::from(cluster.home_of(slot) != 0)]
        };
        Ok(callers.map(|caller| (caller, home(caller))).collect())
    }
}
