//! A pool of answered requests for reuse: two allocations less for each decision.

use std::cell::RefCell;
use std::sync::Arc;

use tollgate_core::Charge;

use crate::name::Names;
use crate::wire::Request;

/// The most requests that a thread keeps: as many as one call takes along, in some forty kilobytes.
const MOST: usize = 64;

/// The longest names, together, that are worth keeping.
const LONGEST_BYTES: usize = 256;

thread_local! {
    static POOL: RefCell<Vec<Arc<Request>>> = const { RefCell::new(Vec::new()) };
}

/// A request for a decision, from the pool or new.
pub(crate) fn take(charges: &[Charge<'_>], names: &Names) -> Arc<Request> {
    let pooled = POOL.try_with(|pooled| pooled.borrow_mut().pop());
    let mut request = pooled.ok().flatten().unwrap_or_default();
    match Arc::get_mut(&mut request) {
        Some(unshared) => unshared.ask(charges, names),
        // A request in the pool has no other holder, whose charges these would replace.
        None => {
            let mut unshared = Request::default();
            unshared.ask(charges, names);
            request = Arc::new(unshared);
        }
    }
    request
}

/// Puts a request into the pool if it has no other holder.
pub(crate) fn put_back(mut request: Arc<Request>) {
    let Some(unshared) = Arc::get_mut(&mut request) else {
        return;
    };
    unshared.forget();
    if unshared.names.iter().map(Vec::capacity).sum::<usize>() > LONGEST_BYTES {
        return;
    }
    // A thread that ends keeps nothing.
    let _ = POOL.try_with(|pooled| {
        let mut pooled = pooled.borrow_mut();
        if pooled.len() < MOST {
            pooled.push(request);
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
        let first = take(&[charge(&long), charge(&other)], &names);
        let place = Arc::as_ptr(&first);
        put_back(first);

        let again = take(&[charge(&short)], &names);

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
        let first = take(&[charge(&held)], &names);
        put_back(Arc::clone(&first));

        let second = take(&[charge(&other)], &names);

        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(first.names[..], [names.of(charge(&held).scope, &held)]);
    }

    #[test]
    fn long_names_are_not_kept() {
        let names = Names::new("tollgate".to_owned());
        let long = [b'x', b'y'].map(|byte| Key::bytes(&[byte; Key::MAX_LEN - 1]));

        put_back(take(&long.each_ref().map(charge), &names));

        assert_eq!(POOL.with_borrow(Vec::len), 0);
    }
}
