//! A room touches what it is for, and nothing else: core no clock and no system, and the limiter no answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tollgate_architecture::files::{product_code, sources};

/// Names that a crate's product code may not have, and the reason.
struct Ban {
    of_crate: &'static str,
    names: &'static [&'static str],
    reason: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        of_crate: "core",
        names: &[
            "/proc",
            "/sys",
            "Instant",
            "SystemTime",
            "TcpStream",
            "UdpSocket",
            "eprint",
            "println",
            "std::env",
            "std::fs",
            "std::io",
            "std::process",
            "std::thread",
        ],
        reason: "a rule is a function of its state and of the time that it is told",
    },
    Ban {
        of_crate: "limiter",
        names: &[
            "HeaderValue::from",
            "Response::builder",
            "Response::new",
            "extensions_mut",
            "headers_mut",
            "status_mut",
        ],
        reason: "a protocol's crate writes the answers",
    },
];

/// Each name that a text of code has and may not have.
fn found<'a>(code: &str, names: &[&'a str]) -> Vec<&'a str> {
    let names = names.iter().copied();
    names.filter(|name| code.contains(name)).collect()
}

#[test]
fn no_room_touches_what_another_is_for() {
    for Ban {
        of_crate,
        names,
        reason,
    } in BANS
    {
        let files = sources(of_crate).unwrap();
        assert!(files.len() > 20, "{of_crate} has {} files", files.len());
        for path in files {
            // Files of unit tests start servers and read answers.
            if path.ends_with("tests.rs") {
                continue;
            }
            let met = found(&product_code(&path).unwrap(), names);
            assert!(met.is_empty(), "{}: {met:?}, but {reason}", path.display());
        }
    }
}

#[test]
fn what_a_room_may_not_touch_is_found() {
    let [core, limiter] = BANS else {
        unreachable!("two rooms have bans");
    };
    assert_eq!(found("let now = Instant::now();", core.names), ["Instant"]);
    assert_eq!(
        found("fs::read(\"/proc/stat\")", core.names),
        ["/proc"],
        "a text inside a line counts"
    );
    assert_eq!(
        found("*response.status_mut() = StatusCode::OK;", limiter.names),
        ["status_mut"]
    );
    assert_eq!(
        found("let verdict = step(state, now);", core.names),
        [""; 0]
    );
}
