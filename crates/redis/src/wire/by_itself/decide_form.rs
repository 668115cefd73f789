//! Calls of the decide form that are not answered by a decision: what is said of them, and that they change nothing.

use redis::{Client, Connection, RedisResult};
use tollgate_core::{Ban, Charge, Concurrent, Key, Mode, Once, Quota, Scope, Timestamp};
use tollgate_testkit::Standalone;

use crate::script::Script;
use crate::wire::decide_form_words;

const NOW_US: u64 = 3_500_000_000_000_000;

struct Gateway {
    redis: Connection,
    script: String,
}

impl Gateway {
    fn new(server: &Standalone) -> Self {
        let url = format!("redis+unix://{}", server.socket().display());
        let mut redis = Client::open(url).unwrap().get_connection().unwrap();
        let script = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(Script::decide_form_with_clock("clock").source())
            .query(&mut redis)
            .unwrap();
        redis::cmd("SET")
            .arg("clock")
            .arg(NOW_US)
            .exec(&mut redis)
            .unwrap();
        Self { redis, script }
    }

    fn ask(&mut self, keys: &[&str], charges: &[Vec<u8>]) -> RedisResult<String> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(keys.len()).arg(keys);
        for charge in charges {
            command.arg(&charge[..]);
        }
        command.query(&mut self.redis)
    }

    /// The keys of the server, but for the clock.
    fn keys(&mut self) -> usize {
        let keys: usize = redis::cmd("DBSIZE").query(&mut self.redis).unwrap();
        keys - 1
    }
}

/// The keys and charges of a call, and the fault that is found in it.
type Case<'a> = (&'a [&'a str], Vec<Vec<u8>>, &'a str);

fn words(quota: &str) -> Vec<u8> {
    of(&quota.parse().unwrap(), Mode::Enforce, 0, NOW_US).unwrap()
}

fn of(quota: &Quota, mode: Mode, guards: u32, time_us: u64) -> Option<Vec<u8>> {
    let charge = Charge {
        scope: Scope::of("p", 0, quota),
        quota,
        key: &Key::global(),
        cost: u64::from(!quota.is_ban()),
        mode,
    };
    let time = Timestamp::from_micros(time_us);
    decide_form_words(&charge, guards, time).map(|words| words.to_vec())
}

#[test]
fn a_call_that_cannot_be_read_is_refused_in_words_and_changes_nothing() {
    let server = Standalone::start();
    let mut gateway = Gateway::new(&server);
    let charge = words("10/s");
    let with = |place: usize, byte: u8| {
        let mut charge = charge.clone();
        charge[place] = byte;
        charge
    };
    let of_length =
        |length: usize| -> Vec<u8> { charge.iter().copied().cycle().take(length).collect() };
    let names: Vec<_> = (0..33).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let both = ["a", "b"];
    let mut ban = of(
        &Ban::after(3, std::time::Duration::from_secs(1)).into(),
        Mode::Enforce,
        1,
        NOW_US,
    )
    .unwrap();
    // Its strikes stand behind the number and the mode, as a double: 1.
    ban[8..10].copy_from_slice(&[0xf0, 0x3f]);
    let mut imposed = ban.clone();
    imposed[8..10].copy_from_slice(&[0, 0]);
    imposed[11] = 2;
    let takes = "it takes 1 to 32 keys, and a charge for each";
    let strikes = "charge 2 is a ban that strikes by itself";
    let no_charge = "charge 1 is not one of algorithm 1";
    let cases: [Case<'_>; 15] = [
        (&[], vec![], takes),
        (&["a"], vec![], takes),
        (&both, vec![charge.clone()], takes),
        (&["a"], vec![charge.clone(), charge.clone()], takes),
        (&names, vec![charge.clone(); 33], takes),
        (&["a", "a"], vec![charge.clone(); 2], "key 2 stands twice"),
        (&["a"], vec![vec![]], "algorithm 0 is not decided in it"),
        (&["a"], vec![with(0, 6)], "algorithm 6 is not decided in it"),
        (&["a"], vec![with(0, 7)], "algorithm 7 is not decided in it"),
        (
            &["a"],
            vec![with(0, 12)],
            "algorithm 12 is not decided in it",
        ),
        (&["a"], vec![with(1, 3)], no_charge),
        (&["a"], vec![of_length(58)], no_charge),
        (&both, vec![of_length(60), charge.clone()], no_charge),
        (&both, vec![charge.clone(), ban], strikes),
        (&both, vec![charge.clone(), imposed], strikes),
    ];
    for (keys, charges, fault) in cases {
        let error = gateway.ask(keys, &charges).unwrap_err();
        assert_eq!(error.code(), Some("ERR"), "{error}");
        assert_eq!(error.detail(), Some(&*format!("decide form: {fault}")));
        assert_eq!(gateway.keys(), 0, "{fault}");
    }
    // As many as there may be.
    let reply = gateway.ask(&names[..32], &vec![charge; 32]).unwrap();
    assert_eq!(reply.split(' ').count(), 5 + 4 * 32);
    assert_eq!(gateway.keys(), 32);
}

#[test]
fn charges_that_need_a_program_that_comes_back_have_no_words() {
    let none = [
        Concurrent::at_most(3).into(),
        Once::default().into(),
        "10/s wait 5s".parse().unwrap(),
        { Ban::after(3, std::time::Duration::from_secs(1)) }
            .try_imposed(std::time::Duration::from_secs(9))
            .unwrap()
            .into(),
    ];
    for quota in none {
        assert_eq!(of(&quota, Mode::Enforce, 0, NOW_US), None, "{quota}");
    }
    let ban = Quota::from(Ban::after(3, std::time::Duration::from_secs(1)));
    let strikes = Charge {
        scope: Scope::of("p", 0, &ban),
        quota: &ban,
        key: &Key::global(),
        cost: 1,
        mode: Mode::Enforce,
    };
    assert_eq!(decide_form_words(&strikes, 1, Timestamp::default()), None);
}

#[test]
fn a_foreign_value_or_a_clock_days_off_fails_the_request_and_is_named() {
    let server = Standalone::start();
    let mut gateway = Gateway::new(&server);
    let day = |away_us: u64| {
        let quota = "100/day in UTC".parse().unwrap();
        of(&quota, Mode::Enforce, 0, NOW_US + away_us).unwrap()
    };
    const DAY_US: u64 = 86_400_000_000;
    let (bucket, window) = (words("10/s"), words("10/s fixed-window"));
    for command in [
        &["SET", "text", "another program's"][..],
        &["SET", "empty", ""],
        &["RPUSH", "list", "a"],
    ] {
        let mut set = redis::cmd(command[0]);
        set.arg(&command[1..]).exec(&mut gateway.redis).unwrap();
    }
    for (keys, charges, told) in [
        (&["text"][..], vec![bucket.clone()], "2 1 0 2 0 0 0"),
        (&["empty"], vec![bucket.clone()], "2 1 0 2 0 0 0"),
        (&["list"], vec![bucket.clone()], "2 1 0 2 0 0 0"),
        (
            &["new", "list", "text"],
            vec![bucket.clone(), window.clone(), bucket.clone()],
            "2 2 0 4 0 0 0 2 0 0 0 2 0 0 0",
        ),
        (&["new"], vec![day(4 * DAY_US)], "2 1 0 3 0 0 0"),
        (
            &["new", "other"],
            vec![bucket.clone(), day(4 * DAY_US)],
            "2 2 0 4 0 0 0 3 0 0 0",
        ),
        (
            &["other", "text"],
            vec![day(4 * DAY_US), bucket],
            "2 1 0 3 0 0 0 2 0 0 0",
        ),
    ] {
        let reply = gateway.ask(keys, &charges).unwrap();
        assert_eq!(reply, format!("0 {NOW_US} {told}"));
        assert_eq!(gateway.keys(), 3, "nothing was taken");
    }
    // Two windows away is near enough.
    for days in [0, 2] {
        let reply = gateway.ask(&[&days.to_string()], &[day(days * DAY_US)]);
        let reply = reply.unwrap();
        assert!(
            reply.starts_with(&format!("0 {NOW_US} 1 1 0 1 99 ")),
            "{reply}"
        );
    }
}
