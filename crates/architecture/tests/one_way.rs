//! Every request takes one way through the limiter: each door to the backend, and each question about pressure, stands in a list
//! here with its reason. A new call that is not in the list fails, and so does a line of the list without its call.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use tollgate_architecture::files::{crates, product_code, sources};

/// A call that few places may make: its text, and for each file the number of calls and the reason.
struct Door {
    call: &'static str,
    places: &'static [(&'static str, usize, &'static str)],
}

const DOORS: &[Door] = &[
    Door {
        call: ".decide(",
        places: &[
            (
                "limiter/src/limiter/admission.rs",
                3,
                "the way of every request, its straight beginning under a sole policy, and the step between the two",
            ),
            (
                "limiter/src/limiter/admission/pending.rs",
                1,
                "every request whose plan is complete",
            ),
            (
                "limiter/src/limiter/line.rs",
                3,
                "a request that may wait states its patience, or has none, and asks for its places when its turn has come",
            ),
            (
                "limiter/src/limiter/bans.rs",
                1,
                "an operator bans, or asks about a ban: no request is decided",
            ),
            (
                "limiter/src/limiter/standing.rs",
                1,
                "an operator asks how a caller stands: no request is decided",
            ),
            (
                "limiter/src/limiter/local.rs",
                1,
                "the share of this process, while the backend fails",
            ),
            (
                "http/src/annotation/entrance.rs",
                1,
                "a handler's further policies, which go the way of every request",
            ),
            (
                "grpc/src/interceptor.rs",
                1,
                "the interceptor's own step, which goes the way of every request",
            ),
            (
                "grpc/src/messages/meter.rs",
                1,
                "each message of a stream that is planned",
            ),
            (
                "limiter/src/leasing.rs",
                4,
                "the backend of a limiter that leases hands on what its blocks do not decide",
            ),
        ],
    },
    Door {
        call: ".decide_up_to(",
        places: &[
            (
                "limiter/src/limiter/admission.rs",
                1,
                "the way of every request, where a check asks for as much as there is",
            ),
            (
                "grpc/src/interceptor.rs",
                1,
                "the backend of an interceptor hands the question on",
            ),
            (
                "limiter/src/leasing.rs",
                1,
                "the backend of a limiter that leases hands the question on",
            ),
            (
                "limiter/src/leasing/asking.rs",
                1,
                "a block is asked for beside the requests",
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
        call: ".debit(",
        places: &[
            (
                "limiter/src/limiter/settlement.rs",
                3,
                "the application corrects a charge, or a response does; and a response is a strike, here or in the fleet",
            ),
            (
                "limiter/src/limiter/local.rs",
                1,
                "a budget of this process",
            ),
            (
                "grpc/src/interceptor.rs",
                1,
                "the backend of an interceptor hands the debit on",
            ),
            (
                "limiter/src/leasing.rs",
                1,
                "the backend of a limiter that leases hands the debit on",
            ),
        ],
    },
    Door {
        call: ".credit(",
        places: &[
            (
                "limiter/src/limiter/settlement.rs",
                2,
                "everything that is given back, here or in the fleet",
            ),
            (
                "limiter/src/limiter/local.rs",
                1,
                "a budget of this process",
            ),
            (
                "grpc/src/interceptor.rs",
                1,
                "the backend of an interceptor hands the credit on",
            ),
            (
                "grpc/src/messages/account.rs",
                1,
                "a stream ends with messages that it was charged for and did not send",
            ),
            (
                "limiter/src/leasing.rs",
                1,
                "the backend of a limiter that leases hands the credit on",
            ),
            (
                "limiter/src/leasing/asking.rs",
                2,
                "a block comes that is more than half of what was left, or for which the limiter is gone",
            ),
            (
                "limiter/src/leasing/pool.rs",
                2,
                "a block ends, or all blocks with their limiter",
            ),
            (
                "limiter/src/leasing/reservation.rs",
                1,
                "a part of a block that has ended goes back",
            ),
        ],
    },
    Door {
        call: ".assume(",
        places: &[
            (
                "limiter/src/limiter/admission/judging.rs",
                2,
                "a place is held though the backend failed",
            ),
            (
                "grpc/src/interceptor.rs",
                1,
                "the backend of an interceptor hands the question on",
            ),
            (
                "limiter/src/leasing.rs",
                1,
                "the backend of a limiter that leases hands it on",
            ),
        ],
    },
    Door {
        call: ".decide_now(",
        places: &[
            (
                "limiter/src/limiter/local.rs",
                1,
                "a budget of this process, while the backend fails",
            ),
            (
                "grpc/src/interceptor.rs",
                1,
                "the backend of an interceptor, which cannot wait for an answer",
            ),
        ],
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

#[test]
fn each_door_to_the_backend_is_known_with_its_reason() {
    let files: Vec<_> = (CRATES.iter())
        .flat_map(|name| sources(name).unwrap())
        .collect();
    assert!(files.len() > 100, "{} files", files.len());

    for Door { call, places } in DOORS {
        let known = places.iter().map(|(file, count, reason)| {
            assert!(!reason.is_empty());
            ((*file).to_owned(), *count)
        });
        let known: BTreeMap<_, _> = known.collect();
        let mut found = BTreeMap::new();
        for path in &files {
            let count = product_code(path).unwrap().matches(call).count();
            if count > 0 {
                let file = path.strip_prefix(crates()).unwrap();
                found.insert(file.to_str().unwrap().replace('\\', "/"), count);
            }
        }
        assert_eq!(found, known, "calls of `{call}`");
    }
}
