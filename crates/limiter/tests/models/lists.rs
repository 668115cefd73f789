//! Lists that change while they are read.

use loom::thread;

use crate::key::list::KeyList;
use tollgate::Key;
use tollgate_testkit::models::in_every_order;

#[test]
fn no_change_of_a_list_is_lost_and_none_is_seen_in_part() {
    in_every_order(|| {
        let list = KeyList::new();
        list.insert("a");

        let adding = thread::spawn({
            let list = list.clone();
            move || list.insert("b")
        });
        let removing = thread::spawn({
            let list = list.clone();
            move || list.remove("a")
        });
        let has = |key| list.contains(&Key::from(key));
        let had_b = has("b");
        // A key that was there is not gone again.
        assert!(!had_b || has("b"));
        adding.join().unwrap();
        removing.join().unwrap();

        assert_eq!([has("a"), has("b")], [false, true]);
    });
}
