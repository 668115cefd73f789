//! The shapes of calls.

/// What the requests of a call have in common: the rules of their charges. Their quotas, costs and keys are arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// True for a call of one request.
    pub(super) is_alone: bool,
    /// True if it asks for as much as there is.
    pub(super) is_granting: bool,
    rules: [Option<Rule>; MOST],
}

/// The most charges of a request that has a shape.
pub(crate) const MOST: usize = 3;

/// The verbs of a run that decides, about all or about as much as there is, and the mode of a charge that is enforced.
const DECIDE: u8 = 0;
const GRANT: u8 = 7;
const ENFORCE: u8 = 0;

/// A rule of which the steps can stand in a composed script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    Gcra,
    FixedWindow,
    SlidingWindow,
    RollingWindow,
    Ban,
    IntervalRefill,
    Calendar,
    Once,
}

impl Rule {
    /// The rule of this number in the words of a call, and the length of a charge there.
    fn of(number: u8) -> Option<(Self, usize)> {
        Some(match number {
            1 => (Self::Gcra, 43),
            2 => (Self::FixedWindow, 34),
            3 => (Self::SlidingWindow, 26),
            4 => (Self::RollingWindow, 34),
            8 => (Self::Ban, 48),
            9 => (Self::IntervalRefill, 42),
            10 => (Self::Calendar, 74),
            12 => (Self::Once, 23),
            _ => return None,
        })
    }

    /// The length of its usual states, of which the reply need not ask.
    pub(super) const fn usual_length(self) -> usize {
        match self {
            Self::Gcra => 9,
            Self::FixedWindow => 17,
            Self::SlidingWindow | Self::IntervalRefill | Self::Calendar => 25,
            Self::Ban => 26,
            Self::Once => 18,
            // Longer than the reply's short texts.
            Self::RollingWindow => 0,
        }
    }

    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Gcra => include_str!("../../lua/gcra.lua"),
            Self::FixedWindow => include_str!("../../lua/fixed_window.lua"),
            Self::SlidingWindow => include_str!("../../lua/sliding_window.lua"),
            Self::RollingWindow => include_str!("../../lua/rolling_window.lua"),
            Self::Ban => include_str!("../../lua/ban.lua"),
            Self::IntervalRefill => include_str!("../../lua/interval_refill.lua"),
            Self::Calendar => include_str!("../../lua/calendar.lua"),
            Self::Once => include_str!("../../lua/once.lua"),
        }
    }

    /// Says whether it is that of a budget.
    pub(super) fn is_budget(self) -> bool {
        !matches!(self, Self::Ban | Self::Once)
    }
}

/// Says whether the rule of this number can stand in a composed script.
pub(crate) fn is_composed(number: u8) -> bool {
    Rule::of(number).is_some()
}

impl Shape {
    /// The shape of a call of these runs, which name so many keys; `None` if only the general script decides it.
    pub(crate) fn of(runs: &[Vec<u8>], keys: usize) -> Option<Self> {
        let (first, others) = runs.split_first()?;
        let (is_granting, rules) = rules_of(first)?;
        let are_alike = { others.iter() }.all(|run| rules_of(run) == Some((is_granting, rules)));
        let width = rules.iter().flatten().count();
        // Once, and of each key in their order.
        let numbers = (1..)
            .take(width)
            .eq(first.iter().copied().skip(first.len() - width));
        let is_once = others.is_empty() && first.first() == Some(&1);
        let is_alone = is_once && numbers && keys == width;
        are_alike.then_some(Self {
            is_alone,
            is_granting,
            rules,
        })
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        self.rules.into_iter().flatten()
    }
}

/// The rules of a run's charges, and whether it asks for as much as there is: of one budget. Otherwise there are budgets, behind them
/// at most one ban, and last at most one id.
fn rules_of(run: &[u8]) -> Option<(bool, [Option<Rule>; MOST])> {
    let (is_granting, width, charges) = match *run {
        [_times, DECIDE, width, ref charges @ ..] => (false, width, charges),
        [_times, GRANT, 1, ref charges @ ..] => (true, 1, charges),
        _ => return None,
    };
    let (width, mut charges) = (usize::from(width), charges);
    let mut rules = [None; MOST];
    for rule in rules.get_mut(..width)? {
        let &[number, ENFORCE, ..] = charges else {
            return None;
        };
        let (this, length) = Rule::of(number)?;
        charges = charges.get(length..)?;
        *rule = Some(this);
    }
    let budgets = rules.iter().flatten().take_while(|rule| rule.is_budget());
    let first_other = budgets.count();
    let others = rules.get(first_other..width)?;
    let is_usual = matches!(
        others,
        [] | [Some(Rule::Ban | Rule::Once)] | [Some(Rule::Ban), Some(Rule::Once)]
    );
    (first_other > 0 && is_usual).then_some((is_granting, rules))
}
