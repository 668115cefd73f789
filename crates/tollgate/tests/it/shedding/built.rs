//! The limiters that can be built, and the reasons for those that cannot.

use std::time::Duration;

use tollgate::key::{Global, Header};
use tollgate::{Limiter, PressureGauge, Shedding, key};

use crate::shedding::{AT, CLASSES, api};

#[test]
fn the_most_classes_the_longest_name_and_the_longest_wait_are_allowed() {
    let gauge = PressureGauge::new();
    let mut names: Vec<_> = (0..63).map(|n| format!("c{n}")).collect();
    let longest = "x".repeat(64);
    names.push(longest.clone());
    let day = Duration::from_secs(24 * 60 * 60);
    let builder = Limiter::builder().policy(api()).classes(names, Global);
    let limiter = builder.shed(&gauge, Shedding::at([(longest, 0.5)]).retry_after(day));
    assert!(limiter.build().is_ok());
}

#[test]
fn what_means_nothing_is_refused_with_its_reason() {
    let gauge = PressureGauge::new();
    let builder = || Limiter::builder().policy(api());
    let classes =
        |names: &[&'static str]| builder().classes(names.to_vec(), Header::new("x-class"));
    let at = |at: &[(&'static str, f64)]| classes(&CLASSES).shed(&gauge, Shedding::at(at.to_vec()));
    let batch = || Shedding::at([("batch", 0.7)]);
    let with = |shedding: Shedding| classes(&CLASSES).shed(&gauge, shedding);
    let long = "x".repeat(65);
    let many: Vec<_> = (0..65).map(|n| format!("c{n}")).collect();
    let cases = [
        (
            builder().shed(&gauge, AT),
            "there are no classes to refuse; add `.classes([..], extractor)`",
        ),
        (
            classes(&CLASSES),
            "classes are named, and none is ever refused; add `.shed(pressure, [..])`",
        ),
        (classes(&[]).shed(&gauge, AT), "`classes` names none"),
        (
            at(&AT).classes(CLASSES, Global),
            "`classes` is called twice; a limiter has one order of classes",
        ),
        (
            at(&AT).shed(&gauge, AT),
            "`shed` is called twice; `one.max(other)` is the higher of two signals",
        ),
        (
            builder().classes(many, Global).shed(&gauge, AT),
            "there are 65 classes; a limiter has at most 64",
        ),
        (
            builder()
                .classes(["a", "b", "a"], Global)
                .shed(&gauge, [("b", 0.5)]),
            "class \"a\": two classes have this name",
        ),
        (
            builder()
                .classes(["a", ""], Global)
                .shed(&gauge, [("a", 0.5)]),
            "class \"\": invalid name; use 1 to 64 bytes",
        ),
        (
            builder().classes([long], Global).shed(&gauge, [("a", 0.5)]),
            "class \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": invalid name; use 1 to 64 bytes",
        ),
        (
            at(&[]),
            "no class has a threshold, so that none is ever refused",
        ),
        (
            at(&[("bulk", 0.7)]),
            "class \"bulk\": there is no class of this name; there are critical, normal, batch",
        ),
        (
            at(&[("batch", 0.7), ("batch", 0.8)]),
            "class \"batch\": it has two thresholds",
        ),
        (
            at(&[("batch", 0.0)]),
            "class \"batch\": a threshold of 0 is not above 0 and at most 1",
        ),
        (
            at(&[("batch", -0.5)]),
            "class \"batch\": a threshold of -0.5 is not above 0 and at most 1",
        ),
        (
            at(&[("batch", 1.1)]),
            "class \"batch\": a threshold of 1.1 is not above 0 and at most 1",
        ),
        (
            at(&[("batch", f64::NAN)]),
            "class \"batch\": a threshold of NaN is not above 0 and at most 1",
        ),
        (
            at(&[("batch", 0.9), ("normal", 0.7)]),
            "class \"batch\": it is less important than \"normal\", and its threshold is not lower",
        ),
        (
            at(&[("batch", 0.9), ("normal", 0.9)]),
            "class \"batch\": it is less important than \"normal\", and its threshold is not lower",
        ),
        (
            at(&[("normal", 0.9)]),
            "class \"batch\": it is less important than \"normal\", which is refused, and has no threshold",
        ),
        (
            with(batch().margin(0.7)),
            "class \"batch\": a margin of 0.7 is not below its threshold of 0.7, so that it would never be let in again",
        ),
        (
            with(batch().margin(-0.1)),
            "a margin of -0.1 is not between 0 and 1",
        ),
        (
            with(batch().margin(f64::NAN)),
            "a margin of NaN is not between 0 and 1",
        ),
        (
            with(batch().retry_after(Duration::ZERO)),
            "`retry_after` is 0, so that refused callers come back at once",
        ),
        (
            with(batch().retry_after(Duration::from_secs(86_401))),
            "`retry_after` is longer than a day",
        ),
        (
            builder()
                .classes(["a"], key::Cookie::new("s=id"))
                .shed(&gauge, [("a", 0.5)]),
            "the class of a request: ",
        ),
    ];
    for (builder, reason) in cases {
        let refused = builder.build().unwrap_err().to_string();
        let expected = format!("shedding: {reason}");
        assert!(
            refused == expected || (reason.ends_with(": ") && refused.starts_with(&expected)),
            "{refused}"
        );
    }
    for all_right in [
        at(&[("batch", 0.7), ("normal", 1.0)]),
        at(&[("normal", 0.9), ("batch", 0.7)]),
        classes(&["all"]).shed(&gauge, [("all", 1.0)]),
    ] {
        assert!(all_right.build().is_ok());
    }
}
