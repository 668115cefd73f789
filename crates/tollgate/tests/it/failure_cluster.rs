//! A cluster that has lost a server: the limits on the other servers hold, whatever identity a client names.

use std::time::Duration;

use http::Request;
use tokio::time::sleep;
use tollgate::key::Header;
use tollgate::{
    Concurrent, Limiter, OnFailure, Policy, Quota, Quotas, RateLimitLayer, RedisBackend, Share,
};
use tollgate_testkit::Cluster;
use tower::{Layer, ServiceExt};

use crate::common::{Body, Strict};

/// The backend, with a user whose server is lost and a network whose server is not.
struct Lost {
    _cluster: Cluster,
    backend: RedisBackend,
    user: String,
    other_user: String,
    network: String,
}

async fn lost() -> Lost {
    let mut cluster = Cluster::start();
    let backend = RedisBackend::cluster(cluster.urls())
        .deadline(Duration::from_secs(20))
        .connect()
        .await
        .unwrap();
    let probe = Policy::new("probe", Quota::per_hour(1_000)).on_failure(OnFailure::Deny);
    let limiter = Limiter::builder()
        .policy(probe)
        .backend(backend.clone())
        .build()
        .unwrap();
    cluster.node_mut(0).unwrap().kill();
    let (mut on_it, mut others) = (Vec::new(), Vec::new());
    for number in 0.. {
        let name = format!("caller-{number}");
        match limiter.check("probe", &*name).await {
            Ok(_) => others.push(name),
            Err(_) => on_it.push(name),
        }
        if !on_it.is_empty() && others.len() > 1 {
            break;
        }
    }
    Lost {
        _cluster: cluster,
        backend,
        user: on_it.remove(0),
        other_user: others.remove(0),
        network: others.remove(0),
    }
}

impl Lost {
    fn limiter(&self, user: Policy, network: Policy) -> Limiter {
        let policies = [
            user.key(Header::new("user")),
            network.key(Header::new("network")),
        ];
        let builder = Limiter::builder().policies(policies);
        builder.backend(self.backend.clone()).build().unwrap()
    }

    /// The statuses of so many requests of a user from the network.
    async fn statuses(&self, limiter: &Limiter, user: &str, requests: usize) -> Vec<u16> {
        let layer = RateLimitLayer::new(limiter.clone());
        let mut statuses = Vec::new();
        for _ in 0..requests {
            let request = Request::builder()
                .header("user", user)
                .header("network", &self.network)
                .body(Body::default())
                .unwrap();
            let response = layer.layer(Strict::default()).oneshot(request).await;
            statuses.push(response.unwrap().status().as_u16());
        }
        statuses
    }
}

fn network(name: &str) -> Policy {
    Policy::new(name, Quota::per_hour(5))
}

#[tokio::test]
async fn an_identity_whose_server_is_lost_gets_around_no_other_limit() {
    let lost = lost().await;
    let user = Policy::new("user-open", Quota::per_hour(100));
    let limiter = lost.limiter(user, network("network-open"));

    let statuses = lost.statuses(&limiter, &lost.user, 8).await;

    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert_eq!(limiter.failures(), 5);
}

/// A limit with a queue as well: while a server fails, nobody begins to wait.
#[tokio::test]
async fn nobody_waits_in_the_queue_of_a_limit_beside_one_whose_server_is_lost() {
    let lost = lost().await;
    let user = Policy::new("user-queue", Quota::per_hour(100));
    let quota = Quota::per_second(1)
        .burst(2)
        .wait_up_to(Duration::from_secs(60));
    let limiter = lost.limiter(user, Policy::new("network-queue", quota));

    let statuses = lost.statuses(&limiter, &lost.user, 4).await;

    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_limit_that_is_closed_without_its_server_costs_nothing_elsewhere() {
    let lost = lost().await;
    let user = Policy::new("user-closed", Quota::per_hour(100)).on_failure(OnFailure::Deny);
    let limiter = lost.limiter(user, network("network-closed"));

    assert_eq!(lost.statuses(&limiter, &lost.user, 8).await, [503; 8]);
    // What was taken is given back in the background.
    let reads = async || {
        limiter
            .check("network-closed", &*lost.network)
            .cost(5)
            .probe()
            .await
    };
    while !reads().await.unwrap().is_allowed() {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        lost.statuses(&limiter, &lost.other_user, 6).await,
        [200, 200, 200, 200, 200, 429]
    );
}

#[tokio::test]
async fn a_local_budget_decides_beside_the_limits_of_the_other_servers() {
    let lost = lost().await;
    let local = |quota: Quota, name: &str| {
        Policy::new(name, quota).on_failure(OnFailure::Local(Share::WHOLE))
    };
    let user = local(Quota::per_hour(3), "user-local");
    let limiter = lost.limiter(user, network("network-local"));

    let statuses = lost.statuses(&limiter, &lost.user, 6).await;
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    let reads = async || {
        limiter
            .check("network-local", &*lost.network)
            .cost(2)
            .probe()
            .await
    };
    while !reads().await.unwrap().is_allowed() {
        sleep(Duration::from_millis(5)).await;
    }
    let statuses = lost.statuses(&limiter, &lost.other_user, 3).await;
    assert_eq!(statuses, [200, 200, 429]);

    let user = local(Quota::per_hour(100), "user-large");
    let limiter = lost.limiter(user, network("network-large"));
    let statuses = lost.statuses(&limiter, &lost.user, 6).await;
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

/// Both kinds of permits are released by the requests that hold them.
#[tokio::test]
async fn permits_are_released_on_both_sides() {
    let lost = lost().await;
    for rule in [OnFailure::Allow, OnFailure::Local(Share::WHOLE)] {
        let name = format!("{rule:?}").to_lowercase().replace(['(', ')'], "-");
        let one = || Quotas::from(Concurrent::at_most(1));
        let user = Policy::new(&format!("user-{name}"), one()).on_failure(rule);
        let limiter = lost.limiter(user, Policy::new(&format!("network-{name}"), one()));

        // Strict fails if it is called while another request is inside.
        let statuses = lost.statuses(&limiter, &lost.user, 5).await;

        assert_eq!(statuses, [200; 5], "{rule:?}");
    }
}
