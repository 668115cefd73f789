//! The states and the charges of one call.

use tollgate_core::{Charge, Mode, State, States};
use tollgate_fire::Budget;

/// The states of a call, one for each budget, however often it is named.
#[derive(Clone)]
pub(super) struct Places {
    all: Vec<(Budget, State)>,
    /// The state of each charge.
    of: Vec<usize>,
}

impl Places {
    pub(super) fn of(places: &[Budget], stored: impl Fn(&Budget) -> State) -> Self {
        let mut all: Vec<(Budget, State)> = Vec::new();
        let of = places.iter().map(|place| {
            let known = all.iter().position(|(budget, _)| budget == place);
            known.unwrap_or_else(|| {
                all.push((*place, stored(place)));
                all.len() - 1
            })
        });
        let of = of.collect();
        Self { all, of }
    }

    pub(super) fn into_all(self) -> Vec<(Budget, State)> {
        self.all
    }
}

impl States for Places {
    fn state(&mut self, index: usize) -> &mut State {
        &mut self.all[self.of[index]].1
    }
}

pub(super) fn turn_shadows(charges: &mut [Charge<'_>], mode: Mode) {
    let shadows = charges.iter_mut();
    let shadows = shadows.filter(|charge| charge.mode == Mode::Shadow);
    shadows.for_each(|charge| charge.mode = mode);
}

/// These charges without the costs of earlier mentions of their budgets.
pub(super) fn firsts<'a>(charges: &[Charge<'a>]) -> Vec<Charge<'a>> {
    let numbered = charges.iter().enumerate();
    let one = |(number, charge): (usize, &Charge<'a>)| {
        let mut before = charges[..number].iter();
        let is_again = before.any(|it| it.scope == charge.scope && it.key == charge.key);
        Charge {
            cost: if is_again { 0 } else { charge.cost },
            ..*charge
        }
    };
    numbered.map(one).collect()
}

/// These charges with the costs that are left over from before.
pub(super) fn heavier<'a>(charges: &[Charge<'a>]) -> Vec<Charge<'a>> {
    let one = |charge: &Charge<'a>| Charge {
        cost: 1,
        mode: Mode::Shadow,
        ..*charge
    };
    charges.iter().map(one).collect()
}
