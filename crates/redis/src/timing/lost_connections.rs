//! Connections that are forgotten on the way, or end, before anybody knows.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// A server at a millisecond's distance whose connections can be forgotten by a firewall: their packets vanish, and new ones work.
struct Forgetful {
    far: DistantBackend,
    is_forgotten: Arc<AtomicBool>,
}

impl Forgetful {
    async fn start() -> Self {
        let is_forgotten = Arc::<AtomicBool>::default();
        let far = DistantBackend::with(ms(1), |stream, sent| {
            let is_forgotten = Arc::clone(&is_forgotten);
            serve(stream, sent, move |asked| {
                let never = is_forgotten.load(Ordering::Relaxed);
                asked + if never { ms(3_600_000) } else { ms(1) }
            })
        })
        .await;
        Self { far, is_forgotten }
    }

    /// Forgets the connections. The next request does not know, and hears nothing for a whole deadline.
    async fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Relaxed);
        let (took, failed) = self.ask().await;
        assert!(
            matches!(failed, Some(FailureKind::TimedOut { .. })),
            "{failed:?}"
        );
        assert!(took <= DEADLINE + TICKS, "{took:?}");
    }

    async fn ask(&self) -> (Duration, Option<FailureKind>) {
        DistantBackend::ask(Arc::clone(&self.far.dispatch)).await
    }

    async fn connect_again(&self) {
        let serving = |theirs| {
            let answers = serve(theirs, Arc::default(), |asked| asked + ms(1));
            tokio::spawn(answers)
        };
        let opened = handshake(ms(1), serving).await;
        self.far.dispatch.connected(0, opened);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_were_forgotten_cost_one_deadline_and_everybody_who_asks_later_is_decided()
{
    let forgetful = Forgetful::start().await;
    assert_eq!(forgetful.ask().await.1, None);
    forgetful.forget().await;

    // when others ask at once, while another connection is being made
    let others: JoinSet<_> = (0..100)
        .map(|_| DistantBackend::ask(Arc::clone(&forgetful.far.dispatch)))
        .collect();
    sleep(DEADLINE / 4).await;
    forgetful.connect_again().await;

    // then they wait for it, whatever becomes of the other forgotten connection
    for (took, failed) in others.join_all().await {
        assert_eq!(failed, None);
        assert!(took <= DEADLINE / 4 + ms(4) + TICKS, "{took:?}");
    }
    for _ in 0..100 {
        let (took, failed) = forgetful.ask().await;
        assert_eq!(failed, None);
        // The other forgotten connection stalls meanwhile, and once more each has to show that it answers.
        assert!(took <= ms(3) + TICKS, "{took:?}");
    }
    // The request that did not know, and our own question.
    let unanswered = forgetful.far.sent.at_once.load(Ordering::Relaxed);
    assert_eq!(unanswered, 2);
}

/// Several calls are on their way over each connection, and the other one has answered after the call left that will stall.
#[tokio::test(start_paused = true)]
async fn a_connection_that_has_answered_before_the_others_were_forgotten_is_in_doubt_too() {
    let (rtt, is_forgotten) = (ms(20), Arc::<AtomicBool>::default());
    let far = DistantBackend::with(rtt, |stream, sent| {
        let is_forgotten = Arc::clone(&is_forgotten);
        serve(stream, sent, move |asked| {
            let never = is_forgotten.load(Ordering::Relaxed);
            asked + if never { ms(3_600_000) } else { rtt }
        })
    })
    .await;
    let ask = || tokio::spawn(DistantBackend::ask(Arc::clone(&far.dispatch)));
    let _both = [ask(), ask()];
    sleep(ms(14)).await;
    is_forgotten.store(true, Ordering::Relaxed);
    let unknowing = ask();
    assert!(unknowing.await.unwrap().1.is_some());

    let others: Vec<_> = (0..10).map(|_| ask()).collect();
    sleep(ms(5)).await;
    let serving = |theirs| tokio::spawn(serve(theirs, Arc::default(), move |asked| asked + rtt));
    far.dispatch.connected(0, handshake(rtt, serving).await);
    for other in others {
        assert_eq!(other.await.unwrap().1, None);
    }
}

/// A call gathers over a connection that ends before it leaves, and no other is made. The second connection is good.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_call_over_a_connection_that_ends_takes_the_other() {
    let far = DistantBackend::away(ms(1)).await;
    let (open_still, ended) = Ended::of_drop();
    let serving = |theirs| tokio::spawn(async move { drop::<DuplexStream>(theirs) });
    let opened = handshake(ms(1), serving).await;
    far.dispatch.connected(0, Handshake { ended, ..opened });
    // Long ago, so that the call lets others run before it leaves.
    sleep(ms(5)).await;
    let asking = tokio::spawn(DistantBackend::ask(Arc::clone(&far.dispatch)));
    tokio::task::yield_now().await;

    drop(open_still);

    let (took, failed) = asking.await.unwrap();
    assert_eq!(failed, None);
    assert!(took <= ms(1) + TICKS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stopped_costs_two_deadlines_and_then_nothing() {
    let stopped = Forgetful::start().await;
    stopped.forget().await;

    let (took, failed) = stopped.ask().await;
    assert_eq!(failed, Some(FailureKind::Unreachable), "{took:?}");
    assert!(took <= DEADLINE + TICKS, "{took:?}");
    sleep(TICKS).await;
    for _ in 0..100 {
        sleep(ms(3)).await;
        let (took, failed) = stopped.ask().await;
        assert_eq!(failed, Some(FailureKind::Unreachable));
        assert_eq!(took, Duration::ZERO);
    }
}

/// Its answer may still come, and tell that the connection is well: the call goes on without its caller.
#[tokio::test(start_paused = true)]
async fn a_lone_caller_hears_of_the_deadline_in_time_however_far_the_server_is() {
    for round_trip in [60, 75, 95].map(ms) {
        let late = DistantBackend::with(round_trip, |stream, sent| {
            let asked = AtomicUsize::default();
            serve(stream, sent, move |at| {
                let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
                at + if is_first { round_trip } else { 2 * round_trip }
            })
        })
        .await;
        let ask = || DistantBackend::ask(Arc::clone(&late.dispatch));
        let mut slowest = Duration::ZERO;
        for _ in 0..4 {
            slowest = slowest.max(ask().await.0);
        }
        assert!(slowest <= DEADLINE + TICKS, "{round_trip:?}: {slowest:?}");
    }
}

/// The task that makes another connection in its place has not run yet.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_over_a_connection_that_has_ended() {
    let forgetful = Forgetful::start().await;
    let (open_still, ended) = Ended::of_drop();
    let serving = |theirs| tokio::spawn(async move { drop::<DuplexStream>(theirs) });
    let opened = handshake(ms(1), serving).await;
    forgetful
        .far
        .dispatch
        .connected(0, Handshake { ended, ..opened });

    drop(open_still);

    assert_eq!(forgetful.ask().await.1, None);
}

/// A socket that the other end closes. The runtime never tells.
struct Closing {
    socket: DuplexStream,
    is_closed: Arc<AtomicBool>,
}

impl Socket for Closing {
    fn waiting(&self) -> io::Result<usize> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Ok(0);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl AsyncRead for Closing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Closing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_meets_a_closed_connection_goes_to_another_before_a_byte_is_written() {
    let far = DistantBackend::away(ms(1)).await;
    let is_closed = Arc::<AtomicBool>::default();
    let (socket, mut theirs) = duplex(1 << 20);
    let closing = Closing {
        socket,
        is_closed: Arc::clone(&is_closed),
    };
    far.dispatch.connected(0, over(closing, ms(1)).await);
    sleep(ms(5)).await;

    is_closed.store(true, Ordering::Relaxed);
    let asking: JoinSet<_> = (0..10)
        .map(|_| DistantBackend::ask(Arc::clone(&far.dispatch)))
        .collect();

    for (took, failed) in asking.join_all().await {
        assert_eq!(failed, None);
        assert!(took <= ms(2) + TICKS, "{took:?}");
    }
    let mut written = Vec::new();
    theirs.read_to_end(&mut written).await.unwrap();
    assert_eq!(written, b"");
}
