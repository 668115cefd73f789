//! Denials that the Redis backend knows without its server, and the cost of remembering those that never come again.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::runtime::{self, Runtime};
use tollgate::{
    Backend, BackendError, Call, Charge, ConfigError, Key, Limiter, Mode, Policy, Quota,
    RateLimitLayer, RedisBackend, Scope,
};
use tollgate_testkit::Standalone;
use tower::{Layer, Service};

use super::{LITTLE, Nothing, each, serve_few};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The callers of [`serve_few`], whose denials are known. There is no server: a question would fail, and the request would pass.
pub(super) fn served(finish: impl Fn(RateLimitLayer) -> RateLimitLayer) -> Box<dyn FnMut(u32)> {
    match layer() {
        Ok((layer, runtime)) => serve_few(Alive(finish(layer).layer(Nothing), runtime)),
        Err(_error) => each(|_| {}),
    }
}

fn layer() -> Result<(RateLimitLayer, Runtime)> {
    let runtime = runtime()?;
    let entered = runtime.enter();
    let backend = RedisBackend::builder("redis://127.0.0.1:1/").start()?;
    drop(entered);
    for caller in 0..100 {
        let key = Key::from(IpAddr::V4(super::address(caller)));
        backend.knows(&Charge {
            scope: Scope::of("little", 0, &LITTLE),
            quota: &LITTLE,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        });
    }
    let limiter: std::result::Result<Limiter, ConfigError> = Limiter::builder()
        .policy(Policy::new("little", LITTLE))
        .backend(backend)
        .build();
    Ok((RateLimitLayer::new(limiter?), runtime))
}

fn runtime() -> Result<Runtime> {
    Ok(runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// A service, and the runtime of its backend.
struct Alive<S>(S, Runtime);

impl<S: Service<Request<Body>, Response = Response<Body>>> Service<Request<Body>> for Alive<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::result::Result<(), Self::Error>> {
        let Self(service, _runtime) = self;
        service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// The requests of one call to Redis.
const TOGETHER: u32 = 64;

/// A caller that never comes again: each is denied, once, by a real server, in calls of 64.
pub(super) fn flooded(is_asking: bool) -> Box<dyn FnMut(u32)> {
    const DEADLINE: Duration = Duration::from_secs(60);

    let server = Standalone::start();
    let builder = RedisBackend::builder(&server.url()).connections(1);
    let builder = builder.deadline(DEADLINE).connect_deadline(DEADLINE);
    let builder = match is_asking {
        true => builder.ask_every_denial(),
        false => builder,
    };
    let connected = runtime().and_then(|runtime| {
        let backend = runtime.block_on(builder.connect())?;
        Ok((runtime, backend))
    });
    let Ok((runtime, backend)) = connected else {
        return each(|_| {});
    };
    let mut caller = 0;
    Box::new(move |callers| {
        let _lives = &server;
        for _ in 0..callers.div_ceil(TOGETHER) {
            // A call without charges goes ahead: while it is on its way they gather.
            let ahead = backend.decide(Call::of(&[]));
            let asked: Vec<_> = (0..TOGETHER)
                .map(|_| {
                    caller += 1;
                    refused(&backend, Ipv4Addr::from_bits(0x0a00_0000 + caller))
                })
                .collect();
            runtime.block_on(async {
                let _time = ahead.await;
                for answer in asked {
                    let _denied = answer.await;
                }
            });
        }
    })
}

/// A question for more than there ever is.
fn refused(
    backend: &RedisBackend,
    caller: Ipv4Addr,
) -> impl Future<Output = std::result::Result<tollgate::Decision, BackendError>> {
    const ONE: Quota = Quota::per_day(1);
    let key = Key::from(IpAddr::V4(caller));
    backend.decide(Call::of(&[Charge {
        scope: Scope::of("flood", 0, &ONE),
        quota: &ONE,
        key: &key,
        cost: 2,
        mode: Mode::Enforce,
    }]))
}
