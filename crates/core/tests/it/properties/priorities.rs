//! Shares that are kept: the classes before another find what is kept for them, whatever is credited and however the clock steps.
//! No share is kept of a quota that warms up.

use proptest::prelude::*;
use tollgate_core::{Algorithm, Quota, QuotaError, Receipt};

use crate::support::budget::{Budget, warms_up};
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Amount, Span, amounts, spans, starts};

/// A quota as three classes see it, the most important first, and the units that each leaves to those before it.
pub(crate) type Classes = [(Quota, u64); 3];

/// This quota with two shares, in sixteenths of a full budget. `None` if nothing would be left.
fn kept(quota: Quota, [first, second]: [u64; 2]) -> Option<Classes> {
    if warms_up(&quota) {
        assert_eq!(quota.try_keeping(0), Err(QuotaError::KeptOfWarmUp));
        return None;
    }
    let units = |sixteenths: u64| (quota.capacity() * sixteenths).div_ceil(16);
    let (normal, other) = (units(first), units(first) + units(second));
    let least = quota.try_keeping(other).ok()?;
    // Buckets that drain in less than two microseconds do not tell each other apart.
    let drain = u128::from(least.capacity()) * least.period().as_micros();
    if quota.algorithm() == Algorithm::Gcra && drain < 2 * u128::from(quota.limit()) {
        return None;
    }
    Some([
        (quota, 0),
        (quota.try_keeping(normal).ok()?, normal),
        (least, other),
    ])
}

/// Three classes of a quota that this draws.
pub(crate) fn classes(quotas: impl Strategy<Value = Quota>) -> impl Strategy<Value = Classes> {
    (quotas, [1_u64..=15, 0_u64..=14])
        .prop_filter_map("nothing is left", |(quota, shares)| kept(quota, shares))
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(Span),
    Back(Span),
    /// A request of a class.
    Ask(usize, Amount),
    /// A part of an admission comes back.
    Credit(usize, Amount),
    /// An admission costs more than it was charged.
    Debit(usize, Amount),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => spans().prop_map(Event::Wait),
        1 => spans().prop_map(Event::Back),
        7 => (0_usize..3, amounts()).prop_map(|(class, amount)| Event::Ask(class, amount)),
        3 => (any::<usize>(), amounts()).prop_map(|(which, amount)| Event::Credit(which, amount)),
        1 => (any::<usize>(), amounts()).prop_map(|(which, amount)| Event::Debit(which, amount)),
    ];
    prop::collection::vec(event, 1..60)
}

/// One state, which all classes ask and correct.
struct Shared {
    classes: Classes,
    budget: Budget,
    now: u64,
    /// True if a denial may forgive something: the clock has stepped back, or more was debited than one class may use.
    may_forgive: bool,
    receipts: Vec<Receipt>,
}

impl Shared {
    fn new(classes: Classes, now: u64) -> Self {
        Self {
            classes,
            budget: Budget::full(classes[0].0),
            now,
            may_forgive: false,
            receipts: Vec::new(),
        }
    }

    /// The rest of the whole budget. The state stays as it is.
    fn left(&self) -> u64 {
        self.whole().peek(self.now).remaining()
    }

    /// The budget as the most important class sees it.
    fn whole(&self) -> Budget {
        Budget {
            quota: self.classes[0].0,
            state: self.budget.state.clone(),
        }
    }

    fn ask(&mut self, class: usize, amount: Amount) -> Result<(), TestCaseError> {
        let (quota, kept) = self.classes[class];
        let now = self.now;
        // Around the point up to which it may pass, or any other cost.
        self.budget.quota = quota;
        let cost = amount.units(&self.budget, now);
        let before = self.left();

        let (verdict, receipt) = self.budget.charge(now, cost);

        let after = self.left();
        self.receipts.extend(receipt);
        if cost == 0 || verdict.is_denied() {
            // A state may lie ahead by eight budgets of the class that wrote it or that asks, and what lies further is cut.
            let gives_nothing = after == before || self.may_forgive && after >= before;
            prop_assert!(gives_nothing, "{} are left of {}", after, before);
        }
        if cost == 0 {
            return Ok(());
        }
        prop_assert_eq!(
            verdict.is_allowed(),
            before >= kept + cost,
            "{} of {} left",
            cost,
            before
        );
        if verdict.is_allowed() {
            prop_assert!(
                after >= kept,
                "{} passed, and {} are left of {}",
                cost,
                after,
                kept
            );
            prop_assert_eq!(verdict.remaining(), after - kept);
        } else {
            prop_assert_eq!(verdict.remaining(), before.saturating_sub(kept));
        }
        Ok(())
    }

    fn correct(&mut self, which: usize, amount: Amount, is_credit: bool) {
        if self.receipts.is_empty() {
            return;
        }
        let which = which % self.receipts.len();
        let now = self.now;
        let n = amount.units(&self.whole(), now);
        if is_credit {
            let receipt = self.receipts.swap_remove(which);
            self.budget.refund(now, &receipt, n);
        } else {
            self.budget.debit(now, &self.receipts[which], n);
            self.may_forgive = true;
        }
    }
}

fn nothing_is_spent_that_is_kept(
    classes: Classes,
    start: u64,
    events: &[Event],
) -> Result<(), TestCaseError> {
    let whole = classes[0].0;
    let mut shared = Shared::new(classes, start);
    for event in events {
        let now = shared.now;
        match *event {
            Event::Wait(span) => shared.now += span.micros(&whole, now),
            Event::Back(span) => {
                shared.now = now.saturating_sub(span.micros(&whole, now));
                shared.may_forgive = true;
            }
            Event::Ask(class, amount) => shared.ask(class, amount)?,
            Event::Credit(which, amount) => shared.correct(which, amount, true),
            Event::Debit(which, amount) => shared.correct(which, amount, false),
        }
    }
    Ok(())
}

#[test]
fn no_class_spends_what_is_kept_from_it_whatever_is_credited_or_stepped() {
    let histories = (classes(quotas::any()), starts(), events());
    check(2_000, &histories, |(classes, start, events)| {
        nothing_is_spent_that_is_kept(classes, start, &events)
    });
}

#[test]
fn no_class_of_a_tiny_budget_spends_what_is_kept_from_it() {
    let histories = (classes(quotas::tiny()), 0_u64..100, events());
    check(2_000, &histories, |(classes, start, events)| {
        nothing_is_spent_that_is_kept(classes, start, &events)
    });
}

#[cfg(feature = "calendar")]
#[test]
fn no_class_spends_what_is_kept_from_it_of_the_days_weeks_and_months_of_a_zone() {
    let calendars = [
        "day in UTC",
        "day in Australia/Lord_Howe",
        "week in Europe/Berlin",
        "month in America/Havana",
    ];
    let limits = prop_oneof![4 => 2_u64..=20, 1 => 2_u64..=1 << 40];
    let quotas = (limits, prop::sample::select(calendars.to_vec()))
        .prop_map(|(limit, calendar)| -> Quota { format!("{limit}/{calendar}").parse().unwrap() });
    let starts = 1_700_000_000_000_000_u64..1_900_000_000_000_000;
    let histories = (classes(quotas), starts, events());
    check(1_000, &histories, |(classes, start, events)| {
        nothing_is_spent_that_is_kept(classes, start, &events)
    });
}
