//! The limiters of a process, one after the other: a service that is restarted begins with a new one, and the line of the one
//! before is drained or closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn;
use axum::routing::get;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::{HeaderForm, Limiter, RateLimitHeaders, RateLimitLayer, RateLimitStatus};

use crate::Result;
use crate::flaw::Flaw;
use crate::observed::{ObservedBackend, observe};
use crate::population::Population;
use crate::settling::Settler;
use crate::wall::now_us;

/// The numbers of requests that may wait in one line: few, so that it fills; or as many as come.
const MOST: [usize; 4] = [2, 5, 12, 10_000];

/// The line of one limiter of a process. Times are of the clients' clock, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLine {
    /// The number of the process.
    pub process: u32,
    /// The number of the limiter among those of its process.
    pub limiter: u32,
    /// The number of requests that may wait.
    pub most: usize,
    /// The time just before the line was closed, if it was.
    pub closing_us: Option<u64>,
    /// The time just after that; `None` also if the process was killed meanwhile.
    pub closed_us: Option<u64>,
}

/// One limiter of a process, and its server if it stands behind one.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) limiter: Limiter,
    number: u32,
    most: usize,
    /// The time just before the line was closed; 0 if it is open.
    closing_us: Arc<AtomicU64>,
    server: Option<Server>,
}

/// A server that ends with its last user, once it has answered all requests.
#[derive(Clone, Debug)]
struct Server {
    address: SocketAddr,
    settler: Settler,
    _stop: Arc<oneshot::Sender<()>>,
}

impl Instance {
    /// The first one of a process, in which as many wait as come.
    pub(crate) async fn first(
        population: &Population,
        backend: ObservedBackend,
        flaw: Option<Flaw>,
        settler: Option<Settler>,
    ) -> Result<Self> {
        let [.., most] = MOST;
        Self::of(0, most, population, backend, flaw, settler).await
    }

    /// The next one, with a line that may be as short as two.
    pub(crate) async fn next(
        &self,
        rng: &mut Rng,
        population: &Population,
        backend: ObservedBackend,
        flaw: Option<Flaw>,
    ) -> Result<Self> {
        let most = rng.choice(MOST).unwrap_or_default();
        let settler = self.server.as_ref().map(|server| server.settler.clone());
        Self::of(self.number + 1, most, population, backend, flaw, settler).await
    }

    async fn of(
        number: u32,
        most: usize,
        population: &Population,
        backend: ObservedBackend,
        flaw: Option<Flaw>,
        settler: Option<Settler>,
    ) -> Result<Self> {
        let let_in = match flaw {
            Some(Flaw::OneMoreWaits) => most + 1,
            Some(Flaw::OneFewerWaits) => most - 1,
            _ => most,
        };
        let limiter = population.limiter(backend, flaw, let_in)?;
        let server = match settler {
            Some(settler) => Some(serve(&limiter, settler).await?),
            None => None,
        };
        Ok(Self {
            limiter,
            number,
            most,
            closing_us: Arc::default(),
            server,
        })
    }

    /// A limiter like this one, as if nothing had been asked.
    pub(crate) fn fresh(
        &self,
        population: &Population,
        backend: ObservedBackend,
    ) -> Result<Limiter> {
        population.limiter(backend, None, self.most)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn server(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| server.address)
    }

    pub(crate) fn closing_us(&self) -> Option<u64> {
        Some(self.closing_us.load(Ordering::Acquire)).filter(|us| *us > 0)
    }

    /// The line, as it is now.
    pub(crate) fn line(&self, process: u32) -> WaitingLine {
        WaitingLine {
            process,
            limiter: self.number,
            most: self.most,
            closing_us: self.closing_us(),
            closed_us: None,
        }
    }

    /// Notes the time, before the line is closed.
    pub(crate) fn is_about_to_close(&self) {
        self.closing_us.store(now_us(), Ordering::Release);
    }

    pub(crate) fn close(&self, flaw: Option<Flaw>) {
        if flaw != Some(Flaw::NeverCloses) {
            self.limiter.stop_waiting();
        }
    }
}

/// A server of its own, with a service that settles.
async fn serve(limiter: &Limiter, settler: Settler) -> Result<Server> {
    let headers = RateLimitHeaders::from(HeaderForm::Draft11).of_all_policies();
    let app: Router = Router::new()
        .route("/", get(pass))
        .with_state(settler.clone())
        .layer(RateLimitLayer::new(limiter).headers(headers))
        .layer(from_fn(observe));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        // The sender is dropped with the last user.
        let _stopped = stopped.await;
    });
    tokio::spawn(async move { server.await });
    Ok(Server {
        address,
        settler,
        _stop: Arc::new(stop),
    })
}

async fn pass(
    settler: State<Settler>,
    status: RateLimitStatus,
    headers: HeaderMap,
) -> std::result::Result<(HeaderMap, &'static str), StatusCode> {
    let settled = settler.settle(&headers, &status);
    // The record has no reader, and the process is about to end.
    let settled = settled.map_err(|_broken| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((settled, "passed"))
}
