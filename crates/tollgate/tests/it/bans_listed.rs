//! The list of bans, for operators.

use std::time::Duration;

use crate::common::at_a_standstill;
use crate::common::quotas_only::QuotasOnly;
use tollgate::key::Header;
use tollgate::{Ban, BannedCaller, Capability, CheckError, Limiter, Policy, Quota};

const MINUTE: Duration = Duration::from_secs(60);

/// Three strikes within ten minutes ban for a quarter of an hour.
const BAN: Ban = Ban::after(3, Duration::from_secs(600)).lasting(Duration::from_secs(900));

/// Two a minute for each account.
fn login() -> Policy {
    Policy::new("login", Quota::per_minute(2)).key(Header::new("account"))
}

#[tokio::test]
async fn operators_list_the_banned_callers_and_the_rest_of_each_ban() {
    // given banned callers, one that has strikes, one whose ban is over, and a policy on trial
    let trial = Policy::new("trial", Quota::per_minute(2)).key(Header::new("account"));
    let (backend, clock) = at_a_standstill();
    let policies = [login().ban(BAN), trial.ban(BAN).shadow()];
    let limiter = Limiter::builder().policies(policies).backend(backend);
    let limiter = limiter.build().unwrap();
    let ask = async |policy: &str, account: &str, times: usize| {
        for _ in 0..times {
            limiter.check(policy, account).await.unwrap();
        }
    };
    let long = "x".repeat(1_000);
    limiter.ban("login", "early", 10 * MINUTE).await.unwrap();
    clock.advance(10 * MINUTE);
    ask("login", "mallory", 5).await;
    ask("trial", "mallory", 5).await;
    ask("login", "struck", 3).await;
    limiter.ban("login", long.as_str(), MINUTE).await.unwrap();

    // when
    let list = limiter.bans("login").await.unwrap();

    // then
    assert!(list.is_complete());
    let mut listed: Vec<_> = list.into_iter().collect();
    listed.sort_by_key(BannedCaller::left);
    let [lengthy, mallory] = &listed[..] else {
        panic!("{listed:?}")
    };
    assert_eq!(mallory.identity(), "=mallory");
    assert_eq!((lengthy.left(), mallory.left()), (MINUTE, 15 * MINUTE));
    assert_eq!(
        (lengthy.identity().len(), &lengthy.identity()[..1]),
        (65, "d")
    );
    let on_trial = limiter.bans("trial").await.unwrap();
    assert_eq!(on_trial.callers().len(), 1);
    assert_eq!(on_trial.callers()[0].identity(), "=mallory");

    // and each can be let in again by its key
    for caller in listed {
        let key = caller.key().unwrap().clone();
        limiter.unban("login", key).await.unwrap();
    }
    assert!(limiter.bans("login").await.unwrap().callers().is_empty());
    let unknown = limiter.bans("nothing").await.unwrap_err();
    assert!(matches!(unknown, CheckError::UnknownPolicy { .. }));
}

#[tokio::test]
async fn a_backend_that_cannot_list_bans_says_so() {
    let without_bans = Limiter::from(login());
    let error = without_bans.bans("login").await.unwrap_err();
    assert!(matches!(error, CheckError::NeverBans { .. }), "{error}");

    // It lists none.
    let backend = QuotasOnly::new().and(Capability::Bans);
    let limiter = Limiter::builder().policy(login().ban(BAN)).backend(backend);
    let error = limiter.build().unwrap().bans("login").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"login\": the bans cannot be listed: invalid call: this backend cannot list bans"
    );
}
