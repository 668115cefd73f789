//! The order in which classes are refused, and let in again.

use tollgate::key::{Extension, Global, Header, Query};
use tollgate::{Limiter, Pressure, PressureGauge, Shedding};

use crate::common::from;
use crate::shedding::{AT, CLASSES, api, of, refused, send, shedding};

#[tokio::test]
async fn the_least_important_are_refused_first_and_let_in_again_last() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, AT).build().unwrap();

    let steps: [(f64, &[&str]); 11] = [
        (0.0, &[]),
        (0.699_999, &[]),
        (0.7, &["batch"]),
        (0.899_999, &["batch"]),
        (0.9, &["normal", "batch"]),
        (1.0, &["normal", "batch"]),
        // Each is let in below its threshold less the margin.
        (0.85, &["normal", "batch"]),
        (0.849_999, &["batch"]),
        (0.65, &["batch"]),
        (0.649_999, &[]),
        (0.69, &[]),
    ];
    for (level, expected) in steps {
        gauge.set(level);
        assert_eq!(refused(&limiter).await, expected, "{level}");
    }
}

/// The signal is followed, and not only looked at by requests.
#[tokio::test]
async fn a_peak_between_two_requests_is_remembered_until_the_signal_has_fallen() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, Shedding::at(AT).margin(0.3))
        .build()
        .unwrap();

    gauge.set(1.0);
    gauge.set(0.61);
    assert_eq!(refused(&limiter).await, ["normal", "batch"]);
    gauge.set(0.41);
    assert_eq!(refused(&limiter).await, ["batch"]);
    gauge.set(0.39);
    assert_eq!(refused(&limiter).await, [""; 0]);
}

#[tokio::test]
async fn without_a_margin_a_class_is_let_in_at_once_below_its_threshold() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, Shedding::at(AT).margin(0.0))
        .build()
        .unwrap();

    gauge.set(1.0);
    gauge.set(0.7);
    assert_eq!(refused(&limiter).await, ["batch"]);
    gauge.set(0.699_999);
    assert_eq!(refused(&limiter).await, [""; 0]);
}

#[tokio::test]
async fn pressure_from_before_the_limiter_was_built_counts() {
    let gauge = PressureGauge::new();
    gauge.set(0.8);

    let limiter = shedding(&gauge, AT).build().unwrap();

    assert_eq!(refused(&limiter).await, ["batch"]);
}

/// The caller, as an outer layer has identified it.
#[derive(Clone)]
struct Customer {
    plan: &'static str,
}

#[tokio::test]
async fn a_request_without_a_known_class_is_of_the_last() {
    let gauge = PressureGauge::new();
    gauge.set(0.8);

    let by_header = shedding(&gauge, AT).build().unwrap();
    for odd in ["", "Critical", "critical ,", "critica", "BATCH"] {
        assert_eq!(send(&by_header, of(odd)).await.status(), 503, "{odd:?}");
    }
    assert_eq!(send(&by_header, from("10.0.0.1")).await.status(), 503);
    assert_eq!(send(&by_header, of("normal")).await.status(), 200);

    let by_query = Limiter::builder()
        .classes(CLASSES, Query::new("class"))
        .shed(&gauge, AT)
        .build()
        .unwrap();
    for (query, status) in [
        ("/?class=critical", 200),
        ("/?class=critical&class=batch", 503),
        ("/", 503),
    ] {
        let mut request = from("10.0.0.1");
        *request.uri_mut() = query.parse().unwrap();
        assert_eq!(send(&by_query, request).await.status(), status, "{query}");
    }

    let by_plan = Limiter::builder()
        .classes(CLASSES, Extension::new(|customer: &Customer| customer.plan))
        .shed(&gauge, AT)
        .build()
        .unwrap();
    for (plan, status) in [("critical", 200), ("batch", 503), ("unheard of", 503)] {
        // The caller's own word counts for nothing.
        let mut request = of("critical");
        request.extensions_mut().insert(Customer { plan });
        assert_eq!(send(&by_plan, request).await.status(), status, "{plan}");
    }
}

#[tokio::test]
async fn a_class_that_is_not_named_is_never_refused() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, [("batch", 0.7)]).build().unwrap();
    assert!(!limiter.is_shedding());

    gauge.set(1.0);

    assert!(limiter.is_shedding());
    assert_eq!(refused(&limiter).await, ["batch"]);
}

#[tokio::test]
async fn limiters_that_share_a_signal_have_thresholds_of_their_own() {
    let (gauge, memory) = (PressureGauge::new(), PressureGauge::new());
    let one = shedding(&gauge, AT).build().unwrap();
    let both = Limiter::builder()
        .classes(CLASSES, Header::new("x-class"))
        .shed(Pressure::from(&gauge).max(&memory), [("batch", 0.5)])
        .build()
        .unwrap();

    gauge.set(0.6);
    assert_eq!(refused(&one).await, [""; 0]);
    assert_eq!(refused(&both).await, ["batch"]);
    gauge.set(0.0);
    memory.set(1.0);
    assert_eq!(refused(&one).await, [""; 0]);
    assert_eq!(refused(&both).await, ["batch"]);
    // No task measures any more.
    drop(memory);
    assert_eq!(refused(&both).await, [""; 0]);
}

#[tokio::test]
async fn new_policies_change_nothing_about_what_is_shed() {
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, AT).policy(api()).build().unwrap();
    gauge.set(0.7);

    limiter.replace([api().key(Global)]).unwrap();

    assert_eq!(refused(&limiter).await, ["batch"]);
}
