//! Requests that have been answered, to be used again: two allocations less for each decision.

use std::cell::RefCell;
use std::sync::Arc;

use tollgate_core::Charge;

use crate::name::Names;
use crate::wire::Request;

/// So many a thread keeps at most: what one call takes along, in some forty kilobytes.
const MOST: usize = 64;

/// The longest names, together, that are worth keeping.
const LONGEST_BYTES: usize = 256;

thread_local! {
    static SPARE: RefCell<Vec<Arc<Request>>> = const { RefCell::new(Vec::new()) };
}

/// A request for a decision.
pub(crate) fn request(charges: &[Charge<'_>], names: &Names) -> Arc<Request> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    let mut request = spare.ok().flatten().unwrap_or_default();
    match Arc::get_mut(&mut request) {
        Some(unshared) => unshared.ask(charges, names),
        // Nobody else holds what is spare; but if anybody did, this one's charges would be asked for that one's.
        None => {
            let mut unshared = Request::default();
            unshared.ask(charges, names);
            request = Arc::new(unshared);
        }
    }
    request
}

/// Keeps one that nobody else holds any more.
pub(crate) fn keep(mut request: Arc<Request>) {
    let Some(unshared) = Arc::get_mut(&mut request) else {
        return;
    };
    unshared.forget();
    if unshared.names.iter().map(Vec::capacity).sum::<usize>() > LONGEST_BYTES {
        return;
    }
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MOST {
            spare.push(request);
        }
    });
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Key, Mode, Quota, Scope};

    use super::*;
    use crate::wire::Work;

    const QUOTA: Quota = Quota::per_second(10);

    fn charge(key: &Key) -> Charge<'_> {
        Charge {
            scope: Scope::of("api", 0, &QUOTA),
            quota: &QUOTA,
            key,
            cost: 1,
            mode: Mode::Enforce,
        }
    }

    #[test]
    fn a_request_that_is_used_again_asks_nothing_of_what_it_asked_before() {
        let names = Names::new("tollgate".to_owned());
        let (long, other, short) = (Key::from("a-long-name"), Key::from("other"), Key::from("b"));
        let first = request(&[charge(&long), charge(&other)], &names);
        let place = Arc::as_ptr(&first);
        keep(first);

        let again = request(&[charge(&short)], &names);

        assert_eq!(Arc::as_ptr(&again), place);
        assert_eq!(again.names[..], [names.of(charge(&short).scope, &short)]);
        let Work::Decide(charges) = &again.work else {
            panic!("{again:?}");
        };
        assert_eq!(charges.len(), 1);
        assert_eq!(charges[0].borrow().key, &short);
    }

    #[test]
    fn what_somebody_still_holds_is_not_used_again() {
        let names = Names::new("tollgate".to_owned());
        let (held, other) = (Key::from("held"), Key::from("other"));
        let first = request(&[charge(&held)], &names);
        keep(Arc::clone(&first));

        let second = request(&[charge(&other)], &names);

        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(first.names[..], [names.of(charge(&held).scope, &held)]);
    }

    #[test]
    fn long_names_are_not_kept() {
        let names = Names::new("tollgate".to_owned());
        let long = [b'x', b'y'].map(|byte| Key::bytes(&[byte; Key::MAX_LEN - 1]));

        keep(request(&long.each_ref().map(charge), &names));

        assert_eq!(SPARE.with_borrow(Vec::len), 0);
    }
}
