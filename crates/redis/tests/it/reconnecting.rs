//! The time that connecting takes, and the pauses between attempts.

use std::time::Duration;

use crate::common::watch::Watch;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tollgate_redis::RedisBackend;

/// The pauses begin with this one, double, and end at the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn connecting_to_who_says_nothing_ends_with_its_deadline() {
    // given a server that takes connections and stays silent
    let (listener, url) = listener().await;
    let silent = tokio::spawn(async move {
        let mut taken = Vec::new();
        loop {
            taken.push(listener.accept().await.unwrap());
        }
    });

    // when a caller connects that has a third of a second
    let deadline = Duration::from_millis(300);
    let (began, watch) = (Instant::now(), Watch::start());
    let connecting = RedisBackend::builder(&url).connect_deadline(deadline);
    let refused = connecting.connect().await;

    // then that is how long it takes
    assert!(refused.is_err());
    assert!(began.elapsed() >= deadline, "{:?}", began.elapsed());
    assert!(watch.elapsed() < deadline * 2, "{:?}", watch.elapsed());
    silent.abort();
}

/// The times of the first ten attempts of a backend with one connection, at a server that closes every connection.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
async fn attempts() -> Vec<Instant> {
    let (listener, url) = listener().await;
    let backend = RedisBackend::builder(&url).connections(1).start().unwrap();
    let mut attempts = Vec::new();
    while attempts.len() < 10 {
        let (mut stream, _) = listener.accept().await.unwrap();
        attempts.push(Instant::now());
        // Read first: a connection that is closed too early may fail the client's first write.
        let _asked = stream.read(&mut [0; 1024]).await;
    }
    drop(backend);
    attempts
}

#[tokio::test]
async fn a_server_that_hangs_up_is_tried_again_ever_later_and_by_no_two_at_once() {
    // given two processes' worth of backends that lose the same server
    let (one, other) = tokio::join!(attempts(), attempts());

    // then each pause is between half of its bound and all of it, and the bound doubles until it is a second
    let pauses = |attempts: &[Instant]| -> Vec<Duration> {
        attempts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    };
    let (one, other) = (pauses(&one), pauses(&other));
    for pauses in [&one, &other] {
        let mut most = FIRST_PAUSE;
        for pause in pauses {
            assert!(*pause >= most / 2, "{pause:?} of {most:?} in {pauses:?}");
            most = (most * 2).min(LONGEST_PAUSE);
        }
    }

    // and the two do not keep time with each other
    let differ = |(one, other): (&Duration, &Duration)| one.abs_diff(*other) > *one / 50;
    assert!(one.iter().zip(&other).any(differ), "{one:?} {other:?}");
}
