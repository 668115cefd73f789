//! The room that the blocks of many budgets take.

use tollgate_core::{Lease, Mode, Quota};

use super::shelves::{MOST, SHELVES};
use super::*;

#[test]
fn a_flood_of_callers_fills_the_shelves_and_leaves_room_once_it_is_over() {
    let (shelves, lease) = (Shelves::new(), Lease::up_to(100));
    let quota = Quota::per_second(1_000);
    let comes = |caller: u64, now_us: u64| {
        let key = Key::from(caller);
        let charge = Charge {
            scope: Scope::of("flooded", 0, &quota),
            quota: &quota,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let place = shelves.place(charge.scope, &key);
        let mut shelf = shelves.shelf(place);
        shelf.find(place).is_some() || shelf.made(place, &charge, &lease, now_us).is_some()
    };
    let stand = |now_us| (0..100_000).filter(|caller| comes(*caller, now_us)).count();

    // Each shelf gets its share of the callers, and more than it has room for.
    assert_eq!(stand(0), SHELVES * MOST);
    assert!(!comes(1_000_000, 99_999));
    assert!(comes(1_000_000, 200_000));
    // The earlier ones make room, and no more stand here than before.
    stand(400_000);
    assert_eq!(stand(400_001), SHELVES * MOST);
}
