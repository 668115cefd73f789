//! A worker of a client that replaces quotas while they are in use.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Client;

/// Replaces the quotas now and then, as a deploy or a changed configuration does, also while requests wait.
pub(super) async fn replace_quotas(client: Arc<Client>) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ u64::from(orders.number) << 24);
    while !client.is_over() {
        let replaced = client.entrance.replace_quotas(&mut rng);
        replaced.map_err(std::io::Error::other)?;
        tokio::time::sleep(Duration::from_millis(rng.u64(200..2_000))).await;
    }
    Ok(())
}
