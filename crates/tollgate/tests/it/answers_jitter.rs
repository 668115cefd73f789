//! Callers that were refused together are not all told to come back together, and none too early.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Body, Strict, at_a_standstill, from, header};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response};
use tollgate::key::Global;
use tollgate::{
    Ban, HeaderForm, Limiter, PlainText, Policy, Quota, RateLimitHeaders, RateLimitLayer, Share,
};
use tower::{Layer, Service, ServiceExt};

/// One request a minute for all callers, at a time that stands still: the wait is 60 seconds.
fn one_a_minute() -> RateLimitLayer {
    let limiter = Limiter::builder()
        .policy(Policy::new("one", Quota::per_minute(1)).key(Global))
        .backend(at_a_standstill().0);
    RateLimitLayer::new(limiter.build().unwrap())
}

/// The waits of two hundred callers that all come too late.
async fn told<S>(service: S) -> Vec<Response<Body>>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let mut told = Vec::new();
    for _ in 0..=200 {
        let answer = service.clone().oneshot(from("10.0.0.1")).await.unwrap();
        told.push(answer);
    }
    assert_eq!(told.remove(0).status(), 200);
    told
}

fn seconds(response: &Response<Body>) -> u64 {
    header(response, "retry-after").parse().unwrap()
}

#[tokio::test]
async fn callers_are_told_to_wait_for_different_times_and_none_too_short() {
    let up_to_ten = || one_a_minute().jitter(Duration::from_secs(10));
    let cases = [
        // Of eleven times that are as likely, two hundred callers miss seven once in 10^80 runs.
        (up_to_ten(), 60..=70, 5),
        (up_to_ten().respond(PlainText), 60..=70, 5),
        (up_to_ten().without_headers(), 60..=70, 5),
        (up_to_ten().expose_headers(), 60..=70, 5),
        (up_to_ten().headers(HeaderForm::Legacy), 60..=70, 5),
        (one_a_minute().jitter(Share::one_in(2)), 60..=90, 10),
        // Less than a second does not show, but for the rounding.
        (
            one_a_minute().jitter(Duration::from_millis(300)),
            60..=61,
            1,
        ),
        (one_a_minute().jitter(Duration::ZERO), 60..=60, 1),
    ];
    for (layer, expected, different) in cases {
        let answers = told(layer.layer(Strict::default())).await;

        let times: BTreeSet<u64> = answers.iter().map(seconds).collect();

        assert!(
            times.iter().all(|time| expected.contains(time)),
            "{times:?}"
        );
        assert!(times.len() >= different, "{times:?}");
    }
}

#[tokio::test]
async fn banned_callers_are_told_to_wait_for_different_times_and_none_too_short() {
    // given a caller whose first denial bans for a quarter of an hour
    let banning = |ban: Ban| {
        let policy = Policy::new("one", Quota::per_minute(1))
            .key(Global)
            .ban(ban);
        let limiter = Limiter::builder().policy(policy);
        let limiter = limiter.backend(at_a_standstill().0).build();
        RateLimitLayer::new(limiter.unwrap())
    };
    let ban = Ban::after(1, Duration::from_secs(60)).lasting(Duration::from_secs(900));
    let cases = [
        (banning(ban).jitter(Duration::from_secs(10)), 900..=910, 5),
        (banning(ban).jitter(Share::one_in(2)), 900..=1_350, 10),
        (
            banning(ban.extending()).jitter(Duration::from_secs(10)),
            900..=910,
            5,
        ),
        (banning(ban), 900..=900, 1),
    ];
    for (layer, expected, different) in cases {
        let answers = told(layer.layer(Strict::default())).await;

        let times: BTreeSet<u64> = answers.iter().map(seconds).collect();

        assert!(
            times.iter().all(|time| expected.contains(time)),
            "{times:?}"
        );
        assert!(times.len() >= different, "{times:?}");
    }
}

#[tokio::test]
async fn the_fields_tell_the_same_time_whoever_writes_them() {
    let layer = || one_a_minute().jitter(Duration::from_secs(1000));
    let draft_06 = RateLimitHeaders::new([HeaderForm::Draft11, HeaderForm::Draft06]);
    let layers = [
        layer(),
        layer().respond(PlainText),
        layer().headers(RateLimitHeaders::default().of_all_policies()),
        layer().headers(draft_06),
    ];
    for layer in layers {
        for answer in told(layer.layer(Strict::default())).await {
            let wait = seconds(&answer);
            assert_eq!(
                header(&answer, "ratelimit"),
                format!("\"one\";r=0;t={wait}")
            );
            let reset = header(&answer, "ratelimit-reset");
            assert!(reset.is_empty() || reset == wait.to_string());
        }
    }
    // nor does it matter that another layer writes for both
    let outer = RateLimitLayer::new(Policy::new("all", Quota::per_second(1000)).key(Global));
    for answer in told(outer.layer(layer().layer(Strict::default()))).await {
        let wait = seconds(&answer);
        assert_eq!(
            header(&answer, "ratelimit"),
            format!("\"one\";r=0;t={wait}")
        );
    }
}

#[tokio::test]
async fn the_unix_time_is_that_of_retry_after() {
    // given a clock that stands at a whole second
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(Policy::new("one", Quota::per_minute(1)).key(Global))
        .backend(backend);
    let layer = RateLimitLayer::new(limiter.build().unwrap()).headers(HeaderForm::Legacy);
    let us = tollgate::Clock::now(&clock).as_micros();
    clock.advance(Duration::from_micros(us.next_multiple_of(1_000_000) - us));
    let now = tollgate::Clock::now(&clock).as_micros() / 1_000_000;

    let layer = layer.jitter(Duration::from_secs(1000));
    for answer in told(layer.layer(Strict::default())).await {
        let reset: u64 = header(&answer, "x-ratelimit-reset").parse().unwrap();
        assert_eq!(reset - now, seconds(&answer));
    }
}

#[tokio::test]
async fn a_text_tells_the_time_that_the_header_tells() {
    let layer = one_a_minute().jitter(Duration::from_secs(1000));
    let layer = layer.respond_with(|refusal| {
        let wait = refusal.retry_after().unwrap();
        let seconds = wait.as_micros().div_ceil(1_000_000).to_string();
        let mut response = refusal.response("");
        let seconds = HeaderValue::try_from(seconds).unwrap();
        response.headers_mut().insert("x-told", seconds);
        response
    });
    for answer in told(layer.layer(Strict::default())).await {
        assert_eq!(header(&answer, "x-told"), header(&answer, "retry-after"));
    }
}

#[tokio::test]
async fn the_users_own_retry_after_is_what_the_fields_tell() {
    let layer = one_a_minute().respond_with(|refusal| {
        let mut response = refusal.response("");
        let wait = HeaderValue::from_static("7200");
        response.headers_mut().insert(RETRY_AFTER, wait);
        response
    });
    let answer = told(layer.layer(Strict::default())).await.remove(0);
    assert_eq!(header(&answer, "ratelimit"), "\"one\";r=0;t=7200");
}
