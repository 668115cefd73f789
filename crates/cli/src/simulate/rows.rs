//! The rows of a report: each is serialized for programs, and has cells for people, on a terminal and in a page.

use serde::Serialize;

use super::tally::{Difference, Tally, words};
use crate::figures::{grouped, moment, percent};

/// A policy, and what it decided.
#[derive(Debug, Serialize)]
pub(super) struct PolicyRow {
    pub(super) policy: String,
    pub(super) covered: u64,
    pub(super) refused: u64,
    would_refuse_on_trial: u64,
    pub(super) without_identity: u64,
}

impl PolicyRow {
    pub(super) const NAMES: [&str; 6] = [
        "policy",
        "covers",
        "refuses",
        "share",
        "would refuse (on trial)",
        "without identity",
    ];

    pub(super) fn all(tally: &Tally, names: &[String]) -> Vec<Self> {
        let policies = names.iter().zip(&tally.policies);
        let rows = policies.map(|(name, of)| Self {
            policy: name.clone(),
            covered: of.covered,
            refused: of.refused,
            would_refuse_on_trial: of.on_trial,
            without_identity: of.unidentified,
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 6] {
        [
            self.policy.clone(),
            grouped(self.covered),
            grouped(self.refused),
            percent(self.refused, self.covered),
            grouped(self.would_refuse_on_trial),
            grouped(self.without_identity),
        ]
    }
}

/// A policy that charges what the log has as the cost of a request, and the units.
#[derive(Debug, Serialize)]
pub(super) struct CostRow {
    policy: String,
    pub(super) units: u64,
    pub(super) refused_units: u64,
}

impl CostRow {
    pub(super) const NAMES: [&str; 4] = ["policy", "units asked for", "refused", "share"];

    pub(super) fn all(tally: &Tally, names: &[String]) -> Vec<Self> {
        let policies = names.iter().zip(&tally.policies);
        let rows = policies.filter_map(|(name, of)| {
            let (units, refused_units) = of.units?;
            Some(Self {
                policy: name.clone(),
                units,
                refused_units,
            })
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 4] {
        [
            self.policy.clone(),
            grouped(self.units),
            grouped(self.refused_units),
            percent(self.refused_units, self.units),
        ]
    }
}

/// A policy that limits how many requests are under way, and the most that the log has at one time, refused or not.
#[derive(Debug, Serialize)]
pub(super) struct PlaceRow {
    policy: String,
    most: u64,
    most_at_us: u64,
    pub(super) most_of_one: u64,
    most_of_one_at_us: u64,
    caller: String,
}

impl PlaceRow {
    pub(super) const NAMES: [&str; 6] = [
        "policy",
        "at one time",
        "from",
        "of one caller",
        "from",
        "caller",
    ];

    pub(super) fn all(tally: &Tally, names: &[String]) -> Vec<Self> {
        let rows = tally.places.peaks().map(|(policy, most, of_one, by)| Self {
            policy: names[policy].clone(),
            most: most.requests,
            most_at_us: most.at_us,
            most_of_one: of_one.requests,
            most_of_one_at_us: of_one.at_us,
            caller: words(by),
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 6] {
        [
            self.policy.clone(),
            grouped(self.most),
            moment(self.most_at_us),
            grouped(self.most_of_one),
            moment(self.most_of_one_at_us),
            self.caller.clone(),
        ]
    }
}

/// A refused caller.
#[derive(Debug, Serialize)]
pub(super) struct CallerRow {
    caller: String,
    policy: String,
    pub(super) refused: u64,
    first_us: u64,
    last_us: u64,
    programs: usize,
    /// True if there may be more programs.
    #[serde(skip)]
    pub(super) has_many: bool,
}

impl CallerRow {
    pub(super) const NAMES: [&str; 6] =
        ["caller", "policy", "refused", "first", "last", "programs"];

    /// Those with the most refusals.
    pub(super) fn top(tally: &Tally, names: &[String], most: usize) -> Vec<Self> {
        let callers = tally.top_callers(most).into_iter();
        let rows = callers.map(|(policy, caller, of)| {
            let (programs, has_many) = of.programs();
            Self {
                caller,
                policy: names[policy].clone(),
                refused: of.refused,
                first_us: of.first_us,
                last_us: of.last_us,
                programs,
                has_many,
            }
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 6] {
        let programs = match (self.programs, self.has_many) {
            (0, _) => "?".to_owned(),
            (many, true) => format!("{many} or more"),
            (some, false) => some.to_string(),
        };
        [
            self.caller.clone(),
            self.policy.clone(),
            grouped(self.refused),
            moment(self.first_us),
            moment(self.last_us),
            programs,
        ]
    }
}

/// A path of refused requests.
#[derive(Debug, Serialize)]
pub(super) struct PathRow {
    path: String,
    policy: String,
    pub(super) refused: u64,
}

impl PathRow {
    pub(super) const NAMES: [&str; 3] = ["path", "policy", "refused"];

    /// Those with the most refusals.
    pub(super) fn top(tally: &Tally, names: &[String], most: usize) -> Vec<Self> {
        let routes = tally.top_routes(most).into_iter();
        let rows = routes.map(|(policy, path, refused)| Self {
            path,
            policy: names[policy].clone(),
            refused,
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 3] {
        let (path, policy) = (self.path.clone(), self.policy.clone());
        [path, policy, grouped(self.refused)]
    }
}

/// A caller with requests that two files decide differently.
#[derive(Debug, Serialize)]
pub(super) struct ChangedRow {
    address: String,
    newly_refused: u64,
    no_longer_refused: u64,
}

impl ChangedRow {
    pub(super) const NAMES: [&str; 3] = ["address", "refused now", "pass now"];

    /// Those with the most such requests.
    pub(super) fn top(difference: &Difference, most: usize) -> Vec<Self> {
        let callers = difference.top_callers().into_iter().take(most);
        let rows = callers.map(|(address, newly_refused, no_longer_refused)| Self {
            address,
            newly_refused,
            no_longer_refused,
        });
        rows.collect()
    }

    pub(super) fn cells(&self) -> [String; 3] {
        let (newly, no_longer) = (self.newly_refused, self.no_longer_refused);
        [self.address.clone(), grouped(newly), grouped(no_longer)]
    }
}
