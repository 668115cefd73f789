//! Every request takes one way through the limiter: each door to the backend, and each question about pressure, stands in a list
//! here with its reason. A new call that is not in the list fails, and so does a line of the list without its call.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A call that few places may make: its text, and for each file the number of calls and the reason.
struct Door {
    call: &'static str,
    places: &'static [(&'static str, usize, &'static str)],
}

const DOORS: &[Door] = &[
    Door {
        call: "backend.decide(",
        places: &[
            (
                "limiter/src/limiter/admission.rs",
                2,
                "the way of every request, and its straight beginning under a sole policy",
            ),
            (
                "limiter/src/limiter/line.rs",
                2,
                "a request that may wait states its patience, and asks for its places when its turn has come",
            ),
            (
                "limiter/src/limiter/bans.rs",
                1,
                "an operator bans, or asks about a ban: no request is decided",
            ),
        ],
    },
    Door {
        call: "backend.decide_up_to(",
        places: &[(
            "limiter/src/limiter/admission.rs",
            1,
            "the way of every request, where a check asks for as much as there is",
        )],
    },
    Door {
        call: "limiter.decide(",
        places: &[
            (
                "limiter/src/limiter/admission/pending.rs",
                1,
                "every request whose plan is complete",
            ),
            (
                "grpc/src/messages/meter.rs",
                1,
                "each message of a stream that is planned",
            ),
        ],
    },
    Door {
        call: "self.go_on(planned",
        places: &[(
            "limiter/src/limiter/check.rs",
            1,
            "a check has no head to be planned from, and joins the way of requests behind the plan",
        )],
    },
    Door {
        call: "backend.debit(",
        places: &[
            (
                "limiter/src/limiter/settlement.rs",
                2,
                "the application corrects a charge, or a response does; and a response is a strike",
            ),
            (
                "limiter/src/limiter/local.rs",
                1,
                "a budget of this process",
            ),
        ],
    },
    Door {
        call: "backend.credit(",
        places: &[
            (
                "limiter/src/limiter/settlement.rs",
                1,
                "everything that is given back",
            ),
            (
                "limiter/src/limiter/local.rs",
                1,
                "a budget of this process",
            ),
        ],
    },
    Door {
        call: "backend.assume(",
        places: &[(
            "limiter/src/limiter/admission/judging.rs",
            1,
            "a place is held though the backend failed",
        )],
    },
    Door {
        call: "backend.decide_now(",
        places: &[(
            "limiter/src/limiter/local.rs",
            1,
            "a budget of this process, while the backend fails",
        )],
    },
    Door {
        call: ".judge(",
        places: &[
            (
                "limiter/src/limiter/admission/judging.rs",
                1,
                "the ruling on every request that the backend answered late, or failed",
            ),
            (
                "grpc/src/messages/meter.rs",
                1,
                "a stream is planned once, and each of its messages is decided by that plan",
            ),
        ],
    },
    Door {
        call: ".admit(",
        places: &[
            ("http/src/layer/service.rs", 1, "the layer"),
            (
                "http/src/layer/inner_limits.rs",
                1,
                "limits of handlers and routes",
            ),
            ("grpc/src/interceptor.rs", 1, "the interceptor"),
        ],
    },
    Door {
        call: "observers.shed(",
        places: &[(
            "limiter/src/limiter/entry.rs",
            1,
            "the one door under pressure",
        )],
    },
    Door {
        call: "self.shed(",
        places: &[
            (
                "limiter/src/limiter/admission.rs",
                1,
                "every request, before all else",
            ),
            (
                "limiter/src/limiter/messages.rs",
                1,
                "a stream, when it begins",
            ),
            (
                "limiter/src/limiter/check.rs",
                1,
                "every check, alone or with others, before all else",
            ),
        ],
    },
];

/// The crates through which requests go.
const CRATES: &[&str] = &["limiter", "http", "grpc"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The lines of code of a file, up to its tests. A builder's method of the name in a text or a comment is not a call.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = product.lines().map(str::trim);
    let code = lines.filter(|line| !line.starts_with("//") && !line.starts_with('"'));
    code.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_door_to_the_backend_is_known_with_its_reason() {
    let mut files = Vec::new();
    for name in CRATES {
        sources(&crates().join(name).join("src"), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());

    for Door { call, places } in DOORS {
        let known = places.iter().map(|(file, count, reason)| {
            assert!(!reason.is_empty());
            ((*file).to_owned(), *count)
        });
        let known: BTreeMap<_, _> = known.collect();
        let mut found = BTreeMap::new();
        for path in &files {
            let count = code(path).matches(call).count();
            if count > 0 {
                let file = path.strip_prefix(crates()).unwrap();
                found.insert(file.to_str().unwrap().replace('\\', "/"), count);
            }
        }
        assert_eq!(found, known, "calls of `{call}`");
    }
}
