//! Services, drawn at random: axum's routers and tonic's services, whose handlers write down that they ran.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, OriginalUri, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, options, post};
use bytes::Bytes;
use fastrand::Rng;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{StatusCode, Uri};
use tokio_stream::{Stream, StreamExt, once};
use tollgate::{
    BufferBodyLayer, Limiter, MessageLimitLayer, MethodRouterExt, RateLimitInterceptor,
    RateLimitLayer, rate_limit,
};
use tollgate_testkit::shop::{Order, Orders, OrdersServer, Receipt};
use tonic::service::Routes;
use tonic::{Status, Streaming};
use tonic_web::GrpcWebLayer;
use tower::util::{BoxCloneSyncService, MapRequestLayer};
use tower::{Layer, ServiceExt, service_fn};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::normalize_path::NormalizePath;

use crate::truth::book::{Book, Head, Place, Recording};
use crate::truth::policies::{NAMED, Rule};
use crate::truth::proxies::Proxies;
use crate::truth::readings::{self, Who};

/// The bytes of a body that are read for keys that stand in it.
pub(crate) const BUFFER: usize = 256;
/// The policies of annotated handlers.
pub(crate) const ANNOTATED: &str = "annotated";
pub(crate) const LIMITED: &str = "limited";

/// A service of which parts may be left out.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) around: Around,
    pub(crate) bricks: Vec<Brick>,
    pub(crate) grpc: Option<Grpc>,
    pub(crate) buffers_bodies: bool,
    /// True if a layer inside the limiter reads compressed bodies for the handlers.
    pub(crate) decompresses: bool,
    pub(crate) proxies: Proxies,
}

/// The place of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// `router.layer(..)`, which stands around the fallbacks too.
    Router,
    /// `layer.layer(router)`: no router of axum's is further out.
    Service,
    /// `router.route_layer(..)`: not around the router's fallbacks.
    Routes,
    /// `.nest("/in", inner.layer(..))`: nothing else is limited.
    Nested,
    /// The same as a `nest_service`, behind a layer that takes the last slashes off a path.
    Rewritten,
    /// `router.layer(..)` as the fallback of another router, behind a layer that takes a prefix off a path.
    Behind,
}

/// The prefix that a layer further out takes off.
pub(crate) const PREFIX: &str = "/front";

/// The target of a request as the router behind all rewriting gets it.
#[derive(Clone)]
struct Routed(Uri);

impl Around {
    /// True if only the nest is limited.
    fn is_nest(self) -> bool {
        matches!(self, Self::Nested | Self::Rewritten)
    }
}

/// A part of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brick {
    Any,
    Get,
    Both,
    Options,
    /// `get(h).fallback(h)`.
    MethodFallback,
    Items,
    Files,
    Nest,
    /// The nest's own fallback.
    NestFallback,
    Merge,
    Fallback,
    /// The router's answer to methods that a route does not have.
    NotAllowed,
    /// `#[rate_limit(..)]`.
    Annotated,
    /// `.rate_limit(..)`.
    Limited,
    /// `.rate_limit_by(..)`.
    Named,
    /// A handler of HTTP at a path that looks like gRPC's health service.
    FalseHealth,
}

const BRICKS: [Brick; 16] = [
    Brick::Any,
    Brick::Get,
    Brick::Both,
    Brick::Options,
    Brick::MethodFallback,
    Brick::Items,
    Brick::Files,
    Brick::Nest,
    Brick::NestFallback,
    Brick::Merge,
    Brick::Fallback,
    Brick::NotAllowed,
    Brick::Annotated,
    Brick::Limited,
    Brick::Named,
    Brick::FalseHealth,
];

/// The services of tonic's on the same port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grpc {
    pub(crate) health: bool,
    /// True if the shop has an interceptor, with the first policy that fits one.
    pub(crate) interceptor: bool,
    /// True if tonic-web translates for browsers, outside of the layer for messages.
    pub(crate) web: bool,
    /// True if it stands in a nest of axum's.
    pub(crate) is_nested: bool,
    /// A layer for messages that goes by what a request says it is: too weak.
    pub(crate) weak_messages: bool,
}

impl Spec {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let around = [
            Around::Router,
            Around::Router,
            Around::Service,
            Around::Routes,
            Around::Nested,
            Around::Rewritten,
            Around::Behind,
        ];
        let around = *rng.choice(&around).unwrap();
        let mut bricks: Vec<_> = BRICKS.into_iter().filter(|_| rng.bool()).collect();
        let needs_nest = around.is_nest() || bricks.contains(&Brick::NestFallback);
        if needs_nest && !bricks.contains(&Brick::Nest) {
            bricks.push(Brick::Nest);
        }
        let has_grpc = rng.u8(0..3) != 0;
        Self {
            around,
            bricks,
            grpc: has_grpc.then(|| Grpc {
                health: rng.bool(),
                interceptor: rng.u8(0..4) == 0,
                web: rng.u8(0..4) == 0,
                is_nested: rng.u8(0..3) == 0,
                weak_messages: false,
            }),
            buffers_bodies: true,
            decompresses: rng.bool(),
            proxies: Proxies::draw(rng),
        }
    }

    fn has(&self, brick: Brick) -> bool {
        self.bricks.contains(&brick)
    }
}

/// A service of any kind.
pub(crate) type Service = BoxCloneSyncService<http::Request<Body>, Response, Infallible>;

/// The service with these policies, or nothing if the limiter refuses them.
pub(crate) fn build(spec: &Spec, rules: &[Rule], book: &Arc<Book>) -> Option<Service> {
    let wanted: Vec<Who> = rules.iter().map(|rule| rule.who).collect();
    let backend = Recording::new(book);
    let mut intercepting = None;
    let limiter = Limiter::builder().client_address(spec.proxies.address());
    let mut limiter = limiter.allow_no_policies();
    for rule in rules {
        if intercepts(spec, rules) == Some(rule.name) {
            let limiter = Limiter::builder().client_address(spec.proxies.address());
            intercepting = Some(limiter.policy(rule.policy()?));
        } else {
            limiter = limiter.policy(rule.policy()?);
        }
    }
    let limiter = limiter.backend(backend.clone()).build().ok()?;
    rules.iter().for_each(|rule| rule.ban(&limiter));
    let interceptor = match intercepting {
        None => None,
        Some(limiter) => Some(RateLimitInterceptor::new(limiter, backend).ok()?),
    };
    let wiring = Wiring {
        book: Arc::clone(book),
        wanted: wanted.into(),
        spec,
        limiter,
        interceptor,
    };
    Some(wiring.service())
}

/// The policy that is an interceptor's, if there is one.
pub(crate) fn intercepts(spec: &Spec, rules: &[Rule]) -> Option<&'static str> {
    if !spec.grpc?.interceptor {
        return None;
    }
    let mut rules = rules.iter().filter(|rule| !rule.on_demand);
    let fitting = rules.find(|rule| rule.fits_an_interceptor())?;
    Some(fitting.name)
}

struct Wiring<'s> {
    book: Arc<Book>,
    wanted: Arc<[Who]>,
    spec: &'s Spec,
    limiter: Limiter,
    interceptor: Option<RateLimitInterceptor>,
}

/// A handler's place, and what it writes in.
#[derive(Clone, Debug)]
struct Stand {
    book: Arc<Book>,
    wanted: Arc<[Who]>,
    place: Place,
}

impl Wiring<'_> {
    fn service(self) -> Service {
        let Self { spec, limiter, .. } = &self;
        let around = spec.around;
        let layer = RateLimitLayer::new(limiter);
        let mut router = self.routes();
        if spec.decompresses {
            router = router.layer(RequestDecompressionLayer::new());
        }
        if around == Around::Routes {
            router = router.route_layer(layer.clone());
        }
        router = self.fallbacks(router);
        if matches!(around, Around::Router | Around::Behind) {
            router = router.layer(layer.clone());
        }
        if around == Around::Behind {
            let rewriting = MapRequestLayer::new(without_prefix);
            router = Router::new().fallback_service(rewriting.layer(router));
        }
        let service = if around == Around::Service {
            BoxCloneSyncService::new(layer.layer(router))
        } else {
            BoxCloneSyncService::new(router)
        };
        if spec.buffers_bodies {
            let buffers = BufferBodyLayer::new(BUFFER);
            // Inside of a router's own layers no other service has to know.
            let service = service.map_request(|request: http::Request<_>| request.map(Body::new));
            return BoxCloneSyncService::new(buffers.layer(service));
        }
        service
    }

    fn routes(&self) -> Router {
        let Self { spec, .. } = self;
        let outer = !spec.around.is_nest();
        let run = |name| self.handler(name, outer);
        let mut router = Router::new().route("/open", any(run("open")));
        for brick in &spec.bricks {
            router = match brick {
                Brick::Any => router.route("/any", any(run("any"))),
                Brick::Get => router.route("/get", get(run("get"))),
                Brick::Both => router.route("/both", get(run("both/get")).post(run("both/post"))),
                Brick::Options => router.route("/options", options(run("options"))),
                Brick::MethodFallback => {
                    let routed = get(run("method/get")).fallback(run("method/fallback"));
                    router.route("/method", routed)
                }
                Brick::Items => router.route("/items/{id}", any(run("items"))),
                Brick::Files => router.route("/files/{*path}", any(run("files"))),
                Brick::Nest if spec.around == Around::Rewritten => {
                    let rewritten = NormalizePath::trim_trailing_slash(self.nest());
                    router.nest_service("/in", rewritten)
                }
                Brick::Nest => router.nest("/in", self.nest()),
                Brick::Merge => {
                    let other = Router::new().route("/merged", post(run("merged")));
                    router.merge(other)
                }
                Brick::Annotated if outer => {
                    let stand = self.stand("annotated", outer, Some(ANNOTATED));
                    router.route("/annotated", any(annotated).with_state(stand))
                }
                Brick::Limited if outer => {
                    let run = self.handler_with("limited", outer, Some(LIMITED));
                    let routed = any(run).rate_limit("1000000/h");
                    router.route("/limited", routed)
                }
                Brick::Named if outer => {
                    let run = self.handler_with("named", outer, Some(NAMED));
                    let routed = get(run.clone()).post(run.clone()).fallback(run);
                    router.route("/named", routed.rate_limit_by(NAMED))
                }
                Brick::FalseHealth
                    if !spec.grpc.is_some_and(|grpc| grpc.health && !grpc.is_nested) =>
                {
                    router.route("/grpc.health.v1.Health/{*rest}", any(run("false health")))
                }
                _ => router,
            };
        }
        if spec.has(Brick::NotAllowed) {
            router = router.method_not_allowed_fallback(run("not allowed"));
        }
        if let Some(grpc) = spec.grpc {
            router = if grpc.is_nested {
                router.nest("/api", self.grpc(grpc))
            } else {
                router.merge(self.grpc(grpc))
            };
        }
        router
    }

    fn nest(&self) -> Router {
        let run = |name| self.handler(name, true);
        let mut inner = Router::new()
            .route("/x", any(run("in/x")))
            .route("/{id}", get(run("in/id")));
        let is_nested = self.spec.around.is_nest();
        if self.spec.has(Brick::NestFallback) {
            let behind = self.spec.around != Around::Routes;
            inner = inner.fallback(self.handler("in/fallback", behind));
        }
        if is_nested {
            inner = inner.layer(RateLimitLayer::new(&self.limiter));
        }
        inner
    }

    fn fallbacks(&self, router: Router) -> Router {
        if !self.spec.has(Brick::Fallback) {
            return router;
        }
        let behind = !matches!(self.spec.around, Around::Routes) && !self.spec.around.is_nest();
        router.fallback(self.handler("fallback", behind))
    }

    fn grpc(&self, grpc: Grpc) -> Router {
        let shop = || {
            let mut stand = self.stand("", !self.spec.around.is_nest(), None);
            stand.place.is_grpc = true;
            stand.place.is_nested = grpc.is_nested;
            let shop = Shop {
                stand: stand.clone(),
            };
            let routes = match &self.interceptor {
                None => Routes::new(OrdersServer::new(shop)),
                Some(interceptor) => {
                    Routes::new(OrdersServer::with_interceptor(shop, interceptor.clone()))
                }
            };
            let routes = if grpc.health {
                let (_, health) = tonic_health::server::health_reporter();
                routes.add_service(health)
            } else {
                routes
            };
            let router = routes.into_axum_router().reset_fallback();
            router.layer(from_fn_with_state(stand, show_head))
        };
        let limited = shop().layer(MessageLimitLayer::new(&self.limiter));
        if grpc.weak_messages {
            let bare = shop();
            let chosen = service_fn(move |request: Request| {
                let content_type = request.headers().get(CONTENT_TYPE);
                let is_call = request.method() == http::Method::POST
                    && content_type.is_some_and(|value| value == "application/grpc");
                let chosen = if is_call { &limited } else { &bare };
                chosen.clone().oneshot(request)
            });
            return Router::new().route_service("/shop.v1.Orders/{*rest}", chosen);
        }
        if grpc.web {
            return limited.layer(GrpcWebLayer::new());
        }
        limited
    }

    fn stand(&self, name: &'static str, behind: bool, own: Option<&'static str>) -> Stand {
        Stand {
            book: Arc::clone(&self.book),
            wanted: Arc::clone(&self.wanted),
            place: Place {
                name,
                behind,
                is_grpc: false,
                is_nested: false,
                own,
            },
        }
    }

    fn handler(&self, name: &'static str, behind: bool) -> impl Runs + use<> {
        self.handler_with(name, behind, None)
    }

    fn handler_with(
        &self,
        name: &'static str,
        behind: bool,
        own: Option<&'static str>,
    ) -> impl Runs + use<> {
        let stand = self.stand(name, behind, own);
        move |request: Request| -> Running { Box::pin(run(stand.clone(), request)) }
    }
}

type Running = Pin<Box<dyn Future<Output = Response> + Send>>;
/// A handler of whole requests.
trait Runs: Fn(Request) -> Running + Clone + Send + Sync + 'static {}
impl<F: Fn(Request) -> Running + Clone + Send + Sync + 'static> Runs for F {}

#[rate_limit("1000000/h")]
async fn annotated(State(stand): State<Stand>, request: Request) -> Response {
    run(stand, request).await
}

async fn run(stand: Stand, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = if stand.wanted.iter().any(|who| who.is_in_body()) {
        to_bytes(body, 1 << 20).await.unwrap_or_default()
    } else {
        Bytes::new()
    };
    let head = head(&mut parts, &body, &stand.wanted).await;
    let _ = stand.book.began(stand.place, Arc::new(head));
    StatusCode::OK.into_response()
}

async fn head(parts: &mut Parts, body: &Bytes, wanted: &[Who]) -> Head {
    let routed = parts.extensions.get::<Routed>().map(|routed| &routed.0);
    let original = parts
        .extensions
        .get::<OriginalUri>()
        .map(|original| &original.0);
    let uri = routed.or(original).unwrap_or(&parts.uri).clone();
    let matched = parts.extensions.get::<MatchedPath>();
    Head {
        method: parts.method.clone(),
        uri,
        matched: matched.map(|matched| matched.as_str().to_owned()),
        headers: parts.headers.clone(),
        readings: if wanted.is_empty() {
            BTreeMap::new()
        } else {
            readings::read(parts, body, wanted).await
        },
    }
}

fn without_prefix(mut request: Request) -> Request {
    let path = request
        .uri()
        .path_and_query()
        .map_or("", |path| path.as_str());
    if let Some(rest) = path.strip_prefix(PREFIX)
        && rest.starts_with('/')
        && let Ok(uri) = rest.parse()
    {
        *request.uri_mut() = uri;
    }
    let routed = Routed(request.uri().clone());
    request.extensions_mut().insert(routed);
    request
}

/// Lets the methods of tonic's services see the head of the request, which tonic does not show them.
async fn show_head(State(stand): State<Stand>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let head = head(&mut parts, &Bytes::new(), &stand.wanted).await;
    parts.extensions.insert(Arc::new(head));
    next.run(Request::from_parts(parts, body)).await
}

/// The shop, which writes down its callers.
struct Shop {
    stand: Stand,
}

impl Shop {
    fn began<T>(&self, name: &'static str, request: &tonic::Request<T>) -> usize {
        let place = Place {
            name,
            ..self.stand.place
        };
        let head = request.extensions().get::<Arc<Head>>().unwrap();
        self.stand.book.began(place, Arc::clone(head))
    }

    fn one(&self, name: &'static str, request: &tonic::Request<Order>) {
        let run = self.began(name, request);
        self.stand.book.received(run);
    }
}

type Receipts = Pin<Box<dyn Stream<Item = Result<Receipt, Status>> + Send>>;

#[tonic::async_trait]
impl Orders for Shop {
    type WatchStream = Receipts;
    type ChatStream = Receipts;

    async fn place(
        &self,
        request: tonic::Request<Order>,
    ) -> Result<tonic::Response<Receipt>, Status> {
        self.one("Place", &request);
        Ok(tonic::Response::new(Receipt { count: 1 }))
    }

    async fn upload(
        &self,
        request: tonic::Request<Streaming<Order>>,
    ) -> Result<tonic::Response<Receipt>, Status> {
        let run = self.began("Upload", &request);
        let mut orders = request.into_inner();
        let mut count = 0;
        while orders.message().await?.is_some() {
            self.stand.book.received(run);
            count += 1;
        }
        Ok(tonic::Response::new(Receipt { count }))
    }

    async fn watch(
        &self,
        request: tonic::Request<Order>,
    ) -> Result<tonic::Response<Receipts>, Status> {
        self.one("Watch", &request);
        let receipts = once(Ok(Receipt { count: 1 }));
        Ok(tonic::Response::new(Box::pin(receipts)))
    }

    async fn chat(
        &self,
        request: tonic::Request<Streaming<Order>>,
    ) -> Result<tonic::Response<Receipts>, Status> {
        let run = self.began("Chat", &request);
        let book = Arc::clone(&self.stand.book);
        let receipts = request.into_inner().map(move |order| {
            order?;
            book.received(run);
            Ok(Receipt { count: 1 })
        });
        Ok(tonic::Response::new(Box::pin(receipts)))
    }
}
