//! Identities that the handlers behind nginx read in one way: nginx finds the budget of what they see.

use std::fs;

use tollgate_testkit::Standalone;

use crate::nginx::client::Ask;
use crate::nginx::served::Gate;

const LIMITS: &str = "
[[policies]]
name = 'files'
quotas = '9/h'
routes = ['/files/{*rest}']
key = { path-param = 'rest' }
";

/// The names of the budgets that are charged since the last call.
fn charged(redis: &Standalone) -> Vec<String> {
    let names = redis.command(&["KEYS", "*"]);
    let _answer = redis.command(&["FLUSHALL"]);
    let names = names.split("\r\n");
    let names = names.filter_map(|line| line.strip_prefix("tollgate:"));
    names.map(str::to_owned).collect()
}

/// Otherwise paths with doubled slashes or dots are refused.
async fn allow_ambiguous_paths(gate: &Gate) {
    let file = fs::read_to_string(gate.json()).unwrap();
    let refuses = "\"allow_ambiguous_paths\": false";
    assert!(file.contains(refuses));
    let file = file.replace(refuses, "\"allow_ambiguous_paths\": true");
    fs::write(gate.json(), file).unwrap();
    gate.reload_fully().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_parameter_with_surplus_slashes_is_its_value() {
    let redis = Standalone::start();
    let gate = Gate::start(LIMITS, &redis).await;
    allow_ambiguous_paths(&gate).await;
    let cases = [
        ("07", "7"),
        ("07/", "7"),
        ("/07", "7"),
        ("//07//", "7"),
        ("+7/", "7"),
        ("7.0/", "7"),
        (
            "67E5504410B1426F9247BB680E5FE0C8/",
            "67e55044-10b1-426f-9247-bb680e5fe0c8",
        ),
        ("2001:DB8::00aF/", "2001:db8::af"),
        ("a//07/", "a/07"),
    ];
    for (value, identity) in cases {
        let answer = Ask::new(format!("GET /files/{value}"));
        let answer = answer.send(gate.address()).await;
        assert_eq!(answer.status, 200, "{value}");
        assert_eq!(
            charged(&redis),
            [format!("files:0/g:={identity}")],
            "{value}"
        );
    }
}

/// The way out of a folder leads to the login as well, for whoever resolves it behind nginx.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_covers_the_paths_that_lead_up_to_it() {
    let redis = Standalone::start();
    let limits = "
        [[policies]]
        name = 'login'
        quotas = '2/day'
        key = 'global'
        routes = ['/login']
    ";
    let gate = Gate::start(limits, &redis).await;
    allow_ambiguous_paths(&gate).await;
    let paths = [
        "/login",
        "/login",
        "/x/../login",
        "/x/%2e%2e/login",
        "/x%2f..%2flogin",
        "/../login",
    ];
    let mut statuses = Vec::new();
    for path in paths {
        let answer = Ask::new(format!("GET {path}"));
        statuses.push(answer.send(gate.address()).await.status);
    }
    // What leads out of the root is refused by nginx itself.
    assert_eq!(statuses[..5], [200, 200, 429, 429, 429]);
    assert_ne!(statuses[5], 200);
}
