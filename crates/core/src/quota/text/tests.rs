//! The texts that are read, those that are refused and their sentences, and the form that is written.

use super::*;
use crate::Concurrent;

#[test]
fn the_forms_of_the_documentation_are_read() {
    let refilled = |secs| {
        let offset = Duration::from_secs(secs);
        Quota::per_minute(10).using(Algorithm::IntervalRefill { offset })
    };
    let cases = [
        ("10/s", Quota::per_second(10)),
        ("100/min burst 20", Quota::per_minute(100).burst(20)),
        ("5/10s", Quota::new(5, Duration::from_secs(10))),
        ("5 at once", Concurrent::at_most(5).into()),
        ("5 requests at once", Concurrent::at_most(5).into()),
        ("5 at a time", Concurrent::at_most(5).into()),
        ("5 in flight", Concurrent::at_most(5).into()),
        ("7 IN-FLIGHT", Concurrent::at_most(7).into()),
        ("5 concurrent requests", Concurrent::at_most(5).into()),
        ("1_000_000/day", Quota::per_day(1_000_000)),
        (
            "100/s burst 1 warm up 10s",
            Quota::per_second(100)
                .burst(1)
                .warm_up(Duration::from_secs(10)),
        ),
        (
            "100/s warm up 3s cold factor 20",
            Quota::per_second(100)
                .warm_up(Duration::from_secs(3))
                .cold_factor(20),
        ),
        (
            "2/250ms gcra burst 1",
            Quota::new(2, Duration::from_millis(250)).burst(1),
        ),
        (
            "1000/day sliding-window",
            Quota::per_day(1000).using(Algorithm::SlidingWindow),
        ),
        (
            "  7/hour   sliding-log ",
            Quota::per_hour(7).using(Algorithm::SlidingLog),
        ),
        (
            "9/day fixed-window offset 6h",
            Quota::per_day(9).using(Algorithm::FixedWindow {
                offset: Duration::from_secs(6 * 3600),
            }),
        ),
        ("10/min interval-refill", refilled(0)),
        ("10/min interval-refill burst 30", refilled(0).burst(30)),
        ("10/min burst 30 interval-refill", refilled(0).burst(30)),
        (
            "10/min interval-refill offset 20s burst 5",
            refilled(20).burst(5),
        ),
        (
            "300/h rolling-window 60 buckets",
            Quota::per_hour(300).using(Algorithm::RollingWindow { buckets: 60 }),
        ),
        (
            "300/h rolling-window",
            Quota::per_hour(300).using(Algorithm::RollingWindow { buckets: 10 }),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse(), Ok(expected), "{text}");
        assert_eq!(expected.to_string().parse(), Ok(expected), "{text}");
    }
}

#[test]
fn what_people_write_is_read() {
    let cases = [
        ("10 per minute", "10/min"),
        ("10 per min", "10/min"),
        ("10 requests per minute", "10/min"),
        ("10 req/s", "10/s"),
        ("10r/s", "10/s"),
        ("10 / s", "10/s"),
        ("10 /S", "10/s"),
        ("10/ s burst 2", "10/s burst 2"),
        ("10/s with burst of 2", "10/s burst 2"),
        ("10/s wait 2s", "10/s wait 2s"),
        ("5 at once wait 2s", "5 at once wait 2s"),
        (
            "5 concurrent requests wait up to 500 ms",
            "5 at once wait 500ms",
        ),
        ("10/s wait up to 2000 ms", "10/s wait 2s"),
        ("10/s WAIT 500ms burst 1", "10/s burst 1 wait 500ms"),
        ("10/s gcra wait of 1 minute", "10/s wait min"),
        ("10/s warm-up 10 s", "10/s warm up 10s"),
        ("10/s warmup 10s burst 1", "10/s burst 1 warm up 10s"),
        ("10/s warming up over 1 minute", "10/s warm up min"),
        ("10/s with warm up of 10s", "10/s warm up 10s"),
        ("10/s warm up 10s cold factor 3", "10/s warm up 10s"),
        (
            "10/s cold-factor of 5 warm up in 10s",
            "10/s warm up 10s cold factor 5",
        ),
        ("10/s WARM UP 10s cold 5", "10/s warm up 10s cold factor 5"),
        (
            "10/s warm up 160ms cold 2",
            "10/s warm up 160ms cold factor 2",
        ),
        ("100/1h", "100/h"),
        ("100 / 1 H", "100/h"),
        ("1_000/Day", "1000/day"),
        ("5 every 10 s", "5/10s"),
        ("5 calls every 10 Seconds", "5/10s"),
        ("3 a day", "3/day"),
        ("7 times an hour Sliding-Log", "7/h sliding-log"),
        (
            "9/day Fixed-Window offset 6 h",
            "9/day fixed-window offset 6h",
        ),
        (
            "300/h rolling-window 60 buckets",
            "300/h rolling-window 60 buckets",
        ),
        ("1/500 ms", "1/500ms"),
        ("2/250µs", "2/250us"),
    ];
    for (text, same) in cases {
        let read = text.parse::<Quota>().map(|quota| quota.to_string());
        assert_eq!(read, Ok(same.to_owned()), "{text}");
    }
}

#[test]
fn what_is_refused_names_the_nearest_that_works() {
    let cases = [
        ("10", "10/s"),
        ("10 min", "10/min"),
        ("10rps", "10/s"),
        ("100 rpm", "100/min"),
        ("10 daily", "10/day"),
        ("10/minit", "10/min"),
        ("10 evry minute", "10/min"),
        ("10/month", "10/30days"),
        ("10/fortnight", "10/2weeks"),
        ("ten per minute", "10/min"),
        ("100/day sliding window", "100/day sliding-window"),
        ("5/s leaky-bucket", "5/s"),
        ("5/s interval", "5/s interval-refill"),
        ("5/s interval refill burst 9", "5/s interval-refill burst 9"),
        ("5/s intervally", "5/s interval-refill"),
        ("5/s interval-refil", "5/s interval-refill"),
        ("1,000/day", "1000/day"),
        ("10k/day", "10000/day"),
        ("10/s brust 5", "10/s burst 5"),
        ("10/s sliding_window", "10/s sliding-window"),
        ("10:s", "10/s"),
        ("10/", "10/s"),
        ("10 per", "10/s"),
    ];
    for (text, near) in cases {
        let message = text.parse::<Quota>().unwrap_err().to_string();
        let near: Quota = near.parse().unwrap();
        let end = format!("; did you mean \"{near}\"");
        assert!(message.ends_with(&end), "{text}: {message}");
    }
    for text in ["", "ten", "-1/s", "10/s per address", "unlimited", "a/b/c"] {
        let message = text.parse::<Quota>().unwrap_err().to_string();
        assert!(!message.contains("did you mean"), "{text}: {message}");
    }
}

#[test]
fn several_quotas_with_nothing_between_are_told_apart_in_what_is_near() {
    let refusal = |text| Quota::parse_all(text).unwrap_err().to_string();
    for (text, near) in [
        ("10/h 5/s", "10/h; 5/s"),
        ("10 per hour 5 per second", "10/h; 5/s"),
        ("10 calls/h burst 3 5 calls/s", "10/h burst 3; 5/s"),
    ] {
        let end = format!("; did you mean \"{near}\"");
        assert!(refusal(text).ends_with(&end), "{text}: {}", refusal(text));
        assert!(Quota::parse_all(near).is_ok());
    }
    assert_eq!(refusal("0"), "a limit of 0 admits nothing");
}

#[test]
fn several_quotas_stand_in_one_text() {
    let quotas = vec![Quota::per_hour(10), Quota::per_second(5)];
    for text in [
        "10/h; 5/s",
        "10/h;5/s;",
        "10/h, 5/s",
        "10/h,5/s",
        "10 per hour\n5 per second\n",
    ] {
        assert_eq!(Quota::parse_all(text), Ok(quotas.clone()), "{text:?}");
    }
    assert_eq!(Quota::parse_all("10/h"), Ok(vec![Quota::per_hour(10)]));
    assert!(Quota::parse_all(" ; ").is_err());
    assert!(Quota::parse_all("10/h; 5").is_err());
}

#[test]
fn the_written_form_is_the_shortest() {
    for text in [
        "10/s",
        "5/10s",
        "100/min burst 20",
        "3/week",
        "1/500ms",
        "999983/day",
        "8/h rolling-window 4 buckets",
        "8/h fixed-window",
        "8/h fixed-window offset 90s",
        "8/h interval-refill",
        "8/h interval-refill burst 9",
        "8/h interval-refill offset 90s burst 7",
        "5 at once",
        "100/s warm up 10s",
        "100/s burst 1 warm up 10s cold factor 5",
    ] {
        assert_eq!(
            text.parse::<Quota>().map(|quota| quota.to_string()),
            Ok(text.to_owned())
        );
    }
}

#[test]
fn what_is_no_quota_says_what_was_expected() {
    let cases = [
        (
            "",
            "expected LIMIT/PERIOD, such as 10/s, or LIMIT at once, found the end",
        ),
        ("ten/s", "expected a limit, found \"ten\""),
        ("-1/s", "expected a limit, found \"-1\""),
        (
            "1.5/s",
            "expected whole numbers, such as 1/2s for 0.5/s and 90min for 1.5h, found \"1.5\"",
        ),
        (
            "10/1.5h",
            "such as 1/2s for 0.5/s and 90min for 1.5h, found \"1.5\"",
        ),
        (
            "1/fortnight",
            "expected a period, such as s, 10s, min, h or day, found \"fortnight\"; did you mean \"1/2week\"",
        ),
        (
            "1/",
            "expected a period, such as s, 10s, min, h or day, found the end",
        ),
        ("1/s burst", "expected a burst, found the end"),
        (
            "1/s burst 2 burst 3",
            "expected burst, wait, warm up, gcra, fixed-window",
        ),
        ("1/s warm up", "expected a period"),
        ("1/s warm up 2", "expected a period"),
        ("1/s warm 2s", "expected burst, wait, warm up"),
        ("1/s warm up 9s warm up 9s", "expected burst, wait, warm up"),
        ("1/s warm up 0s", "a warm-up of 0 has no effect"),
        (
            "1/s warm up 2h",
            "a warm-up of 7200s is longer than an hour",
        ),
        (
            "1/s warm up 1s",
            "a warm-up of 1s is over before one request has passed at this rate",
        ),
        (
            "1/s warm up 9s wait 1s",
            "requests cannot wait for their turn",
        ),
        ("1/s sliding-log warm up 9s", "does not warm up: use gcra"),
        (
            "1/s rolling-window warm up 9s",
            "does not warm up: use gcra",
        ),
        (
            "1/s interval-refill warm up 9s",
            "does not warm up: use gcra",
        ),
        (
            "1/s cold factor 3",
            "a cold factor has no meaning without a warm-up",
        ),
        (
            "1/s warm up 9s cold factor",
            "expected a cold factor, found the end",
        ),
        (
            "1/s warm up 9s cold factor 2.5",
            "90min for 1.5h, found \"2.5\"",
        ),
        (
            "1/s warm up 9s cold factor 1",
            "a cold factor of 1 is not between 2 and 100",
        ),
        (
            "1/s warm up 9s cold factor 18446744073709551616",
            "expected a cold factor of at most 100, found \"18446744073709551616\"",
        ),
        ("1/s wait", "expected a period"),
        ("1/s wait 2", "expected a period"),
        ("1/s wait 1s wait 2s", "expected burst, wait"),
        ("1/s wait 0s", "a wait of 0"),
        ("1/s sliding-log wait 1s", "requests cannot wait"),
        ("1/s interval-refill wait 1s", "requests cannot wait"),
        ("1/s interval-refill burst 0", "a burst of 0 admits nothing"),
        ("1/s interval-refill offset 1s", "the offset 1s"),
        ("1/s interval-refill offset", "expected a period"),
        ("1/s sliding-log gcra", "expected the end, found \"gcra\""),
        (
            "1/s rolling-window 4",
            "expected the word buckets, found the end",
        ),
        ("1/s leaky-bucket", "found \"leaky-bucket\""),
        ("0/s", "a limit of 0 admits nothing"),
        ("1/0s", "a period of 0 has no rate"),
        (
            "10 s",
            "expected LIMIT/PERIOD, such as 10/s, or LIMIT at once, found \"10\"; did you mean \"10/s\"",
        ),
        ("10/s; 5/h", "expected one quota, found \"10/s; 5/h\""),
        (
            "1099511627777/s",
            "1099511627777 is above the largest limit",
        ),
        (
            "18446744073709551616/s",
            "expected a limit of at most 1099511627776, found \"18446744073709551616\"",
        ),
        (
            "1/s burst 18446744073709551616",
            "expected a burst of at most 1099511627776, found \"18446744073709551616\"",
        ),
        ("1/367days", "is longer than 366 days"),
        (
            "1/99999999999999999999999w",
            "expected a period of at most 366 days, found \"99999999999999999999999w\"",
        ),
        (
            "1/9999999999999999w",
            "expected a period of at most 366 days, found \"9999999999999999w\"",
        ),
        ("5/s sliding-window burst 3", "a burst of 3 has no meaning"),
        ("0 at once", "a limit of 0 admits nothing"),
        (
            "five at once",
            "expected a limit, found \"five\"; did you mean \"5 at once\"",
        ),
        ("5 at once burst 3", "expected the end, found \"burst\""),
        ("5 at once per second", "expected the end, found \"per\""),
        (
            "1099511627777 at once",
            "1099511627777 is above the largest limit",
        ),
    ];
    for (text, expected) in cases {
        let message = text.parse::<Quota>().unwrap_err().to_string();
        assert!(
            message.contains(expected),
            "{text:?}: {message:?} does not say {expected:?}"
        );
    }
}

#[test]
fn a_burst_that_is_written_is_the_one_that_is_judged() {
    // given a rate that is not exact with a burst of its limit, but is with a small burst
    let seven = Duration::from_secs(7);
    assert!(matches!(
        Quota::try_new(999_999_937, seven),
        Err(crate::QuotaError::Inexact { .. })
    ));

    // when
    let quota: Quota = "999999937/7s burst 1".parse().unwrap();

    // then
    assert_eq!(Ok(quota), Quota::try_with_burst(999_999_937, seven, 1));
    assert_eq!((quota.limit(), quota.capacity()), (999_999_937, 1));
    assert_eq!(quota.to_string(), "999999937/7s burst 1");
    // And the errors about a burst or a limit are those of before.
    for (text, expected) in [
        ("0/s burst 1", "a limit of 0 admits nothing"),
        ("1/s burst 0", "a burst of 0 admits nothing"),
        ("999999937/7s burst 999999937", "a smaller burst"),
        ("999999937/7s", "a smaller burst"),
    ] {
        let message = text.parse::<Quota>().unwrap_err().to_string();
        assert!(message.contains(expected), "{text:?}: {message:?}");
    }
}

#[test]
fn a_long_text_is_not_repeated_in_full() {
    let message = "x"
        .repeat(if cfg!(miri) { 1 << 10 } else { 1 << 20 })
        .parse::<Quota>()
        .unwrap_err()
        .to_string();
    assert!(message.len() < 200, "{} bytes", message.len());
}

#[cfg(feature = "serde")]
#[test]
fn serde_reads_and_writes_the_text() {
    let quota: Quota = serde_json::from_str("\"100/min burst 20\"").unwrap();
    assert_eq!(
        serde_json::to_string(&quota).unwrap(),
        "\"100/min burst 20\""
    );
    let error = serde_json::from_str::<Quota>("\"0/s\"")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("quota \"0/s\": a limit of 0 admits nothing"),
        "{error}"
    );
}
