//! The words that callers and observers hear.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{Cause, Event, LimiterBuilder, PlainText, PressureGauge, RateLimitLayer, Shedding};
use tower::{Layer, ServiceExt};

use crate::common::{Strict, at_a_standstill, header};
use crate::shedding::{AT, api, left, of, refused, send, shedding};

#[tokio::test]
async fn refused_callers_are_told_the_operator_s_wait_and_never_less() {
    let wait = Duration::from_secs(30);
    let gauge = PressureGauge::new();
    let limiter = shedding(&gauge, Shedding::at(AT).retry_after(wait))
        .build()
        .unwrap();
    let usual = shedding(&gauge, AT).build().unwrap();
    gauge.set(1.0);
    let layer = || RateLimitLayer::new(&limiter);
    let cases = [
        // Of thirty-one times that are about as likely, two hundred callers miss twenty-one once in 10^80 runs.
        (layer(), 30..=60, 10),
        (layer().respond(PlainText), 30..=60, 10),
        (layer().without_headers(), 30..=60, 10),
        (layer().jitter(Duration::from_secs(10)), 30..=40, 5),
        (layer().jitter(Duration::ZERO), 30..=30, 1),
        (RateLimitLayer::new(&usual), 5..=10, 2),
    ];
    for (layer, expected, different) in cases {
        let service = layer.layer(Strict::default());
        let mut told = BTreeSet::new();
        for _ in 0..200 {
            let answer = service.clone().oneshot(of("batch")).await.unwrap();
            let seconds: u64 = header(&answer, "retry-after").parse().unwrap();
            assert!(expected.contains(&seconds), "{seconds} of {expected:?}");
            told.insert(seconds);
        }
        assert!(told.len() >= different, "{told:?} of {expected:?}");
    }
}

/// The cause of an event, its class, and true if it was enforced.
type Heard = (Cause, Option<String>, bool);

fn listening(builder: LimiterBuilder) -> (LimiterBuilder, Arc<Mutex<Vec<Heard>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let builder = builder.observe(move |event: &Event<'_>| {
        let is_shed = event.cause() == Cause::Shed;
        assert_eq!(event.policy().is_empty(), is_shed);
        assert!(
            !is_shed
                || (event.key().is_none() && event.quota().is_none() && event.verdict().is_none())
        );
        let class = event.class().map(str::to_owned);
        ear.lock()
            .unwrap()
            .push((event.cause(), class, event.is_enforced()));
    });
    (builder, heard)
}

#[tokio::test]
async fn an_observer_hears_of_each_request_that_is_refused() {
    let gauge = PressureGauge::new();
    let (builder, heard) = listening(shedding(&gauge, AT).policy(api()));
    let limiter = builder.build().unwrap();
    gauge.set(0.7);

    for class in ["batch", "unheard of", "normal"] {
        send(&limiter, of(class)).await;
    }
    limiter
        .check("api", limiter.client_key("10.0.0.1".parse().unwrap()))
        .await
        .unwrap();
    limiter
        .check("api", limiter.client_key("10.0.0.1".parse().unwrap()))
        .probe()
        .await
        .unwrap();

    let shed = |enforced| (Cause::Shed, Some("batch".to_owned()), enforced);
    assert_eq!(
        *heard.lock().unwrap(),
        [
            shed(true),
            shed(true),
            (Cause::Backend, None, true),
            shed(true),
            shed(false)
        ]
    );
}

#[tokio::test]
async fn on_trial_a_request_is_heard_of_let_in_and_charged() {
    let gauge = PressureGauge::new();
    let (builder, heard) = listening(shedding(&gauge, Shedding::at(AT).shadow()).policy(api()));
    let limiter = builder.backend(at_a_standstill().0).build().unwrap();
    gauge.set(1.0);

    assert_eq!(refused(&limiter).await, [""; 0]);

    let shed = |class: &str| (Cause::Shed, Some(class.to_owned()), false);
    let decided = || (Cause::Backend, None, true);
    assert_eq!(
        *heard.lock().unwrap(),
        [
            decided(),
            shed("normal"),
            decided(),
            shed("batch"),
            decided()
        ]
    );
    assert_eq!(left(&limiter).await, 6);
}
