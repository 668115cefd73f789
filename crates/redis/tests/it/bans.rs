//! Bans of a fleet: two processes and one server.

use std::time::Duration;

use crate::common::Patience;
use tollgate::{
    Backend, Ban, Call, Charge, CheckError, Key, Limiter, Mode, Policy, Quota, Receipt, Scope,
    Timestamp, Verdict,
};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

const MINUTE: Duration = Duration::from_secs(60);

/// Two a day, and a ban of a quarter of an hour after three strikes.
fn login() -> Policy {
    let ban = Ban::after(3, 10 * MINUTE).lasting(15 * MINUTE);
    Policy::new("login", Quota::per_day(2)).ban(ban)
}

async fn process(server: &Standalone) -> Limiter {
    // Each connection asks for its rights first, and writes for that.
    let backend = RedisBackend::builder(&server.url()).connections(1);
    let backend = backend.patient();
    let backend = backend.connect().await.unwrap();
    Limiter::builder()
        .policy(login())
        .backend(backend)
        .build()
        .unwrap()
}

/// The commands of which the server has written anything, and how often they were called.
fn writes(server: &Standalone) -> Vec<String> {
    let stats = server.command(&["INFO", "commandstats"]);
    let is_write = |line: &&str| {
        let command = line
            .strip_prefix("cmdstat_")
            .and_then(|line| line.split(':').next());
        command.is_some_and(|command| ["set", "setrange", "del", "unlink"].contains(&command))
    };
    let calls = |line: &str| line.split(',').next().unwrap().to_owned();
    stats.lines().filter(is_write).map(calls).collect()
}

/// The last line of an answer, which is the value.
fn value(answer: &str) -> &str {
    answer.trim().lines().last().unwrap_or_default()
}

#[tokio::test]
async fn strikes_and_bans_are_those_of_the_fleet() {
    let server = Standalone::start();
    let [one, other] = [process(&server).await, process(&server).await];
    for limiter in [&one, &other] {
        assert!(
            limiter
                .check("login", "mallory")
                .await
                .unwrap()
                .is_allowed()
        );
    }
    for limiter in [&one, &other, &one] {
        let checked = limiter.check("login", "mallory").await.unwrap();
        assert!(!checked.is_allowed() && checked.undecided().is_none());
    }
    for limiter in [&one, &other] {
        let left = limiter.banned("login", "mallory").await.unwrap().unwrap();
        assert!(left <= 15 * MINUTE && left > 10 * MINUTE, "{left:?}");
        assert_eq!(limiter.banned("login", "alice").await.unwrap(), None);
    }
    other.unban("login", "mallory").await.unwrap();
    assert_eq!(one.banned("login", "mallory").await.unwrap(), None);
    one.ban("login", "alice", MINUTE).await.unwrap();
    assert!(!other.check("login", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_banned_caller_who_knocks_writes_nothing() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    limiter.ban("login", "mallory", 60 * MINUTE).await.unwrap();
    let before = writes(&server);
    for _ in 0..200 {
        let knock = limiter.check("login", "mallory").await.unwrap();
        assert!(!knock.is_allowed() && knock.undecided().is_none());
    }
    assert_eq!(writes(&server), before);
}

#[tokio::test]
async fn the_key_of_a_ban_is_one_that_an_operator_finds_and_it_expires() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    limiter.ban("login", "mallory", MINUTE).await.unwrap();
    let key = "tollgate:login:0/b:=mallory";
    let keys = server.command(&["KEYS", "tollgate:login:0/b:*"]);
    assert_eq!(value(&keys), key);
    let left = server.command(&["PTTL", key]);
    let left: i64 = value(&left).trim_start_matches(':').parse().unwrap();
    assert!((1..=60_001).contains(&left), "{left}");
}

fn connection(server: &Standalone) -> redis::Connection {
    let url = format!("redis+unix://{}", server.socket().display());
    let client = redis::Client::open(url).unwrap();
    client.get_connection().unwrap()
}

fn set(server: &Standalone, name: &str, value: &[u8]) {
    let mut connection = connection(server);
    let set = redis::cmd("SET").arg(name).arg(value).to_owned();
    let () = set.query(&mut connection).unwrap();
}

fn get(server: &Standalone, name: &str) -> Option<Vec<u8>> {
    let mut connection = connection(server);
    redis::cmd("GET").arg(name).query(&mut connection).unwrap()
}

/// Values that a later version or another program might keep under a ban's key: texts, another tag, and a ban of today with a byte
/// more.
fn unknown_forms() -> [Vec<u8>; 4] {
    let mut longer = [vec![253, 0], vec![0; 24]].concat();
    longer.push(1);
    [
        b"something else".to_vec(),
        vec![0x7f],
        [vec![252, 0], vec![0; 24]].concat(),
        longer,
    ]
}

#[tokio::test]
async fn a_value_that_is_unknown_is_left_as_it_is_and_the_failure_rule_acts() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    let key = "tollgate:login:0/b:=mallory";
    for foreign in unknown_forms() {
        set(&server, key, &foreign);
        let checked = limiter.check("login", "mallory").await.unwrap();
        assert!(checked.is_allowed() && checked.undecided().is_some());
        assert_eq!(get(&server, key), Some(foreign));
    }
}

#[tokio::test]
async fn no_order_strike_or_knock_overwrites_a_ban_of_a_form_that_is_unknown() {
    let server = Standalone::start();
    let limiter = process(&server).await;
    let backend = RedisBackend::builder(&server.url()).connections(1);
    let backend = backend.patient().connect().await.unwrap();
    let key = Key::from("mallory");
    let name = "tollgate:login:0/b:=mallory";
    let ban = Ban::after(3, 10 * MINUTE);
    let (terms, extending) = (Quota::from(ban), Quota::from(ban.extending()));
    let plenty = Quota::per_day(1_000);
    for foreign in unknown_forms() {
        set(&server, name, &foreign);
        let is_left = |what: &str| assert_eq!(get(&server, name), Some(foreign.clone()), "{what}");

        // Orders fail, and say so.
        let order = limiter.ban("login", "mallory", MINUTE).await;
        assert!(
            matches!(order, Err(CheckError::Unavailable(_))),
            "{order:?}"
        );
        is_left("ban");
        let question = limiter.banned("login", "mallory").await;
        assert!(matches!(question, Err(CheckError::Unavailable(_))));
        is_left("banned");
        let order = limiter.unban("login", "mallory").await;
        assert!(
            matches!(order, Err(CheckError::Unavailable(_))),
            "{order:?}"
        );
        is_left("unban");

        // A strike by a response is dropped: no request waits for it.
        let strike = Charge {
            scope: Scope::of("login", 0, &terms),
            quota: &terms,
            key: &key,
            cost: 1,
            mode: Mode::Enforce,
        };
        let budget = Charge {
            scope: Scope::of("login", 0, &plenty),
            quota: &plenty,
            ..strike
        };
        let taken = Verdict::allowed(&strike, 1, 0);
        let receipt = Receipt::of(&strike, &taken, Timestamp::default()).unwrap();
        backend.debit(&receipt, 1);
        // It has arrived when a later request of the sole connection has.
        assert!(
            backend
                .decide(Call::of(&[budget]))
                .await
                .unwrap()
                .is_admitted()
        );
        is_left("strike");

        // And so has a knock that would begin a ban anew, or a strike by a denial.
        for terms in [&extending, &terms] {
            let guard = Charge {
                quota: terms,
                cost: 0,
                ..strike
            };
            for _ in 0..3 {
                assert!(backend.decide(Call::of(&[budget, guard])).await.is_err());
                is_left("knock");
            }
        }
    }
}
