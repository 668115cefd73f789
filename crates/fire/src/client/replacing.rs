//! A worker of a client that replaces quotas while they are in use.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Client;
use super::record::{Line, say};
use crate::instance::Instance;
use crate::population::Population;
use crate::replacement::Replacement;
use crate::wall::now_us;

/// Replaces the quotas now and then, as a deploy or a changed configuration does, also while requests wait. It records when.
pub(super) async fn replace_quotas(client: Arc<Client>) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ u64::from(orders.number) << 24);
    while !client.is_over() {
        let instance = client.entrance.instance();
        let instance = instance.as_ref();
        let version = Population::any_version_and_rate(&mut rng, instance.is_some());
        let begun = Replacement {
            process: orders.number,
            limiter: instance.map_or(0, Instance::number),
            version,
            from_us: now_us(),
            to_us: u64::MAX,
        };
        say(&Line::Replaced(begun))?;
        let replaced = client.entrance.replace_quotas(instance, version);
        replaced.map_err(std::io::Error::other)?;
        let to_us = now_us();
        say(&Line::Replaced(Replacement { to_us, ..begun }))?;
        tokio::time::sleep(Duration::from_millis(rng.u64(200..2_000))).await;
    }
    Ok(())
}
