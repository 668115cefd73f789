//! A simulated server at any distance, on a clock that stands still while any task is ready: the tests tell when each caller is
//! answered, to the millisecond of tokio's timers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lost_connections;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, duplex, split};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::{
    Call, Charge, FailureKind, Key, Mode, Quota, Receipt, Scope, State, Timestamp, decide,
};

use crate::connection::{Connection, Ended, KEEP_ALIVE};
use crate::dispatch::pace::{MOST_CALLS, Pace, SPELL, TELLS_FOR};
use crate::dispatch::{Dispatch, Limits, MAX_REQUESTS};
use crate::hello::Kind;
use crate::holder::{Holder, LEASE};
use crate::job::{Job, outcome_of};
use crate::known::KnownDenials;
use crate::link::{Handshake, Link, Origin};
use crate::queue::Queue;
use crate::script::Script;
use crate::server;
use crate::stream::{Socket, Stream};
use crate::sync::Handle;
use crate::tls::Tls;
use crate::wire::{Request, Work};

const DEADLINE: Duration = Duration::from_millis(100);

/// The lateness of one of tokio's timers, twice.
const TICKS: Duration = Duration::from_millis(2);

/// The commands that the server has received.
#[derive(Debug, Default)]
struct CommandCounts {
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

/// Answers each call when `answers_at` says of the moment at which it came: with the time, and without any state.
async fn serve(
    stream: DuplexStream,
    sent: Arc<CommandCounts>,
    answers_at: impl Fn(Instant) -> Instant + Send,
) {
    let (mut from, mut to) = split(stream);
    let (due, mut dues) = tokio::sync::mpsc::unbounded_channel::<(Instant, usize)>();
    let answering = Arc::clone(&sent);
    let _back = tokio::spawn(async move {
        while let Some((at, keys)) = dues.recv().await {
            sleep_until(at).await;
            answering.at_once.fetch_sub(1, Ordering::Relaxed);
            let [high, low] = u16::try_from(keys).unwrap().to_be_bytes();
            let mut text = b"1700000000 123456 \x00".to_vec();
            text.extend([0xdc, high, low]);
            text.extend(std::iter::repeat_n(0xc2, keys));
            let head = format!("${}\r\n", text.len());
            let answer = [head.as_bytes(), &text, b"\r\n"].concat();
            if to.write_all(&answer).await.is_err() {
                return;
            }
        }
    });
    while let Some(keys) = command(&mut from).await {
        let at_once = sent.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        sent.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        if due.send((answers_at(Instant::now()), keys)).is_err() {
            return;
        }
    }
}

/// The output of a server that comes to no end: the first text on the first question, and then the other for as long as it is read.
#[derive(Clone, Copy, Debug)]
struct Flood {
    first: &'static [u8],
    then: &'static [u8],
}

impl Flood {
    /// Some millions of bytes in a second, unless the other text is empty. Without a pause the clock of these tests would never
    /// move.
    async fn serve(self, stream: DuplexStream) {
        let (mut from, mut to) = split(stream);
        if command(&mut from).await.is_none() || to.write_all(self.first).await.is_err() {
            return;
        }
        let _read = tokio::spawn(async move { while command(&mut from).await.is_some() {} });
        let some = self.then.repeat(256);
        while to.write_all(&some).await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Reads a command to its end. Returns its number of keys.
async fn command(from: &mut ReadHalf<DuplexStream>) -> Option<usize> {
    let mut keys = 0;
    for place in 0..number(from).await? {
        let length = number(from).await?;
        let mut word = vec![0; length + 2];
        from.read_exact(&mut word).await.ok()?;
        if place == 2 {
            keys = std::str::from_utf8(&word).ok()?.trim().parse().ok()?;
        }
    }
    Some(keys)
}

/// Reads a line of a sign and a number.
async fn number(from: &mut ReadHalf<DuplexStream>) -> Option<usize> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(from.read_u8().await.ok()?);
    }
    let digits = std::str::from_utf8(&line[1..]).ok()?;
    digits.trim().parse().ok()
}

/// A backend of two connections, which knows the distance of the server.
struct DistantBackend {
    dispatch: Arc<Dispatch>,
    sent: Arc<CommandCounts>,
    /// Whoever connects again hears nothing.
    _silent: TcpListener,
}

/// A connection that this server has accepted.
async fn handshake(
    round_trip: Duration,
    serves: impl FnOnce(DuplexStream) -> JoinHandle<()>,
) -> Handshake {
    let (ours, theirs) = duplex(1 << 20);
    let _detached = serves(theirs);
    over(ours, round_trip).await
}

/// A connection over this socket.
async fn over(socket: impl Socket, round_trip: Duration) -> Handshake {
    let (stream, written) = Stream::new(socket);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    let made = MultiplexedConnection::new_with_config(&settings, stream, config);
    let (commands, driver) = made.await.unwrap();
    let (open_still, ended) = Ended::of_drop();
    tokio::spawn(async move {
        driver.await;
        drop(open_still);
    });
    Handshake {
        connection: Connection::new(commands, written),
        ended,
        round_trip,
        server: None,
    }
}

impl DistantBackend {
    async fn away(round_trip: Duration) -> Self {
        Self::with(round_trip, |stream, sent| {
            serve(stream, sent, move |asked| asked + round_trip)
        })
        .await
    }

    /// Serves each connection so.
    async fn with<F>(
        round_trip: Duration,
        serve: impl Fn(DuplexStream, Arc<CommandCounts>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", silent.local_addr().unwrap());
        let origin = server::parse(&url, &server::TlsFiles::default()).unwrap();
        let link = Link {
            origin: Origin::Server(Arc::new(origin)),
            kind: Kind::Single,
            hidden: Arc::default(),
            prefix: "tollgate".into(),
            client_name: "far".into(),
            script: Arc::new(Script::shipped()),
            composed: Arc::default(),
            tls: Tls::default(),
            deadline: Duration::from_secs(2),
        };
        let (limits, runtime) = (Limits::default(), Handle::current().unwrap());
        let dispatch = Dispatch::new(
            link,
            runtime,
            limits,
            None,
            Arc::default(),
            Holder::new(LEASE),
            KnownDenials::new(true, limits.deadline),
        );
        let sent = Arc::<CommandCounts>::default();
        for wire in 0..limits.connections {
            let serving = |theirs| tokio::spawn(serve(theirs, Arc::clone(&sent)));
            let opened = handshake(round_trip, serving).await;
            dispatch.connected(wire, opened);
        }
        Self {
            dispatch,
            sent,
            _silent: silent,
        }
    }

    /// Asks for the time, by the way of any decision. Returns the duration and the answer.
    async fn ask(dispatch: Arc<Dispatch>) -> (Duration, Option<FailureKind>) {
        let asked = Instant::now();
        let deadline = dispatch.deadline();
        let said = outcome_of(dispatch.ask(Request::nothing(), deadline).await);
        (asked.elapsed(), said.err().map(|error| error.kind()))
    }
}

/// The answers to callers that asked again and again for two seconds.
#[derive(Debug, Default)]
struct AnswerCounts {
    decided: usize,
    failed: usize,
    slowest: Duration,
}

async fn ask_on(far: &DistantBackend, callers: usize, gives_back: bool) -> AnswerCounts {
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for _ in 0..callers {
        let dispatch = Arc::clone(&far.dispatch);
        asking.spawn(async move {
            let mut seen = AnswerCounts::default();
            while began.elapsed() < Duration::from_secs(2) {
                let (took, failed) = DistantBackend::ask(Arc::clone(&dispatch)).await;
                seen.slowest = seen.slowest.max(took);
                if failed.is_none() {
                    seen.decided += 1;
                    if gives_back {
                        dispatch.tell(credit());
                    }
                } else {
                    seen.failed += 1;
                    sleep(Duration::from_millis(1)).await;
                }
            }
            seen
        });
    }
    let all = asking.join_all().await;
    AnswerCounts {
        decided: all.iter().map(|seen| seen.decided).sum(),
        failed: all.iter().map(|seen| seen.failed).sum(),
        slowest: all.iter().map(|seen| seen.slowest).max().unwrap(),
    }
}

fn receipt() -> Receipt {
    let quota = Quota::per_hour(1_000);
    let charges = [Charge {
        scope: Scope::of("far", 0, &quota),
        quota: &quota,
        key: &Key::from("alice"),
        cost: 1,
        mode: Mode::Enforce,
    }];
    let mut states = [State::full(&quota)];
    let now = Timestamp::from_micros(1_600_000_000_000_000);
    let decision = decide(now, Call::of(&charges), &mut states[..]);
    decision.receipts(&charges).next().unwrap()
}

fn credit() -> Request {
    Request {
        work: Work::Credit(receipt(), 1),
        names: [b"tollgate:far".to_vec()].into_iter().collect(),
        owed: None,
        known: None,
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn as_many_are_decided_as_ask_however_far_the_server_is_and_each_in_time() {
    for (round_trip_ms, callers, gives_back) in [
        (1, 64, false),
        (20, 256, true),
        (70, 64, false),
        (90, 256, false),
        (90, 1_500, false),
    ] {
        let round_trip = ms(round_trip_ms);
        let far = DistantBackend::away(round_trip).await;

        let seen = ask_on(&far, callers, gives_back).await;

        let case = format!("{round_trip_ms} ms, {callers} callers: {seen:?}");
        assert!(seen.slowest <= DEADLINE + TICKS, "{case}");
        // Each caller asks again when it is told. It may be one timer late, and have waited for one round trip.
        let each = 2_000 / (round_trip_ms * 2 + 2);
        let least = callers * usize::try_from(each).unwrap();
        assert!(seen.decided >= least, "{case}: {least}");
        assert!(seen.failed * 10 <= seen.decided, "{case}");
        if gives_back {
            sleep(ms(1_000)).await;
            let stats = far.dispatch.counters.read();
            assert_eq!(stats.lost_give_backs, 0, "{case}");
            assert!(
                stats.requests >= 2 * seen.decided as u64,
                "{case}: {stats:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_can_be_answered_in_time_fail_before_they_are_sent_and_all_others_pass() {
    let far = DistantBackend::away(ms(90)).await;
    let room = 2 * MOST_CALLS * MAX_REQUESTS;

    let asking: JoinSet<_> = (0..10_000)
        .map(|_| DistantBackend::ask(Arc::clone(&far.dispatch)))
        .collect();
    let said = asking.join_all().await;

    let decided = said.iter().filter(|(_, failed)| failed.is_none()).count();
    assert!(
        (room - 2 * MAX_REQUESTS..=room).contains(&decided),
        "{decided}"
    );
    for (took, failed) in said {
        assert!(took <= DEADLINE + TICKS, "{took:?}: {failed:?}");
        if failed.is_some() {
            assert_eq!(failed, Some(FailureKind::Overloaded));
            assert!(took <= ms(10) + TICKS, "{took:?}");
        }
    }
    assert_eq!(far.sent.at_once.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_near_has_no_more_than_one_call_at_once_on_each_connection() {
    let far = DistantBackend::away(Duration::from_micros(900)).await;

    let seen = ask_on(&far, 500, false).await;

    assert_eq!(far.sent.most_at_once.load(Ordering::Relaxed), 2, "{seen:?}");
    assert!(seen.slowest <= DEADLINE + TICKS, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_any_more_keeps_nobody_past_the_deadline_who_waits_for_a_call_to_leave()
 {
    // given a server that is nearer than it looks, so that no caller is refused beforehand
    let far = DistantBackend::away(ms(60_000)).await;
    let dispatch = &far.dispatch;
    let (first, then) = (1_000, 3_000);
    let mut asking: JoinSet<_> = (0..first)
        .map(|_| DistantBackend::ask(Arc::clone(dispatch)))
        .collect();

    // when others come in the middle of the first caller's deadline
    sleep(DEADLINE / 2).await;
    for _ in 0..then {
        asking.spawn(DistantBackend::ask(Arc::clone(dispatch)));
    }

    // then each hears when its own is over, or as soon as the server is known to be silent
    let said = asking.join_all().await;
    assert_eq!(said.len(), first + then);
    for (took, failed) in said {
        assert!(failed.is_some());
        assert!(took <= DEADLINE + TICKS, "{took:?}: {failed:?}");
    }
}

/// A server that never stops sending keeps its connections busy, and no timer waits for that. Here are all answers without an end
/// of `hostile_server.rs`, by a clock that does not depend on the machine's speed.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_to_send_keeps_nobody_past_the_deadline() {
    let (text, line): (&[u8], &[u8]) = (b"$1000000000\r\n", b"+");
    for (first, then) in [
        (text, &b"aaaaaaaaaaaaaaaa"[..]),
        (line, b"aaaaaaaaaaaaaaaa"),
        (b"", b":1\r\n"),
        (b"*2147483647\r\n", b""),
        (b"*2147483647\r\n", b":1\r\n"),
        (b"$2147483647\r\n", b""),
        (b"", b"*1\r\n"),
        (b"", b""),
    ] {
        // given
        let flood = Flood { first, then };
        let far = DistantBackend::with(ms(1), |stream, _| flood.serve(stream)).await;

        for _ in 0..5 {
            // when
            let asking: JoinSet<_> = (0..100)
                .map(|_| DistantBackend::ask(Arc::clone(&far.dispatch)))
                .collect();

            // then
            for (took, failed) in asking.join_all().await {
                assert!(failed.is_some(), "{flood:?}");
                assert!(took <= DEADLINE + TICKS, "{flood:?}: {took:?}");
            }
        }
    }
}

/// The moment from which on a server is awake that sleeps for the first 20 ms of each tenth of a second.
fn awake(at: Instant, began: Instant) -> Instant {
    let into =
        Duration::from_millis(u64::try_from((at - began).as_millis() % 100).unwrap_or_default());
    at + ms(20).saturating_sub(into)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_of_a_server_that_sleeps_now_and_then_are_all_decided_within_the_deadline()
 {
    let began = Instant::now();
    let far = DistantBackend::with(ms(1), |stream, sent| {
        serve(stream, sent, move |at| awake(at + ms(1), began))
    })
    .await;

    let seen = ask_on(&far, 1_000, false).await;

    assert!(seen.slowest <= DEADLINE + TICKS, "{seen:?}");
    // Two connections carry a call each in two milliseconds, and no other while the server sleeps.
    assert!(seen.decided >= 50_000, "{seen:?}");
    assert_eq!(seen.failed, 0, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_keeps_no_request_from_its_call_and_waits_no_longer_than_stated() {
    let far = DistantBackend::away(ms(10)).await;
    let dispatch = &far.dispatch;

    // given more credits than a second's calls carry
    let credits = 6_000;
    for _ in 0..credits {
        dispatch.tell(credit());
    }

    // when requests come, then they are answered by the second call at the latest
    for _ in 0..50 {
        let (took, failed) = DistantBackend::ask(Arc::clone(dispatch)).await;
        assert_eq!(failed, None);
        assert!(took <= ms(20) + TICKS, "{took:?}");
    }
    // and all credits are sent soon
    sleep(ms(4_000)).await;
    let stats = dispatch.counters.read();
    assert_eq!((stats.requests, stats.lost_give_backs), (credits + 50, 0));
}

/// Says of each job of the next call, in their order, whether a caller waits for it, if the call has room for so many.
fn next_call(queue: &mut Queue, room: usize) -> Vec<bool> {
    let mut left = room;
    let turn = queue.take_turn(Instant::now(), |_job| {
        let fits = left > 0;
        left = left.saturating_sub(1);
        fits
    });
    turn.jobs.iter().map(Job::is_pending).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_ahead_of_the_decisions_that_wait() {
    let (mut queue, mut answers) = (Queue::default(), Vec::new());
    for _ in 0..4 {
        let (job, answer) = Job::awaited(Request::nothing(), Instant::now() + DEADLINE);
        answers.push(answer);
        queue.push(job);
    }
    for _ in 0..3 {
        queue.push(Job::unattended(credit(), &Arc::default()));
    }

    // One caller leaves with each while there are more than fit.
    assert_eq!(next_call(&mut queue, 4), [false, false, true, true]);
    assert_eq!(next_call(&mut queue, 64), [false, true, true]);
}

/// Load balancers and firewalls close or forget connections over which nothing is sent.
#[tokio::test(start_paused = true)]
async fn something_is_sent_over_each_connection_that_nobody_uses() {
    let far = DistantBackend::away(ms(1)).await;
    sleep(KEEP_ALIVE * 3 + ms(100)).await;
    assert_eq!(far.dispatch.counters.read().calls, 2 * 3);
}

const FAR: Duration = Duration::from_millis(90);
const NEAR: Duration = Duration::from_micros(100);

#[test]
fn a_near_server_has_one_call_at_once_on_each_connection_however_busy_it_is() {
    let mut pace = Pace::default();
    let now = Instant::now();
    pace.connected(now, NEAR);

    for round_trip in [NEAR, FAR, FAR, NEAR * 9] {
        pace.answered(now, round_trip);
        assert_eq!(pace.calls(), 1);
    }
}

#[test]
fn a_server_that_is_far_away_has_as_many_as_the_bound_and_fewer_when_it_answers_late() {
    let mut pace = Pace::default();
    let now = Instant::now();
    pace.connected(now, FAR);
    assert_eq!(pace.calls(), MOST_CALLS);

    pace.answered(now, FAR * 3);
    assert_eq!(pace.calls(), MOST_CALLS - 1);
    pace.stalled();
    assert_eq!(pace.calls(), (MOST_CALLS - 1) / 2);
    pace.answered(now, FAR);
    assert_eq!(pace.calls(), (MOST_CALLS - 1) / 2 * 2);
}

#[test]
fn a_way_that_becomes_longer_is_known_after_two_spells_and_a_shorter_one_at_once() {
    let mut pace = Pace::default();
    let start = Instant::now();
    pace.connected(start, NEAR);
    let known = [0, 1, 2].map(|spells| {
        pace.answered(start + SPELL * spells, FAR);
        pace.round_trip()
    });
    assert_eq!(known, [Some(NEAR), Some(NEAR), Some(FAR)]);

    pace.answered(start + SPELL * 2, NEAR);

    assert_eq!((pace.round_trip(), pace.calls()), (Some(NEAR), 1));
}

#[test]
fn what_round_trips_took_tells_nothing_when_it_is_old_or_when_no_answer_could_be_in_time() {
    let mut pace = Pace::default();
    let now = Instant::now();
    pace.connected(now, FAR);

    assert_eq!(pace.answer_takes(now, FAR * 2), FAR);
    assert_eq!(pace.answer_takes(now, FAR), Duration::ZERO);
    assert_eq!(pace.answer_takes(now + TELLS_FOR, FAR * 2), Duration::ZERO);
}
