//! The vectors in `lua/vectors.json`: identities, names, charges and calls, as any program that shares budgets must write and read
//! them. The file is compared with what this crate does, and a gateway in Lua, written from `lua/README.md` alone, is held to it
//! by `tests/tests/it/lua_gateway.rs`.
//!
//! `TOLLGATE_WRITE_VECTORS=1` writes the file anew.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use redis::{Client, Connection};
use tollgate_core::{Ban, Charge, Key, Mode, Quota, Scope, Timestamp, Unit};
use tollgate_testkit::Standalone;

use super::charge;
use crate::name::Names;
use crate::script::Script;
use crate::slot;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lua/vectors.json");
/// The time of all calls: far in the future, so that no key expires meanwhile.
const NOW_US: u64 = 3_500_000_336_896_962;
const SECRET: &[u8] = b"s3cret";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _written = write!(text, "{byte:02x}");
        text
    })
}

/// The kind and the content of an identity, of any length, and its key.
fn identities() -> Vec<(Vec<u8>, Key)> {
    let text = |bytes: &[u8]| ([b"b", bytes].concat(), Key::bytes(bytes));
    let given = |key: Key| (key.as_bytes().to_vec(), key);
    let parts = [Key::from("tenant-7"), Key::from(Ipv4Addr::new(10, 1, 2, 3))];
    let long = [Key::from("a".repeat(90)), Key::from("b".repeat(90))];
    let joined = long.iter().fold(vec![b't'], |mut joined, part| {
        joined.push(u8::try_from(part.as_bytes().len()).unwrap());
        joined.extend_from_slice(part.as_bytes());
        joined
    });
    let v6 = |text: &str, bits| Key::address(text.parse::<Ipv6Addr>().unwrap().into(), bits);
    vec![
        text(b"alice"),
        text(b""),
        text(b"a b:{c}%\xff\0"),
        text(b"user@example.org/-._=+"),
        text(&[b'x'; 127]),
        text(&[b'x'; 128]),
        text("é".repeat(300).as_bytes()),
        given(Key::from(Ipv4Addr::new(10, 1, 2, 3))),
        given(v6("2001:db8::1", 64)),
        given(v6("2001:db8:0:ff00::", 56)),
        given(v6("2001:0:0:1::5:0", 128)),
        given(v6("::1", 64)),
        given(Key::global()),
        given(Key::missing()),
        given(Key::tuple(&parts)),
        (joined, Key::tuple(&long)),
    ]
}

/// The lines of the list of identities.
fn identity_lines() -> Vec<String> {
    let plain = Names::new("tollgate".to_owned());
    let mut hashing = Names::new("tollgate".to_owned());
    hashing.hash_with(SECRET);
    let lines = identities().into_iter().map(|(source, key)| {
        format!(
            r#"{{"source":"{}","canonical":"{}","text":"{}","secret":"{}","hashed":"{}"}}"#,
            hex(&source),
            hex(key.as_bytes()),
            plain.identity(&key),
            hex(SECRET),
            hashing.identity(&key),
        )
    });
    lines.collect()
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn name_lines() -> Vec<String> {
    let mut lines = Vec::new();
    let quotas = [
        ("login", 0, "10/s"),
        ("api:day", 0, "1000/day fixed-window offset 6h"),
        ("search", 2, "100/minute sliding-window"),
        ("search", 3, "100/minute rolling-window"),
        ("mail", 1, "5/hour sliding-log"),
        ("trial {x}", 0, "10/minute interval-refill"),
        ("daily", 0, "1000/day in Europe/Berlin"),
        ("daily", 0, "1000/year in Europe/London from 04-06"),
    ];
    let keys = [Key::from("alice"), Key::from(Ipv4Addr::new(10, 1, 2, 3))];
    let of = |policy: &str, slot, quota: &Quota, partitions, key: &Key| {
        let scope = Scope::of(policy, slot, quota);
        let mut names = Names::new("tollgate".to_owned());
        names.partitions = partitions;
        let name = names.of(scope, key);
        format!(
            r#"{{"prefix":"tollgate","policy":"{policy}","slot":{slot},"unit":"{}","identity":"{}","partitions":{},"name":"{}","cluster_slot":{}}}"#,
            scope.unit(),
            names.identity(key),
            partitions.unwrap_or(0),
            String::from_utf8_lossy(&name),
            slot::of(&name),
        )
    };
    for partitions in [None, Some(64), Some(1_000)] {
        for (policy, slot, text) in quotas {
            for key in &keys {
                lines.push(of(policy, slot, &quota(text), partitions, key));
            }
        }
        let ban = Quota::from(Ban::after(3, Duration::from_secs(60)));
        lines.push(of("login", 0, &ban, partitions, &keys[0]));
    }
    lines
}

/// The figures of a quota that a charge is made of, as a list of fields.
fn figures(quota: &Quota) -> String {
    let mut text = format!(
        r#""limit":{},"period_us":{},"burst":{}"#,
        quota.limit(),
        quota.period().as_micros(),
        quota.capacity()
    );
    let mut add = |field: String| text.push_str(&field);
    if let Some((_, detail)) = quota.unit().detail() {
        add(format!(r#","detail":{detail}"#));
    }
    if let Unit::Calendar(calendar) = quota.unit() {
        add(format!(r#","bounds":{:?}"#, calendar.bounds_around(NOW_US)));
    }
    if let Some(ban) = quota.ban() {
        let (strikes, onset, times) = ban.figures();
        add(format!(
            r#","strikes":{strikes},"onset":{onset},"times":{times:?}"#
        ));
    }
    text
}

fn in_words(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        _ => "probe",
    }
}

fn bytes(quota: &Quota, cost: u64, mode: Mode, guards: u32) -> Vec<u8> {
    let of = Charge {
        scope: Scope::of("vectors", 0, quota),
        quota,
        key: &Key::global(),
        cost,
        mode,
    };
    charge(&of, guards, Timestamp::from_micros(NOW_US)).unwrap()
}

fn charge_lines() -> Vec<String> {
    let ban = Ban::after(3, Duration::from_secs(60));
    let ban = ban.doubling_to(Duration::from_secs(86_400));
    let (enforce, shadow) = (Mode::Enforce, Mode::Shadow);
    let mut cases: Vec<(Quota, u64, Mode, u32)> = [
        ("10/s", 1, enforce),
        ("10/s burst 50", 7, shadow),
        ("7/s burst 3", 2, enforce),
        ("999983/day burst 50", 1, Mode::Probe),
        ("1000000/s", 1, enforce),
        ("3/day burst 2", 1, enforce),
        ("10/s", 99, enforce),
        ("1000/day fixed-window offset 6h", 1, enforce),
        ("100/minute sliding-window", 3, enforce),
        ("100/minute rolling-window", 1, shadow),
        ("5/hour sliding-log", 1, enforce),
        ("10/minute interval-refill burst 30", 1, enforce),
        ("1000/day in UTC", 1, enforce),
    ]
    .map(|(text, cost, mode)| (quota(text), cost, mode, 0))
    .into();
    cases.push((ban.into(), 0, enforce, 1));
    cases.push((ban.extending().into(), 0, shadow, 0b11));
    let lines = cases.iter().map(|(quota, cost, mode, guards)| {
        format!(
            r#"{{"algorithm":{},"mode":"{}","cost":{cost},{},"guards":{guards},"bytes":"{}"}}"#,
            quota.unit().number(),
            in_words(*mode),
            figures(quota),
            hex(&bytes(quota, *cost, *mode, *guards)),
        )
    });
    lines.collect()
}

/// A server whose clock stands still.
struct Asked {
    redis: Connection,
    script: String,
}

impl Asked {
    fn new(server: &Standalone) -> Self {
        let url = format!("redis+unix://{}", server.socket().display());
        let mut redis = Client::open(url).unwrap().get_connection().unwrap();
        let load = |redis: &mut Connection| {
            let source = Script::decide_form_with_clock("clock");
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(source.source()).query(redis).unwrap()
        };
        let script = load(&mut redis);
        Self { redis, script }
    }

    /// Asks several times, and tells of each time the states before, the reply, and the states behind it.
    fn times(&mut self, times: usize, charges: &[Vec<u8>], before: Option<&[u8]>) -> Vec<String> {
        redis::cmd("FLUSHALL").exec(&mut self.redis).unwrap();
        let mut set = redis::cmd("SET");
        set.arg("clock").arg(NOW_US).exec(&mut self.redis).unwrap();
        let keys: Vec<_> = (0..charges.len()).map(|n| format!("key-{n}")).collect();
        if let Some(state) = before {
            let mut set = redis::cmd("SET");
            set.arg(&keys[0]).arg(state).exec(&mut self.redis).unwrap();
        }
        let mut lines = Vec::new();
        for _ in 0..times {
            let before = self.states(&keys);
            let mut command = redis::cmd("EVALSHA");
            command.arg(&self.script).arg(keys.len()).arg(&keys);
            charges.iter().for_each(|charge| {
                command.arg(&charge[..]);
            });
            let reply: String = command.query(&mut self.redis).unwrap();
            let charges: Vec<_> = charges.iter().map(|charge| hex(charge)).collect();
            lines.push(format!(
                r#"{{"charges":{charges:?},"states":{before},"reply":"{reply}","states_after":{}}}"#,
                self.states(&keys),
            ));
        }
        lines
    }

    fn states(&mut self, keys: &[String]) -> String {
        let mut get = redis::cmd("MGET");
        let states: Vec<Option<Vec<u8>>> = get.arg(keys).query(&mut self.redis).unwrap();
        let states = states.iter().map(|state| match state {
            Some(state) => format!("\"{}\"", hex(state)),
            None => "null".to_owned(),
        });
        format!("[{}]", states.collect::<Vec<_>>().join(","))
    }
}

fn call_lines() -> Vec<String> {
    let server = Standalone::start();
    let mut asked = Asked::new(&server);
    let (enforce, shadow) = (Mode::Enforce, Mode::Shadow);
    let of = |text: &str, cost, mode| bytes(&quota(text), cost, mode, 0);
    let mut lines = Vec::new();
    for (times, text, cost) in [
        (3, "10/s burst 2", 1),
        (3, "7/s burst 3", 2),
        (1, "10/s", 11),
        (3, "2/day fixed-window offset 6h", 1),
        (3, "3/minute sliding-window", 2),
        (3, "2/minute rolling-window", 1),
        (3, "2/hour sliding-log", 1),
        (3, "1/minute interval-refill burst 2", 1),
        (3, "2/day in UTC", 1),
    ] {
        lines.extend(asked.times(times, &[of(text, cost, enforce)], None));
    }
    let (second, day) = (of("10/s burst 2", 1, enforce), of("3/day", 1, enforce));
    let trial = of("1/hour", 1, shadow);
    lines.extend(asked.times(4, &[second.clone(), day, trial], None));
    let ban = Quota::from(Ban::after(2, Duration::from_secs(60)));
    let ban = bytes(&ban, 0, enforce, 1);
    lines.extend(asked.times(5, &[second.clone(), ban], None));
    // A value of another program.
    lines.extend(asked.times(1, &[second.clone(), of("1/s", 1, enforce)], Some(b"hello")));
    // A state that lies ahead, with a rest.
    let far = [&[0x93][..], &((NOW_US + 900_000) as f64).to_le_bytes()].concat();
    lines.extend(asked.times(1, &[of("10/s", 1, enforce)], Some(&far)));
    lines
}

fn vectors() -> String {
    let list = |name: &str, lines: &[String]| format!("\"{name}\":[\n{}\n]", lines.join(",\n"));
    let lists = [
        list("identities", &identity_lines()),
        list("names", &name_lines()),
        list("charges", &charge_lines()),
        format!("\"time_us\":{NOW_US}"),
        list("calls", &call_lines()),
    ];
    format!("{{{}}}\n", lists.join(",\n"))
}

#[test]
fn the_vectors_are_what_this_crate_writes_and_reads() {
    let vectors = vectors();
    if std::env::var_os("TOLLGATE_WRITE_VECTORS").is_some() {
        fs::write(FILE, &vectors).unwrap();
    }
    let written = fs::read_to_string(FILE).unwrap_or_default();
    for (known, made) in written.lines().zip(vectors.lines()) {
        assert_eq!(known, made);
    }
    assert_eq!(written.len(), vectors.len(), "lines are missing");
}
