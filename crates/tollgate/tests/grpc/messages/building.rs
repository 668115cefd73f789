//! Policies for messages that make no sense, or that nobody enforces.

use tollgate::{Limiter, LimiterBuilder, Messages, Policy, Quota, RateLimitLayer};
use tollgate_testkit::shop::Order;

use super::{limiter, three};
use crate::common::log::Log;
use crate::serving::Served;

#[test]
fn policies_that_make_no_sense_for_messages_are_refused() {
    let built = |builder: LimiterBuilder| builder.build().unwrap_err().to_string();
    let policy = three(Messages::received()).free_if(|_| true);
    assert_eq!(
        built(Limiter::builder().policy(policy)),
        "policy \"messages\": charges messages, for which no response can say what they cost"
    );
    let many = (0..33).map(|n| {
        Policy::new(&format!("p{n}"), Quota::per_hour(1)).per_message(Messages::received())
    });
    assert!(built(Limiter::builder().policies(many)).starts_with("33 quotas could meet"));
}

#[tokio::test]
async fn a_policy_for_messages_that_nobody_charges_is_warned_of_once() {
    let log = Log::default();
    let _guard = log.listen();
    let warned = |log: &Log| log.text().matches("messages pass uncharged").count();

    let forgotten = limiter(three(Messages::received()));
    let served = Served::behind(RateLimitLayer::new(&forgotten)).await;
    served.place().await.unwrap();
    served.place().await.unwrap();
    assert_eq!(warned(&log), 1, "{}", log.text());

    let (mut client, _, _) = super::served(&limiter(three(Messages::received()))).await;
    client.place(Order::default()).await.unwrap();
    assert_eq!(warned(&log), 1, "{}", log.text());
}
