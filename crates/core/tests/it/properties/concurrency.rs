//! Places that are kept: under a limit on how many at once the classes before another find the places that it leaves, whatever is
//! given back and however the clock steps.

use proptest::prelude::*;
use tollgate_core::{Mode, Receipt};

use crate::properties::priorities::{Classes, classes};
use crate::support::budget::Budget;
use crate::support::quotas;
use crate::support::runner::check;
use crate::support::steps::{Amount, amounts, starts};

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request of a class asks for this many places, or whether they are free.
    Ask(usize, Amount, Mode),
    /// A request ends, and gives all of its places back.
    End(usize),
    /// A part of a request's places comes back. It keeps the others for as long as the key is remembered.
    Credit(usize, Amount),
    /// A request costs more than it was charged, which holds nothing.
    Debit(usize, Amount),
    /// The clock shows another time, earlier or later.
    Clock(u64),
    /// The key is forgotten, while requests go on.
    Reset,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let modes = prop_oneof![6 => Just(Mode::Enforce), 1 => Just(Mode::Probe)];
    let event = prop_oneof![
        12 => (0_usize..3, amounts(), modes).prop_map(|(class, n, mode)| Event::Ask(class, n, mode)),
        8 => any::<usize>().prop_map(Event::End),
        2 => (any::<usize>(), amounts()).prop_map(|(which, n)| Event::Credit(which, n)),
        1 => (any::<usize>(), amounts()).prop_map(|(which, n)| Event::Debit(which, n)),
        3 => starts().prop_map(Event::Clock),
        1 => Just(Event::Reset),
    ];
    prop::collection::vec(event, 1..60)
}

/// A request that holds places.
struct Running {
    class: usize,
    units: u64,
    receipt: Receipt,
    /// False if its key was reset since, so that its end frees nothing.
    counts: bool,
}

/// One state, which all classes ask, and the requests that hold places of it.
struct Shared {
    classes: Classes,
    budget: Budget,
    now: u64,
    latest: u64,
    running: Vec<Running>,
    /// The places that each class holds by the requests since the last reset.
    held: [u64; 3],
}

impl Shared {
    fn new(classes: Classes, now: u64) -> Self {
        Self {
            classes,
            budget: Budget::full(classes[0].0),
            now,
            latest: now,
            running: Vec::new(),
            held: [0; 3],
        }
    }

    fn total(&self) -> u64 {
        self.held.iter().sum()
    }

    /// The budget as a class sees it.
    fn seen_by(&self, class: usize) -> Budget {
        Budget {
            quota: self.classes[class].0,
            state: self.budget.state.clone(),
        }
    }

    fn ask(&mut self, class: usize, amount: Amount, mode: Mode) -> Result<(), TestCaseError> {
        let ((whole, _), (quota, kept)) = (self.classes[0], self.classes[class]);
        let limit = whole.limit();
        self.budget.quota = quota;
        let cost = amount.units(&self.budget, self.now);
        let before = self.total();

        let (decision, receipt) = self.budget.decide(self.now, cost, mode);

        let verdict = decision.verdicts()[0];
        let passes = cost == 0 || cost <= limit && before + kept + cost <= limit;
        prop_assert_eq!(
            verdict.is_allowed(),
            passes,
            "{} places beside {} of {}, of which {} are kept",
            cost,
            before,
            limit,
            kept
        );
        if let Some(receipt) = receipt {
            self.held[class] += cost;
            self.running.push(Running {
                class,
                units: cost,
                receipt,
                counts: true,
            });
        }
        prop_assert_eq!(
            verdict.remaining(),
            (limit - kept).saturating_sub(self.total())
        );
        Ok(())
    }

    /// Gives back at most so many places of a request, which ends.
    fn ends(&mut self, which: usize, amount: Option<Amount>) {
        if self.running.is_empty() {
            return;
        }
        let which = which % self.running.len();
        let request = self.running.swap_remove(which);
        let units = amount.map_or(request.units, |n| n.units(&self.seen_by(0), self.now));
        self.budget.refund(self.now, &request.receipt, units);
        if request.counts {
            self.held[request.class] -= units.min(request.units);
        }
    }

    /// A receipt is known by the time at which the first of the held places was taken. In one process the clock never steps back,
    /// so no later stretch begins at that time.
    fn reset(&mut self) {
        self.now = self.latest + 1;
        self.budget = Budget::full(self.classes[0].0);
        self.held = [0; 3];
        for request in &mut self.running {
            request.counts = false;
        }
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Ask(class, amount, mode) => self.ask(class, amount, mode)?,
            Event::End(which) => self.ends(which, None),
            Event::Credit(which, amount) => self.ends(which, Some(amount)),
            Event::Debit(which, amount) => {
                let units = amount.units(&self.seen_by(0), self.now);
                if let Some(request) = self.running.get(which % self.running.len().max(1)) {
                    self.budget.debit(self.now, &request.receipt, units);
                }
            }
            // A few times the present would be later than any time that is told apart.
            Event::Clock(time) if self.is_reset() => self.now = self.latest + time % DAY_US,
            Event::Clock(time) => self.now = time,
            Event::Reset => self.reset(),
        }
        self.latest = self.latest.max(self.now);
        Ok(())
    }

    fn is_reset(&self) -> bool {
        self.running.iter().any(|request| !request.counts)
    }

    /// No class and those behind it hold what is kept from them, and the classes before them can take it.
    fn is_kept(&self) -> Result<(), TestCaseError> {
        let limit = self.classes[0].0.limit();
        for (class, (_, kept)) in self.classes.into_iter().enumerate() {
            let of_these: u64 = self.held[class..].iter().sum();
            prop_assert!(
                of_these <= limit - kept,
                "{of_these} places of {limit} are held, of which {kept} are kept"
            );
        }
        for class in 0..2 {
            let ((_, own), (_, next)) = (self.classes[class], self.classes[class + 1]);
            let before: u64 = self.held[..=class].iter().sum();
            if let Some(free) = (next - own).checked_sub(before).filter(|free| *free > 0) {
                let taken = self.seen_by(class).charge(self.now, free).0;
                prop_assert!(taken.is_allowed(), "{free} of the {next} kept places");
            }
        }
        Ok(())
    }
}

#[test]
fn no_class_holds_places_that_are_kept_from_it_whatever_is_given_back_or_stepped() {
    let histories = (classes(quotas::at_once()), starts(), events());
    check(4_000, &histories, |(classes, start, events)| {
        let mut shared = Shared::new(classes, start);
        for event in events {
            shared.step(event)?;
            shared.is_kept()?;
        }
        Ok(())
    });
}
