//! A worker of a client that restarts its limiter, as a service is restarted while requests wait.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use super::Client;
use super::record::{Line, say};
use crate::Result;
use crate::instance::Instance;

/// Puts one limiter after the other in the same place: half of their lines are drained, and half are closed a while before.
pub(super) async fn restart(client: Arc<Client>) -> std::io::Result<()> {
    let orders = &client.orders;
    let mut rng = Rng::with_seed(orders.seed ^ u64::from(orders.number) << 40);
    let Some(mut present) = client.entrance.instance() else {
        return Ok(());
    };
    loop {
        sleep(Duration::from_millis(rng.u64(1_500..6_000))).await;
        if client.is_over() {
            return Ok(());
        }
        let next = client.replace_limiter(&mut rng, &present).await;
        present = next.map_err(|error| std::io::Error::other(error.to_string()))?;
    }
}

impl Client {
    async fn replace_limiter(&self, rng: &mut Rng, present: &Instance) -> Result<Instance> {
        if rng.bool() {
            present.is_about_to_close();
            let mut line = present.line(self.orders.number);
            say(&Line::Waiting(line))?;
            present.close(self.orders.flaw);
            line.closed_us = Some(super::now_us());
            say(&Line::Waiting(line))?;
            // Later requests find it closed.
            sleep(Duration::from_millis(rng.u64(100..800))).await;
        }
        let next = self.entrance.next_instance(rng, present).await?;
        say(&Line::Waiting(next.line(self.orders.number)))?;
        self.entrance.enter(next.clone());
        Ok(next)
    }
}
