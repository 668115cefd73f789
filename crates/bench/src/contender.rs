//! The contenders on a Redis server: Tollgate, and the alternatives.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use redis::aio::MultiplexedConnection;
use tollgate_core::{Backend, Call, Charge, Key, Mode, Quota, Scope};
use tollgate_redis::RedisBackend;
use tower::{Layer, ServiceExt, service_fn};
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};

use crate::Result;

/// The obvious implementation: one key, whole microseconds, `SET … PX`.
const PLAIN: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local after = at + interval
if after > now + burst then return {0, after - now - burst} end
redis.call('SET', KEYS[1], string.format('%d', after), 'PX', string.format('%d', math.ceil((after - now) / 1000)))
return {1, math.floor((now + burst - after) / interval)}";

/// More than a caller can spend here, and slow enough that the state lasts.
pub(crate) const QUOTA: Quota = Quota::per_second(1).burst(BURST);
const BURST: u64 = 100_000_000;
const INTERVAL: Duration = Duration::from_secs(1);

/// The names, in the order of the tables.
pub(crate) const NAMES: [&str; 3] = ["Tollgate", "plain EVALSHA", "tower-rate-limit-redis"];

/// A connected contender.
#[derive(Clone)]
pub(crate) enum Contender {
    Ours {
        backend: RedisBackend,
        scope: Scope,
    },
    Plain {
        connection: MultiplexedConnection,
        sha: String,
    },
    Layer(PeerLayer),
}

type PeerLayer = RateLimitLayer<ByCaller>;

impl Contender {
    /// The contender of this name.
    pub(crate) async fn connect(name: &str, url: &str) -> Result<Self> {
        match name {
            "Tollgate" => {
                let builder = RedisBackend::builder(url).deadline(Duration::from_secs(60));
                // The others ask each time.
                let builder = builder.ask_every_denial();
                Ok(Self::Ours {
                    backend: builder.connect().await?,
                    scope: Scope::of("api", 0, &QUOTA),
                })
            }
            "plain EVALSHA" => {
                let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
                let client = redis::Client::open(url)?;
                let mut connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?;
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(PLAIN);
                let sha = load.query_async(&mut connection).await?;
                Ok(Self::Plain { connection, sha })
            }
            _ => Ok(Self::Layer(peer_layer(url, ByCaller).await?)),
        }
    }

    /// Asks for this caller. Says whether it is allowed.
    pub(crate) async fn decide(&mut self, caller: u64) -> Result<bool> {
        match self {
            Self::Ours { backend, scope } => {
                let key = Key::from(format!("caller-{caller:05}"));
                let charge = Charge {
                    scope: *scope,
                    quota: &QUOTA,
                    key: &key,
                    cost: 1,
                    mode: Mode::Enforce,
                };
                Ok(backend.decide(Call::of(&[charge])).await?.is_admitted())
            }
            Self::Plain { connection, sha } => {
                let interval_us = INTERVAL.as_micros() as u64;
                let mut call = redis::cmd("EVALSHA");
                call.arg(&*sha).arg(1).arg(name("plain", caller));
                call.arg(interval_us).arg(interval_us * BURST);
                let (allowed, _): (i64, i64) = call.query_async(connection).await?;
                Ok(allowed == 1)
            }
            Self::Layer(layer) => {
                let service = layer.layer(service_fn(answer));
                let mut request = Request::new(());
                request.extensions_mut().insert(Caller(caller));
                let response = service.oneshot(request).await?;
                match response.status() {
                    StatusCode::OK => Ok(true),
                    StatusCode::TOO_MANY_REQUESTS => Ok(false),
                    status => Err(format!("tower-rate-limit-redis answers {status}").into()),
                }
            }
        }
    }
}

/// tower-rate-limit-redis. `key` tells its callers apart, and it has the largest burst that it can be told. That is enough for
/// many callers, but not for one alone.
pub(crate) async fn peer_layer<K: KeyResolver>(url: &str, key: K) -> Result<RateLimitLayer<K>> {
    let client = redis_0_32::Client::open(url)?;
    let connection = client.get_multiplexed_async_connection().await?;
    Ok(RateLimitLayer::<K>::builder()
        .conn(connection)
        .key_resolver(key)
        .capacity(u16::MAX)
        .emission_interval(INTERVAL)
        .build())
}

/// 31 bytes, as long as the name of our own key, and different for each contender.
fn name(who: &str, caller: u64) -> String {
    format!("{who}:throughput:0/caller-{caller:05}")
}

fn answer(_request: Request<()>) -> Ready<std::result::Result<Response<String>, Infallible>> {
    ready(Ok(Response::new(String::new())))
}

#[derive(Clone, Copy)]
struct Caller(u64);

/// The type by which its layer tells callers apart.
#[derive(Clone)]
pub(crate) struct ByCaller;

impl KeyResolver for ByCaller {
    type Key = String;
    type ErrorBody = String;

    fn key<T>(&self, request: &Request<T>) -> std::result::Result<String, Response<String>> {
        let caller = request.extensions().get::<Caller>();
        Ok(name("other", caller.map_or(0, |caller| caller.0)))
    }
}
