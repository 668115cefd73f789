//! The closures and lists that the configurations of the tests name.

use std::time::Duration;

use tollgate::config::Registry;
use tollgate::key::{KeyList, from_async_fn, from_fn};
use tollgate::{Key, Networks, PressureGauge, Quota, QuotaLookup, Tiers};

/// Something of every kind.
pub fn registry() -> Registry {
    Registry::new()
        .register_condition("internal", |request| {
            request.headers().contains_key("x-internal")
        })
        .register_condition("always", |_| true)
        .register_key(
            "user",
            from_fn(|request| {
                request
                    .headers()
                    .get("x-user")
                    .map(|user| Key::bytes(user.as_bytes()))
            }),
        )
        .register_key_async("session", from_async_fn(|_| async { Some("s") }))
        .register_cost("two", |_| 2)
        .register_tiers(
            "plan",
            Tiers::by(|key, _| (key.content() == b"a").then_some("gold")),
        )
        .register_quotas(
            "rows",
            QuotaLookup::new(Duration::from_secs(60), async |key: Key| {
                let stated = (key.content() == b"a").then(|| Quota::per_hour(4));
                Ok::<_, String>(stated)
            }),
        )
        .register_count_if("failed", |response| response.status() == 401)
        .register_free_if("fine", |response| response.status() == 200)
        .register_settle_by("three", |_| Some(3))
        .register_settle_by_bytes("bytes", |bytes| bytes)
        .register_key_list("partners", ["b"].into_iter().collect::<KeyList>())
        .register_network_list("offices", Networks::new(["192.0.2.0/24"]))
        .register_pressure("queue", PressureGauge::new())
}
