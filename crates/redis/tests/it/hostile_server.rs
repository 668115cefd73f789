//! A server with impossible answers: the process does not crash or hang, no caller gets a wrong decision, and when the server
//! is well again decisions are right again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::watch::Watch;
use crate::common::{Budget, HOUR, connect, recovered};
use tollgate_core::{Backend, Call, FailureKind, Quota};
use tollgate_redis::RedisBackend;
use tollgate_testkit::Standalone;

const DEADLINE: Duration = Duration::from_millis(150);

/// The text in the place of an answer.
#[derive(Clone)]
enum Answer {
    True,
    /// This text.
    Bytes(Vec<u8>),
    /// This text, and then the other again and again, for as long as it is read.
    Endless(&'static [u8], &'static [u8]),
    /// The true answer, twice.
    Twice,
    /// The true answer of the call before.
    Former,
    /// The true answer with one byte changed, another each time.
    Changed,
}

/// A real server, and the liar in its place.
struct Hostile {
    server: Standalone,
    url: String,
    answer: Arc<Mutex<Answer>>,
}

impl Hostile {
    fn start() -> Self {
        let server = Standalone::start();
        let port = server.port();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(Answer::True));
        let shared = Arc::clone(&answer);
        // Ends with the process of the test.
        let _detached = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let _there = thread::spawn(move || {
                    let _broken = std::io::copy(&mut from, &mut to);
                    let _closed = to.shutdown(Shutdown::Both);
                });
                let shared = Arc::clone(&shared);
                let _back = thread::spawn(move || {
                    let _broken = speak(&server, &client, &shared);
                    let _closed = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self {
            server,
            url,
            answer,
        }
    }

    fn answer_with(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

fn speak(
    mut server: &TcpStream,
    mut client: &TcpStream,
    shared: &Mutex<Answer>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let (mut former, mut changes) = (Vec::new(), 0_usize);
    loop {
        let length = server.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let truth = buffer[..length].to_vec();
        let answer = shared.lock().unwrap().clone();
        match answer {
            Answer::True => client.write_all(&truth)?,
            Answer::Bytes(bytes) => client.write_all(&bytes)?,
            Answer::Endless(first, then) => {
                client.write_all(first)?;
                loop {
                    client.write_all(then)?;
                }
            }
            Answer::Twice => client.write_all(&truth.repeat(2))?,
            Answer::Former => {
                let said = if former.is_empty() { &truth } else { &former };
                client.write_all(said)?;
            }
            Answer::Changed => {
                let mut changed = truth.clone();
                changes += 1;
                changed[changes % length] ^= 1 << (changes / length % 8);
                client.write_all(&changed)?;
            }
        }
        former = truth;
    }
}

fn hostile_answers() -> Vec<(&'static str, Answer)> {
    let bytes = |bytes: &[u8]| Answer::Bytes(bytes.to_vec());
    let text = |text: &[u8]| {
        let head = format!("${}\r\n", text.len()).into_bytes();
        Answer::Bytes([&head, text, b"\r\n"].concat())
    };
    vec![
        ("a number", bytes(b":1\r\n")),
        ("a status", bytes(b"+OK\r\n")),
        ("nothing", bytes(b"$-1\r\n")),
        ("an empty list", bytes(b"*0\r\n")),
        (
            "a list of lists",
            bytes(b"*2\r\n*1\r\n:1\r\n*1\r\n$1\r\na\r\n"),
        ),
        ("a truth value", bytes(b"#t\r\n")),
        ("a map", bytes(b"%1\r\n+a\r\n+b\r\n")),
        (
            "a message that nobody asked for",
            bytes(b">2\r\n+message\r\n+a\r\n"),
        ),
        ("an error without a code", bytes(b"-\r\n")),
        (
            "an error that names a caller",
            bytes(b"-ERR alice is at 192.0.2.1\r\n"),
        ),
        ("a redirection", bytes(b"-MOVED 3999 127.0.0.1:1\r\n")),
        ("garbage", bytes(&[0xff; 64])),
        ("a list of two thousand million", bytes(b"*2147483647\r\n")),
        (
            "a text of all the memory there is",
            bytes(b"$9223372036854775807\r\n"),
        ),
        (
            "a length below nothing",
            bytes(b"*-9223372036854775808\r\n"),
        ),
        (
            "lists in lists in lists",
            Answer::Bytes(b"*1\r\n".repeat(200_000)),
        ),
        ("an empty text", text(b"")),
        ("a time alone", text(b"1700000000 0 ")),
        ("a time without end", text(&[b'9'; 4_000])),
        (
            "more admitted than asked",
            text(b"1700000000 0 \x7f\x91\xc2"),
        ),
        ("fewer states than keys", text(b"1700000000 0 \x01\x90")),
        (
            "more states than keys",
            text(b"1700000000 0 \x01\x92\xc2\xc2"),
        ),
        (
            "a list that says it is long",
            text(b"1700000000 0 \x01\xdd\xff\xff\xff\xff"),
        ),
        (
            "a state that says it is long",
            text(b"1700000000 0 \x01\x91\xdb\xff\xff\xff\xff"),
        ),
        (
            "a text that never ends",
            Answer::Endless(b"$1000000000\r\n", b"aaaaaaaaaaaaaaaa"),
        ),
        (
            "a line that never ends",
            Answer::Endless(b"+", b"aaaaaaaaaaaaaaaa"),
        ),
        ("answers that never end", Answer::Endless(b"", b":1\r\n")),
        ("every answer twice", Answer::Twice),
        ("the answer of the call before", Answer::Former),
        ("one wrong bit", Answer::Changed),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_answers_everybody_hears_in_time_and_it_is_used_again_when_it_is_well() {
    let hostile = Hostile::start();
    let builder = RedisBackend::builder(&hostile.url).deadline(DEADLINE);
    let backend = builder.connect().await.unwrap();
    let truthful = connect(&hostile.server).await;
    for (n, (what, answer)) in hostile_answers().into_iter().enumerate() {
        // Nothing drains meanwhile.
        let budget = Budget::of(&format!("hostile-{n}"), Quota::new(1_000, HOUR * 24 * 300));
        recovered(&backend, &budget).await;

        hostile.answer_with(answer.clone());
        for _ in 0..8 {
            let watch = Watch::start();
            let calls: Vec<_> = (0..10)
                .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
                .collect();
            for call in calls {
                let said = call.await;
                let is_unheard_of = matches!(answer, Answer::Bytes(_) | Answer::Endless(..));
                assert!(said.is_err() || !is_unheard_of, "{what}: {said:?}");
                let text = format!("{said:?}");
                assert!(!text.contains("alice is at"), "{what}: {text}");
            }
            let waited = watch.elapsed();
            // A server that never stops sending takes a core of the machine from all others. `timing.rs` tests the deadline, on
            // a clock that waits for the machine; this test shows that each caller gets an answer.
            let is_flood = matches!(answer, Answer::Endless(..));
            let most = DEADLINE * if is_flood { 10 } else { 4 };
            assert!(waited < most, "{what}: {waited:?}");
        }
        hostile.answer_with(Answer::True);

        recovered(&backend, &budget).await;
        // A call that cannot be read may have run, but none ran twice.
        let taken = budget.taken(&truthful).await;
        assert!(taken <= 80, "{what}: {taken}");
    }
}

/// Bytes of memory that this process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1_024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_says_it_is_long_takes_no_memory_before_it_comes() {
    let hostile = Hostile::start();
    let builder = RedisBackend::builder(&hostile.url).deadline(DEADLINE);
    let backend = builder.connect().await.unwrap();
    let budget = Budget::of("long", Quota::per_hour(1_000));
    let before = resident();

    for length in [
        "*2147483647\r\n",
        "$2147483647\r\n",
        "$9223372036854775807\r\n",
    ] {
        recovered(&backend, &budget).await;
        hostile.answer_with(Answer::Bytes(length.as_bytes().to_vec()));
        let error = budget.take(&backend, 1).await.unwrap_err();
        assert_ne!(error.kind(), FailureKind::InvalidCall);
        hostile.answer_with(Answer::True);
    }

    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}
