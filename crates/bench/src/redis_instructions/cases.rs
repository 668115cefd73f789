//! The cases of decisions whose cost to redis-server is counted, with their bounds.

use std::time::Duration;

use tollgate_core::{Algorithm, Calendar, Quota, Zone};

/// Quotas whose intervals are whole µs: one that nothing here uses up, and one that is used up at once. The next two have odd
/// intervals.
pub(super) const PLENTY: Quota = Quota::per_day(86_400_000).burst(10_000_000);
const LITTLE: Quota = Quota::per_day(1);
/// One that nothing uses up, and one that the first rounds use up.
const KEPT: [Quota; 2] = [PLENTY, Quota::per_day(10)];
/// Windows of which a tenth can be kept.
const KEPT_WINDOWS: [Quota; 2] = [
    Quota::per_day(1_024).using(FIXED_WINDOW),
    Quota::per_day(10).using(FIXED_WINDOW),
];
/// Budgets that warm up.
const WARMING: [Quota; 2] = [
    PLENTY.warm_up(Duration::from_secs(3_600)),
    Quota::per_hour(10).warm_up(Duration::from_secs(3_600)),
];
const ODD_PLENTY: Quota = Quota::per_day(999_983).burst(50_000);
const ODD_LITTLE: Quota = Quota::new(7, Duration::from_secs(86_400)).burst(1);

/// A case, with the bounds that the project has set for an allowed and a denied decision.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) requests: u32,
    pub(super) one_key: bool,
    pub(super) shared: bool,
    /// A second quota of the same caller.
    pub(super) second: bool,
    pub(super) beside: Option<Beside>,
    pub(super) quotas: [Quota; 2],
    pub(super) bounds: [Option<u64>; 2],
}

/// A rule beside the quota, and the case without it.
pub(super) struct Beside {
    pub(super) rule: Rule,
    pub(super) plain: &'static str,
    /// The most that a decision may cost, allowed and denied, by one without the rule. Infinite without a bound.
    pub(super) times: [f64; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// On the denied side the callers are banned.
    Ban,
    /// And each of their requests begins the ban anew.
    Extending,
    /// A percentage of the budget is kept: every second round is by the important, and the others by all others.
    Share(u64),
    /// Another algorithm than the case beside it.
    Refill,
    /// A grant of as much as there is: at least one unit, and at most so many.
    UpTo(u64),
    /// An id that was never seen before.
    NewId,
    /// Requests with the same ids each time, so that most are replays.
    Replay,
    /// The decide form, which tells a gateway what came out, in place of the words of the Rust client.
    DecideForm,
}

/// No more than 1.3 of a decision of the client.
const fn decide_form(plain: &'static str) -> Option<Beside> {
    Some(Beside {
        rule: Rule::DecideForm,
        plain,
        times: [1.3, 1.3],
    })
}

const fn ban(plain: &'static str) -> Option<Beside> {
    Some(Beside {
        rule: Rule::Ban,
        plain,
        times: [1.5, 1.2],
    })
}

const fn extending(plain: &'static str) -> Option<Beside> {
    Some(Beside {
        rule: Rule::Extending,
        plain,
        times: [1.5, 1.2],
    })
}

const fn refill(plain: &'static str) -> Option<Beside> {
    Some(Beside {
        rule: Rule::Refill,
        plain,
        times: [1.2, 1.2],
    })
}

const fn share(percent: u64, plain: &'static str) -> Option<Beside> {
    Some(Beside {
        rule: Rule::Share(percent),
        plain,
        times: [1.05, 1.05],
    })
}

const fn up_to(plain: &'static str) -> Option<Beside> {
    Some(Beside {
        rule: Rule::UpTo(3),
        plain,
        times: [1.3, 1.3],
    })
}

const fn once(rule: Rule, plain: &'static str) -> Option<Beside> {
    // No replay is denied.
    let denied = match rule {
        Rule::NewId => 1.8,
        _ => f64::INFINITY,
    };
    Some(Beside {
        rule,
        plain,
        times: [1.8, denied],
    })
}

const CASE: Case = Case {
    name: "",
    requests: 64,
    one_key: false,
    shared: false,
    second: false,
    beside: None,
    quotas: [PLENTY, LITTLE],
    bounds: [None, None],
};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "64 keys in a call",
        bounds: [Some(18_500), Some(7_000)],
        ..CASE
    },
    Case {
        name: "64 keys, odd quota",
        quotas: [ODD_PLENTY, ODD_LITTLE],
        bounds: [Some(20_000), Some(9_000)],
        ..CASE
    },
    Case {
        name: "64 for one hot key",
        one_key: true,
        bounds: [Some(1_500), Some(1_500)],
        ..CASE
    },
    Case {
        name: "64 own + global",
        shared: true,
        bounds: [Some(27_000), Some(16_000)],
        ..CASE
    },
    Case {
        name: "alone",
        requests: 1,
        ..CASE
    },
    Case {
        name: "alone, odd quota",
        requests: 1,
        quotas: [ODD_PLENTY, ODD_LITTLE],
        ..CASE
    },
    Case {
        name: "alone, own + global",
        requests: 1,
        shared: true,
        ..CASE
    },
    Case {
        name: "64 keys with a ban",
        beside: ban("64 keys in a call"),
        ..CASE
    },
    Case {
        name: "64 for one hot key with a ban",
        one_key: true,
        beside: ban("64 for one hot key"),
        ..CASE
    },
    Case {
        name: "alone, with a ban",
        requests: 1,
        beside: ban("alone"),
        ..CASE
    },
    Case {
        name: "64 keys with a ban that each knock extends",
        beside: extending("64 keys in a call"),
        ..CASE
    },
    Case {
        name: "alone, with a ban that each knock extends",
        requests: 1,
        beside: extending("alone"),
        ..CASE
    },
    Case {
        name: "64 own + global, with a ban",
        shared: true,
        beside: ban("64 own + global"),
        ..CASE
    },
    Case {
        name: "alone, own + global, with a ban",
        requests: 1,
        shared: true,
        beside: ban("alone, own + global"),
        ..CASE
    },
    Case {
        name: "64 keys of two quotas",
        second: true,
        ..CASE
    },
    Case {
        name: "64 keys of two quotas, with a ban",
        second: true,
        beside: ban("64 keys of two quotas"),
        ..CASE
    },
    Case {
        name: "alone, two quotas",
        requests: 1,
        second: true,
        ..CASE
    },
    Case {
        name: "alone, two quotas, with a ban",
        requests: 1,
        second: true,
        beside: ban("alone, two quotas"),
        ..CASE
    },
    Case {
        name: "64 keys with a share",
        quotas: KEPT,
        beside: share(10, "64 keys in a call"),
        ..CASE
    },
    // A power of two lies between the full drains of the two classes, so that each finds a state with the other's tag.
    Case {
        name: "64 keys with a share, two tags",
        quotas: KEPT,
        beside: share(20, "64 keys in a call"),
        ..CASE
    },
    Case {
        name: "alone, with a share",
        requests: 1,
        quotas: KEPT,
        beside: share(10, "alone"),
        ..CASE
    },
    Case {
        name: "alone, with a share, two tags",
        requests: 1,
        quotas: KEPT,
        beside: share(20, "alone"),
        ..CASE
    },
    Case {
        name: "64 for one hot key with a share",
        one_key: true,
        quotas: KEPT,
        beside: share(10, "64 for one hot key"),
        ..CASE
    },
    Case {
        name: "64 keys, as much as there is",
        beside: up_to("64 keys in a call"),
        ..CASE
    },
    Case {
        name: "64 for one hot key, as much as there is",
        one_key: true,
        beside: up_to("64 for one hot key"),
        ..CASE
    },
    Case {
        name: "alone, as much as there is",
        requests: 1,
        beside: up_to("alone"),
        ..CASE
    },
    Case {
        name: "64 keys with new ids",
        beside: once(Rule::NewId, "64 keys in a call"),
        ..CASE
    },
    Case {
        name: "64 keys with ids that come again",
        beside: once(Rule::Replay, "64 keys in a call"),
        ..CASE
    },
    Case {
        name: "alone, with a new id",
        requests: 1,
        beside: once(Rule::NewId, "alone"),
        ..CASE
    },
    Case {
        name: "alone, with an id that comes again",
        requests: 1,
        beside: once(Rule::Replay, "alone"),
        ..CASE
    },
    Case {
        name: "64 budgets that warm up",
        quotas: WARMING,
        ..CASE
    },
    Case {
        name: "a budget that warms up, alone",
        requests: 1,
        quotas: WARMING,
        ..CASE
    },
    Case {
        name: "64 fixed windows",
        quotas: by(FIXED_WINDOW),
        ..CASE
    },
    Case {
        name: "64 fixed windows with a share",
        quotas: KEPT_WINDOWS,
        beside: share(10, "64 fixed windows"),
        ..CASE
    },
    Case {
        name: "64 sliding windows",
        quotas: by(Algorithm::SlidingWindow),
        ..CASE
    },
    Case {
        name: "64 rolling windows of 10",
        quotas: by(Algorithm::RollingWindow { buckets: 10 }),
        ..CASE
    },
    Case {
        name: "64 rolling windows of 128",
        quotas: by(Algorithm::RollingWindow { buckets: 128 }),
        ..CASE
    },
    Case {
        name: "64 sliding logs",
        quotas: by(Algorithm::SlidingLog),
        ..CASE
    },
    Case {
        name: "a fixed window alone",
        requests: 1,
        quotas: by(FIXED_WINDOW),
        ..CASE
    },
    Case {
        name: "64 fixed windows with a ban",
        quotas: by(FIXED_WINDOW),
        beside: ban("64 fixed windows"),
        ..CASE
    },
    Case {
        name: "a fixed window alone, with a ban",
        requests: 1,
        quotas: by(FIXED_WINDOW),
        beside: ban("a fixed window alone"),
        ..CASE
    },
    Case {
        name: "64 interval refills",
        quotas: by(INTERVAL_REFILL),
        beside: refill("64 fixed windows"),
        ..CASE
    },
    Case {
        name: "an interval refill alone",
        requests: 1,
        quotas: by(INTERVAL_REFILL),
        beside: refill("a fixed window alone"),
        ..CASE
    },
    Case {
        name: "64 days of a calendar",
        quotas: by(CALENDAR),
        beside: refill("64 fixed windows"),
        ..CASE
    },
    Case {
        name: "a day of a calendar alone",
        requests: 1,
        quotas: by(CALENDAR),
        beside: refill("a fixed window alone"),
        ..CASE
    },
    // Beside other quotas, as much as there is and ids take the script's general way.
    Case {
        name: "64 keys, odd quota, as much as there is",
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: up_to("64 keys, odd quota"),
        ..CASE
    },
    Case {
        name: "64 keys, odd quota, with new ids",
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: once(Rule::NewId, "64 keys, odd quota"),
        ..CASE
    },
    Case {
        name: "64 keys, odd quota, with ids that come again",
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: once(Rule::Replay, "64 keys, odd quota"),
        ..CASE
    },
    Case {
        name: "alone, odd quota, as much as there is",
        requests: 1,
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: up_to("alone, odd quota"),
        ..CASE
    },
    Case {
        name: "alone, odd quota, with a new id",
        requests: 1,
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: once(Rule::NewId, "alone, odd quota"),
        ..CASE
    },
    Case {
        name: "alone, odd quota, with an id that comes again",
        requests: 1,
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: once(Rule::Replay, "alone, odd quota"),
        ..CASE
    },
    Case {
        name: "64 keys of two quotas, as much as there is",
        second: true,
        beside: up_to("64 keys of two quotas"),
        ..CASE
    },
    Case {
        name: "64 keys of two quotas, with new ids",
        second: true,
        beside: once(Rule::NewId, "64 keys of two quotas"),
        ..CASE
    },
    Case {
        name: "64 keys of two quotas, with ids that come again",
        second: true,
        beside: once(Rule::Replay, "64 keys of two quotas"),
        ..CASE
    },
    Case {
        name: "alone, two quotas, as much as there is",
        requests: 1,
        second: true,
        beside: up_to("alone, two quotas"),
        ..CASE
    },
    Case {
        name: "alone, two quotas, with a new id",
        requests: 1,
        second: true,
        beside: once(Rule::NewId, "alone, two quotas"),
        ..CASE
    },
    Case {
        name: "alone, two quotas, with an id that comes again",
        requests: 1,
        second: true,
        beside: once(Rule::Replay, "alone, two quotas"),
        ..CASE
    },
    Case {
        name: "64 fixed windows, as much as there is",
        quotas: by(FIXED_WINDOW),
        beside: up_to("64 fixed windows"),
        ..CASE
    },
    Case {
        name: "64 fixed windows, with new ids",
        quotas: by(FIXED_WINDOW),
        beside: once(Rule::NewId, "64 fixed windows"),
        ..CASE
    },
    Case {
        name: "64 fixed windows, with ids that come again",
        quotas: by(FIXED_WINDOW),
        beside: once(Rule::Replay, "64 fixed windows"),
        ..CASE
    },
    Case {
        name: "a fixed window alone, as much as there is",
        requests: 1,
        quotas: by(FIXED_WINDOW),
        beside: up_to("a fixed window alone"),
        ..CASE
    },
    Case {
        name: "a fixed window alone, with a new id",
        requests: 1,
        quotas: by(FIXED_WINDOW),
        beside: once(Rule::NewId, "a fixed window alone"),
        ..CASE
    },
    Case {
        name: "a fixed window alone, with an id that comes again",
        requests: 1,
        quotas: by(FIXED_WINDOW),
        beside: once(Rule::Replay, "a fixed window alone"),
        ..CASE
    },
    Case {
        name: "64 sliding windows, as much as there is",
        quotas: by(Algorithm::SlidingWindow),
        beside: up_to("64 sliding windows"),
        ..CASE
    },
    Case {
        name: "64 sliding windows, with new ids",
        quotas: by(Algorithm::SlidingWindow),
        beside: once(Rule::NewId, "64 sliding windows"),
        ..CASE
    },
    Case {
        name: "64 sliding windows, with ids that come again",
        quotas: by(Algorithm::SlidingWindow),
        beside: once(Rule::Replay, "64 sliding windows"),
        ..CASE
    },
    Case {
        name: "alone, in the decide form",
        requests: 1,
        beside: decide_form("alone"),
        ..CASE
    },
    Case {
        name: "alone, odd quota, in the decide form",
        requests: 1,
        quotas: [ODD_PLENTY, ODD_LITTLE],
        beside: decide_form("alone, odd quota"),
        ..CASE
    },
];

const FIXED_WINDOW: Algorithm = Algorithm::FixedWindow {
    offset: Duration::ZERO,
};

const INTERVAL_REFILL: Algorithm = Algorithm::IntervalRefill {
    offset: Duration::ZERO,
};

const CALENDAR: Algorithm = Algorithm::Calendar(Calendar::day(Zone::UTC));

/// The largest limit of a log, which nothing here uses up, and a limit of one.
const fn by(algorithm: Algorithm) -> [Quota; 2] {
    [
        Quota::per_day(1_024).using(algorithm),
        Quota::per_day(1).using(algorithm),
    ]
}

/// The case without the rule that this one has beside its quota, and the most that the rule may cost, allowed and denied, by that.
pub(crate) fn plain(name: &str) -> Option<(&'static str, [f64; 2])> {
    let case = CASES.iter().find(|case| case.name == name)?;
    let beside = case.beside.as_ref()?;
    Some((beside.plain, beside.times))
}

/// The bound.
pub(crate) fn bounds(name: &str) -> [Option<u64>; 2] {
    let case = CASES.iter().find(|case| case.name == name);
    case.map_or([None; 2], |case| case.bounds)
}
