//! Bans, behind a real axum server and in code without requests.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::at_a_standstill;
use crate::common::quotas_only::QuotasOnly;
use crate::common::served::Served;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tollgate::key::{Cookie, Global, Header, KeyExtractor};
use tollgate::{
    Ban, Block, Cause, CheckError, ConfigError, Event, Key, Limiter, ManualClock, OnMissing,
    Policy, Quota, QuotaLookup, Quotas, RateLimitLayer, RateLimitStatus, Share, Tiers, Verdict,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Three strikes within ten minutes ban for a quarter of an hour, and then for half an hour.
const BAN: Ban = Ban::after(3, Duration::from_secs(600))
    .lasting(Duration::from_secs(900))
    .doubling_to(Duration::from_secs(3_600));

/// Two a minute for each account.
fn login() -> Policy {
    Policy::new("login", Quota::per_minute(2))
        .key(Header::new("account"))
        .on_missing(OnMissing::Deny)
}

/// A server, the clock of its limiter, and the number of requests that reached the handler.
struct Server {
    served: Served,
    clock: ManualClock,
    handled: Arc<AtomicUsize>,
    limiter: Limiter,
}

impl Server {
    /// Every request is answered with the status in its path.
    async fn start(policies: impl IntoIterator<Item = Policy>) -> Self {
        let (backend, clock) = at_a_standstill();
        let limiter = Limiter::builder().policies(policies).backend(backend);
        let limiter = limiter.build().unwrap();
        let handled = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&handled);
        let answer = |path: axum::extract::Path<u16>| async move {
            seen.fetch_add(1, Ordering::Relaxed);
            StatusCode::from_u16(path.0).unwrap()
        };
        let app = Router::new().route("/{status}", get(answer));
        let app = app.layer(RateLimitLayer::new(&limiter));
        Self {
            served: Served::new(app).await,
            clock,
            handled,
            limiter,
        }
    }

    async fn get(&self, account: &str, status: u16) -> Answer {
        self.get_as("", account, status).await
    }

    /// A request of a class.
    async fn get_as(&self, class: &str, account: &str, status: u16) -> Answer {
        let request = Request::get(format!("http://{}/{status}", self.served.0));
        let request = request.header("account", account).header("x-class", class);
        let request = request.body(Body::empty());
        let (parts, body) = self.served.request(request.unwrap()).await.into_parts();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    async fn statuses<const N: usize>(&self, account: &str) -> [u16; N] {
        let mut statuses = [0; N];
        for status in &mut statuses {
            *status = self.get(account, 200).await.status;
        }
        statuses
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn retry_after(&self) -> Option<u64> {
        let value = self.headers.get("retry-after")?;
        Some(value.to_str().unwrap().parse().unwrap())
    }

    fn is_ban(&self) -> bool {
        self.body.contains("abnormal-usage-detected")
    }
}

#[tokio::test]
async fn a_caller_who_is_denied_too_often_is_banned_and_comes_back_when_it_was_said() {
    let server = Server::start([login().ban(BAN)]).await;
    assert_eq!(server.statuses("mallory").await, [200, 200, 429, 429]);
    // The third denial is the strike that bans, and says so.
    let struck = server.get("mallory", 200).await;
    assert!(struck.is_ban(), "{}", struck.body);
    assert_eq!((struck.status, struck.retry_after()), (429, Some(900)));

    // Knocking changes nothing, and reaches no handler.
    server.clock.advance(10 * MINUTE);
    for _ in 0..20 {
        let knock = server.get("mallory", 200).await;
        assert_eq!((knock.status, knock.retry_after()), (429, Some(300)));
    }
    assert_eq!(server.handled.load(Ordering::Relaxed), 2);
    // Others are not concerned.
    assert_eq!(server.statuses("alice").await, [200, 200, 429]);

    server.clock.advance(5 * MINUTE - Duration::from_micros(1));
    assert_eq!(server.get("mallory", 200).await.retry_after(), Some(1));
    server.clock.advance(Duration::from_micros(1));
    // The budget was not charged meanwhile, and no strike is left.
    assert_eq!(server.statuses("mallory").await, [200, 200, 429, 429]);
    // The second ban lasts twice as long.
    assert_eq!(server.get("mallory", 200).await.retry_after(), Some(1_800));
}

#[tokio::test]
async fn the_headers_of_those_who_are_not_banned_are_those_of_the_quota_alone() {
    let server = Server::start([login().ban(BAN)]).await;
    let plain = Server::start([login()]).await;
    for status in [200, 200, 200] {
        let (with, without) = (server.get("a", status).await, plain.get("a", status).await);
        for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
            assert_eq!(with.headers.get(name), without.headers.get(name), "{name}");
        }
        assert_eq!((with.status, with.body), (without.status, without.body));
    }
}

#[tokio::test]
async fn a_banned_caller_may_be_answered_with_403_that_tells_no_time() {
    let answer = Block::Forbidden;
    for policy in [
        login().ban(BAN).answer_banned(answer),
        login().answer_banned(answer).ban(BAN),
    ] {
        let server = Server::start([policy]).await;
        assert_eq!(
            server.statuses("mallory").await,
            [200, 200, 429, 429, 403, 403]
        );
        let banned = server.get("mallory", 200).await;
        assert_eq!(banned.retry_after(), None);
        assert!(!banned.body.contains("abnormal") && banned.headers["cache-control"] == "no-store");
    }
}

#[tokio::test]
async fn responses_may_be_strikes() {
    let policy = Policy::new("login", Quota::per_minute(100)).key(Header::new("account"));
    let policy = policy
        .strike_if(|response| response.status() == 401)
        .free_if(|response| response.status() == 304)
        .ban(BAN);
    let server = Server::start([policy]).await;
    for status in [401, 200, 401, 304, 401] {
        assert_eq!(server.get("mallory", status).await.status, status);
    }
    assert!(server.get("mallory", 200).await.is_ban());
    assert_eq!(server.handled.load(Ordering::Relaxed), 5);
    // The response that is free is, all the same.
    let probe = server.limiter.check("login", "mallory").probe().await;
    assert_eq!(probe.unwrap().verdicts()[0].remaining(), 96);
}

/// Others of the tenant lack it as well, however long its name is, and wherever the part stands.
#[tokio::test]
async fn callers_who_lack_a_part_of_their_identity_are_never_banned() {
    let long = "t".repeat(126);
    for account in ["acme", &long] {
        let (name, part) = (Header::new("account"), Cookie::new("session"));
        lacking(account, (name.clone(), part.clone())).await;
        lacking(account, (name, (part, Header::new("device")))).await;
    }
}

async fn lacking(account: &str, key: impl KeyExtractor) {
    let policy = Policy::new("login", Quota::per_minute(4));
    let policy = policy
        .key(key)
        .strike_if(|response| response.status() == 401);
    let server = Server::start([policy.ban(BAN)]).await;
    for _ in 0..4 {
        assert_eq!(server.get(account, 401).await.status, 401);
    }
    for _ in 0..8 {
        let denied = server.get(account, 401).await;
        assert_eq!((denied.status, denied.is_ban()), (429, false));
    }
    server.clock.advance(MINUTE);
    assert_eq!(server.get(account, 200).await.status, 200);
    let banned = server.limiter.bans("login").await.unwrap();
    assert!(banned.callers().is_empty());

    let key = Key::tuple([&Key::from(account), &Key::missing()]);
    let refused = server.limiter.ban("login", key, MINUTE).await;
    assert!(
        matches!(refused, Err(CheckError::WrongKey { .. })),
        "{refused:?}"
    );
}

/// One of them would keep out all others.
#[tokio::test]
async fn callers_without_an_identity_are_denied_together_and_never_banned() {
    let policy = Policy::new("login", Quota::per_minute(8)).key(Cookie::new("session"));
    let policy = policy
        .strike_if(|response| response.status() == 401)
        .ban(BAN);
    let server = Server::start([policy]).await;
    for _ in 0..8 {
        assert_eq!(server.get("mallory", 401).await.status, 401);
    }
    for _ in 0..8 {
        let denied = server.get("mallory", 401).await;
        assert_eq!((denied.status, denied.is_ban()), (429, false));
    }

    server.clock.advance(MINUTE);

    assert_eq!(server.get("alice", 200).await.status, 200);
}

#[tokio::test]
async fn of_responses_that_are_strikes_only_those_in_flight_come_before_the_ban() {
    // given five requests in flight, more than the three strikes that ban
    let policy = Policy::new("login", Quota::per_minute(100)).key(Header::new("account"));
    let policy = policy
        .strike_if(|response| response.status() == 401)
        .ban(BAN);
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(policy).backend(backend);
    let limiter = limiter.build().unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let handled = Arc::new(AtomicUsize::new(0));
    let (opened, seen) = (Arc::clone(&gate), Arc::clone(&handled));
    let failed_login = async move || {
        seen.fetch_add(1, Ordering::SeqCst);
        opened.acquire().await.unwrap().forget();
        StatusCode::UNAUTHORIZED
    };
    let app = Router::new().route("/", get(failed_login));
    let app = app.layer(RateLimitLayer::new(&limiter));
    let ask = || {
        let request = Request::get("/").header("account", "mallory");
        let request = request.body(Body::empty()).unwrap();
        tower::ServiceExt::oneshot(app.clone(), request)
    };
    let mut in_flight: JoinSet<_> = (0..5).map(|_| ask()).collect();
    while handled.load(Ordering::SeqCst) < 5 {
        tokio::task::yield_now().await;
    }

    // when they are answered, one after the other
    for strikes in 0..5 {
        let banned = limiter.banned("login", "mallory").await.unwrap();
        assert_eq!(banned, (strikes >= 3).then_some(15 * MINUTE), "{strikes}");
        gate.add_permits(1);
        let answered = in_flight.join_next().await.unwrap().unwrap();
        assert_eq!(answered.unwrap().status(), StatusCode::UNAUTHORIZED);
    }

    // then no other passes until the end of the ban, which no later strike moved
    gate.add_permits(10);
    for wait in [15 * MINUTE - Duration::from_micros(1), Duration::ZERO] {
        let knock = ask().await.unwrap();
        assert_eq!(knock.status(), StatusCode::TOO_MANY_REQUESTS);
        clock.advance(wait);
    }
    assert_eq!(handled.load(Ordering::SeqCst), 5);
    clock.advance(Duration::from_micros(1));
    let again = ask().await.unwrap();
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    // The requests in flight behind the third were not strikes.
    assert_eq!(limiter.banned("login", "mallory").await.unwrap(), None);
    let probe = limiter.check("login", "mallory").probe().await.unwrap();
    assert_eq!(probe.verdicts()[1].remaining(), 2);
}

#[tokio::test]
async fn a_ban_holds_in_every_tier_and_whatever_the_order_in_which_the_policy_was_built() {
    let tiers = || Tiers::by_key([("gold", "gold")]).tier("gold", Quota::per_minute(3));
    for policy in [
        login().tiers(tiers()).ban(BAN),
        login().ban(BAN).tiers(tiers()),
    ] {
        let server = Server::start([policy]).await;
        assert_eq!(
            server.statuses("gold").await,
            [200, 200, 200, 429, 429, 429]
        );
        assert!(server.get("gold", 200).await.is_ban());
        assert_eq!(server.statuses("iron").await, [200, 200, 429, 429, 429]);
        assert!(server.get("iron", 200).await.is_ban());
    }
    // The clone has the ban, and the policy that it was cloned from has none.
    let without = login().tiers(tiers());
    let with = without.clone().ban(BAN);
    for (policy, is_banned) in [(without, false), (with, true)] {
        let server = Server::start([policy]).await;
        server.statuses::<6>("gold").await;
        assert_eq!(server.get("gold", 200).await.is_ban(), is_banned);
    }
}

#[tokio::test]
async fn a_caller_in_a_tier_without_limits_is_exempt_from_bans_by_hand_as_well() {
    let tiers = Tiers::by_key([("gold", "gold")]).unlimited("gold");
    let server = Server::start([login().ban(BAN).tiers(tiers)]).await;
    for account in ["gold", "iron"] {
        let ban = server.limiter.ban("login", account, MINUTE);
        ban.await.unwrap();
    }

    assert_eq!(server.statuses("gold").await, [200, 200, 200, 200]);
    assert_eq!(server.statuses("iron").await, [429, 429]);
    assert!(server.get("iron", 200).await.is_ban());

    // The ban is there all the same, for the day on which the caller leaves the tier.
    for account in ["gold", "iron"] {
        let left = server.limiter.banned("login", account).await.unwrap();
        assert_eq!(left, Some(MINUTE), "{account}");
    }
}

#[tokio::test]
async fn a_denial_for_the_share_of_another_class_is_a_strike_and_a_ban_holds_for_every_class() {
    // given four a day, of which two are kept
    let policy = Policy::new("login", Quota::per_day(4))
        .key(Header::new("account"))
        .class_by(Header::new("x-class"))
        .keep_for("critical", Share::percent(50));
    let server = Server::start([policy.ban(BAN)]).await;
    let statuses = async |class: &str, requests: usize| {
        let mut statuses = Vec::new();
        for _ in 0..requests {
            statuses.push(server.get_as(class, "mallory", 200).await.status);
        }
        statuses
    };

    // when the others have spent their part, and come for what is kept
    assert_eq!(statuses("normal", 4).await, [200, 200, 429, 429]);
    let struck = server.get_as("normal", "mallory", 200).await;

    // then that bans, and not their class alone; a class is not another caller
    assert!(struck.is_ban(), "{}", struck.body);
    let knock = server.get_as("critical", "mallory", 200).await;
    assert_eq!((knock.status, knock.retry_after()), (429, Some(900)));
    assert!(knock.is_ban(), "{}", knock.body);
    assert_eq!(server.get_as("normal", "alice", 200).await.status, 200);

    // and all that is kept is still there when the ban is over
    server.clock.advance(15 * MINUTE);
    assert_eq!(statuses("normal", 1).await, [429]);
    assert_eq!(statuses("critical", 3).await, [200, 200, 429]);
    // The denials of both classes are strikes.
    assert!(server.get_as("normal", "mallory", 200).await.is_ban());
}

#[tokio::test]
async fn a_ban_on_trial_is_reported_and_keeps_nobody_out() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let (backend, clock) = at_a_standstill();
    let limiter = Limiter::builder()
        .policy(login().shadow().ban(BAN))
        .backend(backend)
        .observe(move |event: &Event<'_>| {
            let denied = event.verdict().is_some_and(Verdict::is_denied);
            if denied && event.cause() == Cause::Backend {
                ear.lock().unwrap().push(event.quota().unwrap().to_owned());
            }
        });
    let limiter = limiter.build().unwrap();
    for _ in 0..6 {
        assert!(
            limiter
                .check("login", "mallory")
                .await
                .unwrap()
                .is_allowed()
        );
    }
    let heard = || std::mem::take(&mut *heard.lock().unwrap());
    let [quota, ban] = ["login", "login-ban"];
    // For callers that would be banned, the quota is asked and not charged.
    assert_eq!(heard(), [quota, quota, quota, ban, quota, ban]);
    clock.advance(10 * MINUTE);
    limiter.check("login", "mallory").await.unwrap();
    assert_eq!(heard(), [ban]);
    clock.advance(5 * MINUTE);
    limiter.check("login", "mallory").await.unwrap();
    assert!(heard().is_empty());
}

#[tokio::test]
async fn operators_ban_and_unban() {
    let server = Server::start([login().ban(BAN), Policy::new("other", "10/s").key(Global)]).await;
    let limiter = &server.limiter;
    assert_eq!(limiter.banned("login", "eve").await.unwrap(), None);
    limiter.ban("login", "eve", 10 * SECOND).await.unwrap();
    assert_eq!(
        limiter.banned("login", "eve").await.unwrap(),
        Some(10 * SECOND)
    );
    assert_eq!(server.get("eve", 200).await.retry_after(), Some(10));
    // A shorter ban shortens nothing, and a longer one counts.
    limiter.ban("login", "eve", SECOND).await.unwrap();
    assert_eq!(
        limiter.banned("login", "eve").await.unwrap(),
        Some(10 * SECOND)
    );
    limiter.ban("login", "eve", MINUTE).await.unwrap();
    assert_eq!(limiter.banned("login", "eve").await.unwrap(), Some(MINUTE));
    limiter.unban("login", "eve").await.unwrap();
    assert_eq!(server.statuses("eve").await, [200, 200, 429]);
    // A reset forgives strikes as well.
    limiter.reset("login", "eve").await.unwrap();
    assert_eq!(server.statuses("eve").await, [200, 200, 429, 429]);
    assert!(server.get("eve", 200).await.is_ban());

    let error = limiter
        .ban("other", Key::global(), SECOND)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"other\": it has no ban: add `.ban(..)`"
    );
    let error = limiter.ban("nothing", "eve", SECOND).await.unwrap_err();
    assert!(matches!(error, CheckError::UnknownPolicy { .. }));
    let error = limiter
        .ban("login", "eve", Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the length of the ban: a period of 0 has no rate"
    );
}

#[tokio::test]
async fn bans_in_force_end_when_it_was_said_and_strikes_count_by_the_terms_that_replace_them() {
    // given a banned caller, one with two of three strikes, and one with a strike that is nine minutes old
    let server = Server::start([login().ban(BAN)]).await;
    assert_eq!(server.statuses("eve").await, [200, 200, 429]);
    server.clock.advance(9 * MINUTE);
    server
        .limiter
        .ban("login", "mallory", 15 * MINUTE)
        .await
        .unwrap();
    assert_eq!(server.statuses("trent").await, [200, 200, 429, 429]);

    // when another ban replaces this one: two strikes within five minutes, for an hour
    let other = Ban::after(2, 5 * MINUTE).lasting(60 * MINUTE);
    server.limiter.replace([login().ban(other)]).unwrap();

    // then the ban in force ends when it was said
    let left = server.limiter.banned("login", "mallory").await.unwrap();
    assert_eq!(left, Some(15 * MINUTE));
    assert_eq!(server.get("mallory", 200).await.retry_after(), Some(900));
    // A strike that is too old for the new terms does not count, so that the second one does not ban.
    assert_eq!(server.statuses("eve").await, [200, 200, 429]);
    assert_eq!(server.limiter.banned("login", "eve").await.unwrap(), None);
    // More strikes than the new terms count ban with the next one, and for the new time.
    assert_eq!(server.limiter.banned("login", "trent").await.unwrap(), None);
    assert_eq!(server.get("trent", 200).await.status, 429);
    let left = server.limiter.banned("login", "trent").await.unwrap();
    assert_eq!(left, Some(60 * MINUTE));

    // and after its end the next ban lasts as the new terms say
    server.clock.advance(15 * MINUTE);
    assert_eq!(server.statuses("mallory").await, [200, 200, 429, 429]);
    let left = server.limiter.banned("login", "mallory").await.unwrap();
    assert_eq!(left, Some(60 * MINUTE));
}

#[tokio::test]
async fn a_check_tells_the_ban_and_what_is_left_of_the_quota() {
    let (backend, _clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(login().ban(BAN)).backend(backend);
    let limiter = limiter.build().unwrap();
    let first = limiter.check("login", "mallory").await.unwrap();
    assert_eq!((first.remaining(), first.verdicts().len()), (1, 2));
    // A credit gives back the quota's charge, and no strike.
    assert_eq!(first.into_receipts().len(), 1);
    for _ in 0..4 {
        limiter.check("login", "mallory").await.unwrap();
    }
    let banned = limiter.check("login", "mallory").await.unwrap();
    assert_eq!((banned.is_allowed(), banned.remaining()), (false, 0));
    assert_eq!(banned.retry_after(), Some(15 * MINUTE));
}

#[tokio::test]
async fn a_handler_sees_the_strikes_that_are_left() {
    let (backend, _clock) = at_a_standstill();
    let limiter = Limiter::builder().policy(login().ban(BAN)).backend(backend);
    let seen = |status: RateLimitStatus| async move {
        let verdicts = status.verdicts();
        let ban = verdicts.iter().find(|one| one.is_ban()).unwrap();
        ban.verdict().remaining().to_string()
    };
    let app = Router::new().route("/", get(seen));
    let app = app.layer(RateLimitLayer::new(limiter.build().unwrap()));
    let request = Request::get("/").header("account", "a");
    let request = request.body(Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(app, request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 10)
        .await
        .unwrap();
    assert_eq!(&body[..], b"3");
}

#[test]
fn what_means_nothing_beside_a_ban_is_refused_when_the_limiter_is_built() {
    let strikes = |policy: Policy| policy.strike_if(|response| response.status() == 401);
    let none = || Policy::new("login", Quotas::none());
    let named = || Tiers::by_key([("gold", "gold")]);
    let tiers = |quotas: Quotas| named().tier("gold", quotas);
    let forgiving = Ban::after(3, MINUTE).forgiven_after(MINUTE);
    let no_quotas =
        "a ban stands beside quotas, and the policy has none: it refuses every request already";
    let never_doubles =
        "`forgiven after` needs `doubling to`: a ban that never doubles has no doubling to forgive";
    let refused = [
        (
            strikes(login()),
            "`strike_if` names strikes, and there is no ban to count them: add `ban`",
        ),
        (
            login().answer_banned(Block::Forbidden),
            "`answer_banned` answers the banned, and there is no ban: add `ban`",
        ),
        (none().ban(BAN), no_quotas),
        (none().ban(BAN).tiers(tiers(Quotas::none())), no_quotas),
        (none().ban(BAN).tiers(named().unlimited("gold")), no_quotas),
        (login().ban(forgiving), never_doubles),
        (
            login().answer_banned(Block::Forbidden).ban(forgiving),
            never_doubles,
        ),
    ];
    for (policy, reason) in refused {
        let error = Limiter::builder().policy(policy).build().unwrap_err();
        assert!(matches!(error, ConfigError::Ban { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!("policy \"login\": ban: {reason}")
        );
    }

    let ask = |_| std::future::ready(Ok::<_, Infallible>(None::<Quota>));
    let sensible = [
        strikes(login()).ban(BAN),
        strikes(login().ban(BAN)),
        login().ban(forgiving.doubling_to(2 * MINUTE)),
        none().ban(BAN).tiers(tiers(Quota::per_minute(3).into())),
        none()
            .ban(BAN)
            .key(Header::new("account"))
            .quota_by_async(QuotaLookup::new(MINUTE, ask)),
    ];
    for policy in sensible {
        Limiter::builder().policy(policy).build().unwrap();
    }
}

#[test]
fn a_backend_without_bans_and_a_policy_for_messages_refuse_them() {
    let builder = Limiter::builder().policy(login().ban(BAN));
    let error = builder.backend(QuotasOnly::new()).build();
    assert_eq!(
        error.unwrap_err().to_string(),
        "policy \"login\": the backend does not support bans"
    );
    let messages = login().ban(BAN).per_message(tollgate::Messages::received());
    let error = Limiter::builder().policy(messages).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"login\": charges messages, which ban no caller; a ban belongs to a policy for calls"
    );
}
