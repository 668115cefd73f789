//! The compared ways to serve a request.

mod axum_governor;
mod checks;
mod control;
mod known;
mod leased;

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::exporter::prometheus;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, Uri};
use tollgate::{
    Algorithm, Ban, Concurrent, ConfigError, Event, Limiter, Policy, PressureGauge, Quota,
    RateLimitLayer, Share, key,
};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

pub use self::checks::with_charges;
use self::control::Control;

/// Callers that take turns.
const CALLERS: u32 = 1000;

/// A quota that no caller here reaches, and slow enough that the state still matters a round later.
const PLENTY: Quota = Quota::per_day(1_000_000);

/// A quota that every caller here has used up after the first round.
const LITTLE: Quota = Quota::per_day(1);

macro_rules! scenarios {
    ($($variant:ident $name:literal $about:literal,)+) => {
        /// One way to serve a request, or to check a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Scenario {
            $(#[doc = $about] $variant,)+
        }

        impl Scenario {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// A word for it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// A description in one line.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about),+ }
            }
        }
    };
}

scenarios! {
    Bare "bare" "the service alone",
    BareTyped "bare-typed" "the service alone, with a content type",
    TollgatePlain "tollgate-plain" "layer, allowed, headers off, not readable",
    TollgateStatus "tollgate-status" "layer, allowed, headers off, readable by handlers",
    TollgateFields "tollgate-fields" "layer, allowed, with headers, not readable",
    TollgateHeaders "tollgate-headers" "layer, allowed, with headers, readable by handlers",
    TollgateTyped "tollgate-typed" "the same, on a response with a content type",
    TollgateVaried "tollgate-varied" "the same, no two callers with the same left",
    TollgateDenied "tollgate-denied" "layer, denied, problem+json",
    HttpEntry "http-entry" "no layer, an entry in the request's extensions",
    HttpHeaders "http-headers" "no layer, a copy of two headers on the response",
    HttpBoth "http-both" "no layer, the two together",
    BareStreamed "bare-streamed" "the service alone, with a body that is sent",
    TollgateHeld "tollgate-held" "layer, held until the end of a body that has ended, headers off, not readable",
    TollgateHeldStreamed "tollgate-held-streamed" "the same, until a body is dropped that is sent",
    ConcurrencyLimit "concurrency-limit" "tower's ConcurrencyLimit, one for all callers, until the response's head",
    ConcurrencyLimitStreamed "concurrency-limit-streamed" "the same, on a response whose body is sent",
    BareIpv6 "bare-ipv6" "the service alone, to peers in IPv6",
    TollgateIpv6 "tollgate-ipv6" "as plain, to peers in IPv6, each in a /64 of its own",
    BarePost "bare-post" "the service alone, a POST on a path",
    TollgatePost "tollgate-post" "as plain, a POST on a path",
    TollgatePostHeaders "tollgate-post-headers" "with headers, readable by handlers, a POST on a path",
TollgateUnderPressure "tollgate-under-pressure" "as plain, with classes of which none is refused at present",
    TollgateObserved "tollgate-observed" "as plain, with an observer that counts",
    TollgateMetered "tollgate-metered" "as plain, with metrics, and no recorder yet",
    TollgateExported "tollgate-exported" "as plain, with metrics, and the recorder of metrics-exporter-prometheus",
    TollgateReplaced "tollgate-replaced" "as plain, with policies that are replaced after every ten requests",
    TollgateShare "tollgate-share" "as plain, by a request of the class for which a share is kept",
    TollgateBan "tollgate-ban" "as plain, with a ban for those that are denied too often",
    TollgateBanned "tollgate-banned" "as denied, of callers that are banned",
    TollgateDeniedAlike "tollgate-denied-alike" "as denied, of a hundred callers",
    TollgateOffenders "tollgate-offenders" "the same, with the callers counted that are denied most",
    TollgateOffendersMany "tollgate-offenders-many" "the same, of a thousand callers, twice as many as have a place",
    TollgateDeniedPlain "tollgate-denied-plain" "as denied, of a hundred callers, headers off, not readable",
    TollgateKnown "tollgate-known" "as denied, of a hundred callers, whose denials the Redis backend knows",
    TollgateKnownPlain "tollgate-known-plain" "the same, headers off, not readable",
    TollgateLeased "tollgate-leased" "as plain, of one hot caller, out of leased blocks of a shared backend",
    FloodKnown "flood-known" "Redis backend, a denial of a caller that never comes again, in calls of 64",
    FloodAsked "flood-asked" "the same, if each denial is asked for",
    BareRoute "bare-route" "the service alone, on a path",
    TollgateOneRoute "tollgate-one-route" "as plain, one policy with a route",
    TollgateHundredRoutes "tollgate-hundred-routes" "as plain, a hundred policies with a route each",
    RouterHundredRoutes "matchit-hundred-routes" "axum's router, one path among a hundred routes",
    AxumHundredRoutes "axum-hundred-routes" "the service as one of a hundred routes of axum's",
    GovernorPlain "tower-governor-plain" "tower_governor, allowed, headers off",
    GovernorHeaders "tower-governor-headers" "tower_governor, allowed, with headers",
    GovernorTyped "tower-governor-typed" "the same, on a response with a content type",
    GovernorDenied "tower-governor-denied" "tower_governor, denied, with headers",
    AxumGovernor "axum-governor" "axum-governor, allowed, with headers",
    AxumGovernorTyped "axum-governor-typed" "the same, on a response with a content type",
    AxumGovernorDenied "axum-governor-denied" "axum-governor, denied, with headers",
    CheckAddress "check-address" "memory backend, one GCRA check, address key",
    CheckShortText "check-short-text" "memory backend, one GCRA check, string key of 8 bytes",
    CheckText "check-text" "memory backend, one GCRA check, string key of 31 bytes",
    CheckUuid "check-uuid" "memory backend, one GCRA check, string key, a UUID",
    CheckHeld "check-held" "memory backend, one taken and given back, address key",
    CheckFixedWindow "check-fixed-window" "memory backend, one check of a fixed window, address key",
    CheckIntervalRefill "check-interval-refill" "memory backend, one check of a refill in intervals, address key",
    CheckCalendar "check-calendar" "memory backend, one check of a day of a calendar, address key",
    CheckWarmUp "check-warm-up" "memory backend, one check of a quota that warms up, address key",
    CheckUpTo "check-up-to" "memory backend, as much as there is of one quota, address key",
    CheckOnce "check-once" "memory backend, one check with an id that was never seen, address key",
    CheckReplay "check-replay" "memory backend, one check with an id that is remembered, address key",
    CheckTwo "check-two" "the same with two charges, one on a budget that all share",
    CheckEight "check-eight" "the same with eight charges, each by another quota",
    GovernorCheckAddress "governor-address" "governor, keyed check, address key",
    GovernorCheckShortText "governor-short-text" "governor, keyed check, string key of 8 bytes",
    GovernorCheckText "governor-text" "governor, keyed check, string key of 31 bytes",
    GovernorCheckUuid "governor-uuid" "governor, keyed check, string key, a UUID",
    LoopAddress "loop-address" "building the address key alone",
    LoopText "loop-text" "building the string key alone",
}

impl Scenario {
    /// The scenario of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|scenario| scenario.name() == name)
    }

    /// The scenario to subtract, to get the cost of the limiter alone.
    #[must_use]
    pub fn baseline(self) -> Option<Self> {
        match self {
            Self::Bare
            | Self::BareTyped
            | Self::BareStreamed
            | Self::BareIpv6
            | Self::BarePost
            | Self::BareRoute
            | Self::RouterHundredRoutes
            | Self::FloodKnown
            | Self::FloodAsked
            | Self::LoopAddress
            | Self::LoopText => None,
            Self::TollgateOneRoute | Self::TollgateHundredRoutes | Self::AxumHundredRoutes => {
                Some(Self::BareRoute)
            }
            Self::TollgateHeldStreamed | Self::ConcurrencyLimitStreamed => Some(Self::BareStreamed),
            Self::TollgateIpv6 => Some(Self::BareIpv6),
            Self::TollgatePost | Self::TollgatePostHeaders => Some(Self::BarePost),
            Self::TollgateTyped | Self::GovernorTyped | Self::AxumGovernorTyped => {
                Some(Self::BareTyped)
            }
            Self::CheckAddress
            | Self::CheckHeld
            | Self::CheckFixedWindow
            | Self::CheckIntervalRefill
            | Self::CheckCalendar
            | Self::CheckWarmUp
            | Self::CheckUpTo
            | Self::CheckOnce
            | Self::CheckReplay
            | Self::CheckTwo
            | Self::CheckEight
            | Self::GovernorCheckAddress => Some(Self::LoopAddress),
            Self::CheckText
            | Self::CheckShortText
            | Self::CheckUuid
            | Self::GovernorCheckText
            | Self::GovernorCheckShortText
            | Self::GovernorCheckUuid => Some(Self::LoopText),
            _ => Some(Self::Bare),
        }
    }

    /// Runs it `rounds` times for each of a thousand callers, after a round that does not count.
    pub fn run(self, rounds: u32) {
        let mut prepared = self.prepare();
        prepared(CALLERS);
        Self::measured(&mut *prepared, rounds);
    }

    /// The counted part: a function of its own, so that a profiler can be limited to it.
    #[inline(never)]
    fn measured(prepared: &mut dyn FnMut(u32), rounds: u32) {
        for _ in 0..rounds {
            prepared(CALLERS);
        }
    }

    /// A part that is not counted, within the one that is. The profiler turns its count off and on again here, because this name
    /// matches the pattern for [`measured`](Self::measured) as well.
    #[inline(never)]
    fn not_measured(part: impl FnOnce()) {
        part();
    }

    /// The scenario made ready: call it with a number of callers to serve one request for each.
    #[must_use]
    pub fn prepare(self) -> Box<dyn FnMut(u32)> {
        match self {
            Self::Bare => serve(Nothing),
            Self::BareTyped => serve(Typed),
            Self::TollgatePlain => serve(plain().layer(Nothing)),
            Self::TollgateStatus => {
                serve(RateLimitLayer::new(PLENTY).without_headers().layer(Nothing))
            }
            Self::TollgateFields => {
                serve(RateLimitLayer::new(PLENTY).without_status().layer(Nothing))
            }
            Self::TollgateHeaders => serve(RateLimitLayer::new(PLENTY).layer(Nothing)),
            Self::TollgateTyped => serve(RateLimitLayer::new(PLENTY).layer(Typed)),
            Self::TollgateVaried => {
                let mut serve = serve(RateLimitLayer::new(PLENTY).layer(Nothing));
                // The first caller comes a thousand times, the last one once.
                (1..CALLERS).for_each(&mut serve);
                serve
            }
            Self::TollgateDenied => serve(RateLimitLayer::new(LITTLE).layer(Nothing)),
            Self::HttpEntry => serve(Control::entry()),
            Self::HttpHeaders => serve(Control::headers()),
            Self::HttpBoth => serve(Control::both()),
            Self::BareStreamed => serve(Streamed),
            Self::TollgateHeld => serve(holding().layer(Nothing)),
            Self::TollgateHeldStreamed => serve(holding().layer(Streamed)),
            Self::ConcurrencyLimit => serve(ConcurrencyLimit::new(Nothing, PLACES)),
            Self::ConcurrencyLimitStreamed => serve(ConcurrencyLimit::new(Streamed, PLACES)),
            Self::BareIpv6 => serve_ipv6(Nothing),
            Self::TollgateIpv6 => serve_ipv6(plain().layer(Nothing)),
            Self::BarePost => serve_post(Nothing),
            Self::TollgatePost => serve_post(plain().layer(Nothing)),
            Self::TollgatePostHeaders => serve_post(RateLimitLayer::new(PLENTY).layer(Nothing)),
            Self::TollgateUnderPressure => serve(under_pressure().layer(Nothing)),
            Self::TollgateObserved => serve(observed().layer(Nothing)),
            Self::TollgateMetered => serve(metered().layer(Nothing)),
            Self::TollgateExported => exported(metered().layer(Nothing)),
            Self::TollgateReplaced => replaced(),
            Self::TollgateShare => {
                let share = Share::percent(20);
                let shop = Policy::new("plenty", PLENTY).keep_for("critical", share);
                let shop = shop.class_by(key::Header::new("x-class"));
                serve(silent(Limiter::builder().policy(shop).build()).layer(Nothing))
            }
            Self::TollgateBan => serve(silent(banning(PLENTY)).layer(Nothing)),
            Self::TollgateBanned => {
                let layer = banning(LITTLE).map(RateLimitLayer::new);
                serve(layer.unwrap_or_else(|_| plain()).layer(Nothing))
            }
            Self::TollgateDeniedAlike => serve_few(RateLimitLayer::new(LITTLE).layer(Nothing)),
            Self::TollgateDeniedPlain => {
                let layer = RateLimitLayer::new(LITTLE).without_headers();
                serve_few(layer.without_status().layer(Nothing))
            }
            Self::TollgateKnown => known::served(|layer| layer),
            Self::TollgateKnownPlain => {
                known::served(|layer| layer.without_headers().without_status())
            }
            Self::TollgateLeased => leased::served(),
            Self::FloodKnown => known::flooded(false),
            Self::FloodAsked => known::flooded(true),
            Self::TollgateOffenders => serve_few(tracked().layer(Nothing)),
            Self::TollgateOffendersMany => serve(tracked().layer(Nothing)),
            Self::BareRoute => serve_route(Nothing),
            Self::TollgateOneRoute => serve_route(routes(1).layer(Nothing)),
            Self::TollgateHundredRoutes => serve_route(routes(100).layer(Nothing)),
            Self::RouterHundredRoutes => {
                let mut router = matchit::Router::new();
                for n in 0..100 {
                    drop(router.insert(route(n), n));
                }
                each(move |_| {
                    drop(black_box(router.at(black_box(ROUTED))));
                })
            }
            Self::AxumHundredRoutes => {
                let routes = (0..100).map(route);
                serve_route(routes.fold(axum::Router::new(), |router, route| {
                    router.route_service(&route, Nothing)
                }))
            }
            Self::GovernorPlain => {
                let mut config = GovernorConfigBuilder::default();
                let config = config
                    .per_nanosecond(86_400_000)
                    .burst_size(1_000_000)
                    .finish();
                serve(GovernorLayer::new(Arc::new(config.unwrap_or_default())).layer(Nothing))
            }
            Self::GovernorHeaders => governor_with_headers(86_400_000, 1_000_000, Nothing),
            Self::GovernorTyped => governor_with_headers(86_400_000, 1_000_000, Typed),
            Self::GovernorDenied => governor_with_headers(86_400_000_000_000, 1, Nothing),
            Self::AxumGovernor => axum_governor::serve_with(axum_governor::PLENTY, Nothing),
            Self::AxumGovernorTyped => axum_governor::serve_with(axum_governor::PLENTY, Typed),
            Self::AxumGovernorDenied => axum_governor::serve_with(axum_governor::LITTLE, Nothing),
            Self::CheckAddress => checks::by_address(),
            Self::CheckHeld => checks::held(),
            Self::CheckFixedWindow => checks::by(Algorithm::FixedWindow {
                offset: Duration::ZERO,
            }),
            Self::CheckIntervalRefill => checks::by(Algorithm::IntervalRefill {
                offset: Duration::ZERO,
            }),
            Self::CheckCalendar => checks::by_calendar(),
            Self::CheckText => checks::by_text(checks::names()),
            Self::CheckShortText => checks::by_text(checks::short_names()),
            Self::CheckUuid => checks::by_text(checks::uuids()),
            Self::CheckWarmUp => checks::warming_up(),
            Self::CheckUpTo => checks::up_to(),
            Self::CheckOnce => checks::once(u64::MAX),
            Self::CheckReplay => checks::once(1),
            Self::CheckTwo => checks::own_and_shared(),
            Self::CheckEight => with_charges(8),
            Self::GovernorCheckAddress => checks::governor_s_by_address(),
            Self::GovernorCheckText => checks::governor_s_by_text(checks::names()),
            Self::GovernorCheckShortText => checks::governor_s_by_text(checks::short_names()),
            Self::GovernorCheckUuid => checks::governor_s_by_text(checks::uuids()),
            Self::LoopAddress => each(|caller| {
                black_box(IpAddr::V4(address(caller)));
            }),
            Self::LoopText => {
                let names = checks::names();
                each(move |caller| {
                    black_box(&names[caller as usize]);
                })
            }
        }
    }
}

/// Requests for one route, with this many policies of other routes in front.
#[must_use]
pub fn with_policies(policies: u32) -> Box<dyn FnMut(u32)> {
    serve_route(routes(policies).layer(Nothing))
}

/// A service that only answers.
#[derive(Clone, Debug)]
struct Nothing;

impl Service<Request<Body>> for Nothing {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        ready(Ok(Response::new(Body::empty())))
    }
}

/// A service that only answers, with a header of its own, as most handlers' responses have.
#[derive(Clone, Debug)]
struct Typed;

impl Service<Request<Body>> for Typed {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        let mut response = Response::new(Body::empty());
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        ready(Ok(response))
    }
}

/// A service that answers with a body that has not ended when it leaves.
#[derive(Clone, Debug)]
struct Streamed;

impl Service<Request<Body>> for Streamed {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        ready(Ok(Response::new(Body::from("a text"))))
    }
}

fn address(caller: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + caller)
}

fn each(mut f: impl FnMut(u32) + 'static) -> Box<dyn FnMut(u32)> {
    Box::new(move |callers| (0..callers).for_each(&mut f))
}

fn serve<S>(service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    serve_at(Uri::default(), service)
}

fn serve_at<S>(uri: Uri, service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    serve_from(
        move |caller, request| {
            request.uri_mut().clone_from(&uri);
            address(caller).into()
        },
        service,
    )
}

/// Serves a hundred callers, each ten times.
fn serve_few<S>(service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    serve_from(|caller, _| address(caller % 100).into(), service)
}

/// Serves with a recorder that writes pages for Prometheus.
fn exported<S>(service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    let recorder = prometheus();
    let mut serve = serve(service);
    Box::new(move |callers| {
        metrics::with_local_recorder(&recorder, || serve(callers));
        // Prometheus asks now and then, and what was recorded is summed up.
        recorder.handle().run_upkeep();
    })
}

fn serve_ipv6<S>(service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    let network =
        |caller| Ipv6Addr::from_bits((0x2001_0db8 << 96) | (u128::from(caller) << 64) | 1);
    serve_from(move |caller, _| network(caller).into(), service)
}

fn serve_post<S>(service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    let uri = Uri::from_static(ROUTED);
    serve_from(
        move |caller, request| {
            request.uri_mut().clone_from(&uri);
            *request.method_mut() = Method::POST;
            address(caller).into()
        },
        service,
    )
}

/// Requests from the peers that `head` names, which may change them.
fn serve_from<S>(
    head: impl Fn(u32, &mut Request<Body>) -> IpAddr + 'static,
    mut service: S,
) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    each(move |caller| {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::new(head(caller, &mut request), 4711);
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut cx = Context::from_waker(Waker::noop());
        drop(service.poll_ready(&mut cx));
        drop(black_box(pin!(service.call(request)).poll(&mut cx)));
    })
}

fn plain() -> RateLimitLayer {
    RateLimitLayer::new(PLENTY)
        .without_headers()
        .without_status()
}

/// A limiter that could refuse a class, by a signal that stays below.
fn under_pressure() -> RateLimitLayer {
    let limiter = Limiter::builder()
        .policy(Policy::new("plenty", PLENTY))
        .classes(["normal", "batch"], key::Header::new("x-class"))
        .shed(PressureGauge::new(), [("batch", 0.7)])
        .build();
    silent(limiter)
}

fn observed() -> RateLimitLayer {
    let heard = AtomicU64::new(0);
    let limiter = Limiter::builder()
        .policy(Policy::new("plenty", PLENTY))
        .observe(move |_: &Event<'_>| {
            heard.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    silent(limiter)
}

fn metered() -> RateLimitLayer {
    let limiter = Limiter::builder().policy(Policy::new("plenty", PLENTY));
    silent(limiter.metrics().build())
}

/// Policies that are replaced after every ten requests. The replacement itself is not counted.
fn replaced() -> Box<dyn FnMut(u32)> {
    let policy = || Policy::new("plenty", PLENTY);
    let limiter = Limiter::builder().policy(policy()).build();
    let mut serve_ten = serve(silent(limiter.clone()).layer(Nothing));
    Box::new(move |callers| {
        for _ in 0..callers / 10 {
            serve_ten(10);
            if let Ok(limiter) = &limiter {
                Scenario::not_measured(|| drop(limiter.replace([policy()])));
            }
        }
    })
}

/// A limiter that bans a caller after one denial, for a day.
fn banning(quota: Quota) -> Result<Limiter, ConfigError> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let policy = Policy::new("guarded", quota).ban(Ban::after(1, DAY).lasting(DAY));
    Limiter::builder().policy(policy).build()
}

fn tracked() -> RateLimitLayer {
    let limiter = Limiter::builder().policy(Policy::new("little", LITTLE));
    let limiter = limiter.track_offenders().build();
    limiter.map_or_else(|_| RateLimitLayer::new(LITTLE), RateLimitLayer::new)
}

/// A layer that tells neither callers nor handlers of anything.
fn silent(limiter: Result<Limiter, ConfigError>) -> RateLimitLayer {
    let layer = limiter.map_or_else(|_| RateLimitLayer::new(PLENTY), RateLimitLayer::new);
    layer.without_headers().without_status()
}

/// A limit that no caller here reaches.
const AT_ONCE: Concurrent = Concurrent::at_most(1_000_000);
const PLACES: usize = 1_000_000;

fn holding() -> RateLimitLayer {
    RateLimitLayer::new(AT_ONCE)
        .without_headers()
        .without_status()
}

/// The path of requests that are routed, and the pattern of the nth policy.
const ROUTED: &str = "/v1/thing-0/7";

fn route(n: u32) -> String {
    format!("/v1/thing-{n}/{{id}}")
}

fn routes(policies: u32) -> RateLimitLayer {
    let policies =
        (0..policies).map(|n| Policy::new(&format!("policy-{n}"), PLENTY).route(&route(n)));
    silent(Limiter::builder().policies(policies).build())
}

fn serve_route<S>(service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    serve_at(Uri::from_static(ROUTED), service)
}

fn governor_with_headers<S>(nanos: u64, burst: u32, service: S) -> Box<dyn FnMut(u32)>
where
    S: Service<Request<Body>, Response = Response<Body>> + 'static,
{
    let mut config = GovernorConfigBuilder::default();
    config.per_nanosecond(nanos).burst_size(burst);
    match config.use_headers().finish() {
        Some(config) => serve(GovernorLayer::new(Arc::new(config)).layer(service)),
        None => each(|_| {}),
    }
}
