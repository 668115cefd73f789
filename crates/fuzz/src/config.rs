//! Policies and limiters as plain data.

use std::time::Duration;

use tollgate::config::{LimiterConfig, Registry};
use tollgate::{Key, LimiterBuilder, Quota, QuotaLookup, Tiers};

/// A configuration that can be read is written in a form that reads back equal. It builds a limiter, or the error names the
/// wrong policy.
pub fn config(data: &[u8]) {
    let Ok(config) = serde_json::from_slice::<LimiterConfig>(data) else {
        return;
    };
    let written = serde_json::to_vec(&config).unwrap();
    let read: LimiterConfig = serde_json::from_slice(&written).unwrap();
    assert_eq!(read, config);

    if let Err(error) = config.build(&registry()).and_then(LimiterBuilder::build) {
        let said = error.to_string();
        let about_a_policy = config.policies.iter().any(|policy| {
            let name: String = policy.name.chars().take(16).collect();
            said.contains(&format!("{name:?}").trim_matches('"').to_owned())
        });
        let about_the_limiter = [
            "client_address",
            "network",
            "IPv6 prefix",
            "a limiter",
            "policies",
            "quotas",
        ];
        let names_it = about_a_policy || about_the_limiter.iter().any(|word| said.contains(word));
        assert!(names_it, "{said}");
        assert!(said.len() < 2_048, "{} bytes", said.len());
    }
}

fn registry() -> Registry {
    Registry::new()
        .register_condition("always", |_| true)
        .register_cost("two", |_| 2)
        .register_tiers("plan", Tiers::by(|_, _| Some("gold")))
        .register_quotas(
            "rows",
            QuotaLookup::new(Duration::from_secs(60), async |_: Key| {
                Ok::<_, String>(Quota::per_minute(250))
            }),
        )
        .register_count_if("failed", |response| response.status() == 401)
}
