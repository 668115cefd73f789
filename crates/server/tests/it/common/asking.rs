//! A client of Envoy's rate limit service, and what it asks and hears in few words.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tollgate::{LimiterBuilder, ManualClock, MemoryBackend, OnFailure};
use tollgate_server::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate_server::proto::rate_limit_response::DescriptorStatus;
use tollgate_server::proto::rate_limit_response::rate_limit::Unit;
use tollgate_server::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::transport::Channel;

use super::{File, Served, without_redis};

const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Two policies, and rules for a user, an account and reports.
pub(crate) const RULES: &str = r#"
[[policies]]
name = "account"
quotas = "10/h"
on_demand = true

[[policies]]
name = "user"
quotas = "3/h"
on_demand = true

[[policies]]
name = "trial"
quotas = "1/h"
on_demand = true
shadow = true

[[envoy]]
domain = "shop"
descriptor = [{ key = "account" }]
policy = "account"

[[envoy]]
domain = "shop"
descriptor = [{ key = "account" }, { key = "user" }]
policy = "user"

[[envoy]]
domain = "shop"
descriptor = [{ key = "used", value = "tokens" }, { key = "account" }]
policy = "account"
report = true

[[envoy]]
domain = "shop"
descriptor = [{ key = "trial" }]
policy = "trial"
"#;

/// A backend whose clock stands still.
pub(crate) fn at_a_standstill(builder: LimiterBuilder) -> LimiterBuilder {
    builder.backend(MemoryBackend::builder().clock(ManualClock::new()).build())
}

pub(crate) struct Asker {
    pub(crate) served: Served,
    pub(crate) client: RateLimitServiceClient<Channel>,
}

impl Asker {
    pub(crate) async fn of(rules: &str) -> Self {
        Self::with(&File::toml(rules), at_a_standstill).await
    }

    pub(crate) async fn with(
        file: &File,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Self {
        Self::to(Served::with(file, ANYWHERE, finish).await).await
    }

    /// One whose policies do this without their backend, whatever the file says.
    pub(crate) async fn without_redis(file: &File, on_failure: Option<OnFailure>) -> Self {
        Self::to(Served::failing(file, ANYWHERE, on_failure, without_redis).await).await
    }

    async fn to(served: Served) -> Self {
        let channel = Channel::from_shared(format!("http://{}", served.address));
        let channel = channel.unwrap().connect().await.unwrap();
        let client = RateLimitServiceClient::new(channel);
        Self { served, client }
    }

    pub(crate) async fn ask(
        &mut self,
        descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
    ) -> RateLimitResponse {
        self.send(request(descriptors)).await.unwrap()
    }

    pub(crate) async fn send(
        &mut self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        let answer = self.client.should_rate_limit(request).await?;
        Ok(answer.into_inner())
    }

    /// The code and the words with which a request is refused that makes no sense.
    pub(crate) async fn wrong(&mut self, request: RateLimitRequest) -> String {
        let status = self.send(request).await.unwrap_err();
        format!("{:?}: {}", status.code(), status.message())
    }

    pub(crate) async fn left(&mut self, descriptor: RateLimitDescriptor) -> u32 {
        let peek = hits(descriptor, 0);
        self.ask([peek]).await.statuses[0].limit_remaining
    }
}

pub(crate) fn request(
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| (*key, value.as_bytes()));
    raw_descriptor(&entries.collect::<Vec<_>>())
}

/// One whose values need not be UTF-8.
pub(crate) fn raw_descriptor(entries: &[(&str, &[u8])]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: value.to_vec(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    }
}

pub(crate) fn hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor
    }
}

pub(crate) fn stating(
    descriptor: RateLimitDescriptor,
    requests: u32,
    unit: Unit,
) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: requests,
            unit: unit.into(),
        }),
        ..descriptor
    }
}

pub(crate) fn account(name: &str) -> RateLimitDescriptor {
    descriptor(&[("account", name)])
}

pub(crate) fn user(account: &str, name: &str) -> RateLimitDescriptor {
    descriptor(&[("account", account), ("user", name)])
}

/// A status in few words: the code, the limit and what is left of it.
pub(crate) fn words(status: &DescriptorStatus) -> String {
    let code = status.code().as_str_name();
    match &status.current_limit {
        None => code.to_owned(),
        Some(limit) => format!(
            "{code} {} of {} {} per {}",
            status.limit_remaining,
            limit.requests_per_unit,
            limit.name,
            limit.unit().as_str_name()
        ),
    }
}

pub(crate) fn statuses(answer: &RateLimitResponse) -> Vec<String> {
    answer.statuses.iter().map(words).collect()
}

pub(crate) fn field<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut fields = answer.response_headers_to_add.iter();
    let found = fields.find(|field| field.key == name);
    found.map(|field| &*field.value)
}
