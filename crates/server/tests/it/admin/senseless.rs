//! Requests that make no sense.

use tollgate::Switch;

use crate::admin::steered::{Steered, TOKEN, address, fault};
use crate::common::http::{post, send};

/// An operator has not written the program.
fn assert_plain(reason: &str) {
    for word in [
        "struct ",
        "enum ",
        "Body",
        "SwitchName",
        "`.",
        "(..)",
        "::global",
    ] {
        assert!(!reason.contains(word), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_told_and_changes_nothing() {
    let steered = Steered::start().await;
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    let addresses = "caller: cannot be one under policy \"visits\": its key is the client's address, and this is text or bytes; \
                     its callers are addresses, such as 192.0.2.7 or 2001:db8::7";
    let gets = [
        ("/nothing", 404, "there is nothing at this path"),
        ("/api", 404, "there is nothing at this path"),
        ("/api/switch", 405, "this path has the method POST"),
        ("/api/ban", 405, "this path has the method POST"),
        ("/api/caller?policy=login", 400, "caller: is missing"),
        ("/api/caller?caller=x", 400, "policy: is missing"),
        ("/api/caller?policy=login&caller=", 400, "caller: is empty"),
        (
            "/api/caller?policy=logon&caller=x",
            404,
            "there is no policy of this name; there are login, pages, keys, visits",
        ),
        (
            "/api/caller?policy=login&policy=pages&caller=x",
            400,
            "policy: is there twice",
        ),
        (
            "/api/caller?policy=login&caller=x&most=3",
            400,
            "the parameters are policy, caller, and there is another one",
        ),
        (
            "/api/offenders?policy=logon",
            404,
            "there is no policy of this name",
        ),
        (
            "/api/offenders?policy=login&most=0",
            400,
            "most: is not a number above 0",
        ),
        (
            "/api/offenders?policy=login&most=many",
            400,
            "most: is not a number above 0",
        ),
        (
            "/api/bans?policy=pages",
            409,
            "policy \"pages\": it bans no callers: if it is to, give it a ban in the file, such as `ban = {",
        ),
        ("/api/caller?policy=visits&caller=alice", 400, addresses),
        (
            "/api/caller?policy=keys&caller=h00000000000000000000000000000000",
            400,
            "caller: this is the hash of an identity",
        ),
    ];
    for (path, status, reason) in gets {
        let told = fault(&steered.get(path).await);
        assert_eq!(told.0, status, "{path}: {told:?}");
        assert!(told.1.contains(reason), "{path}: {told:?}");
        assert_plain(&told.1);
    }

    let whole = |more: &str| format!(r#"{{"policy":"login","caller":"192.0.2.7"{more}}}"#);
    let posts = [
        ("/api/state", whole(""), 405, "this path has the method GET"),
        ("/", whole(""), 405, "this path has the method GET"),
        (
            "/api/reset",
            "{".to_owned(),
            400,
            "the body: EOF while parsing",
        ),
        (
            "/api/reset",
            whole(r#","whom":1"#),
            400,
            "the body: unknown field `whom`",
        ),
        (
            "/api/reset",
            whole(r#","policy":"login""#),
            400,
            "the body: duplicate field `policy`",
        ),
        (
            "/api/reset",
            whole(r#","seconds":1"#),
            400,
            "seconds: this operation takes policy, caller",
        ),
        (
            "/api/reset",
            r#"{"policy":"login"}"#.to_owned(),
            400,
            "caller: is missing",
        ),
        (
            "/api/reset",
            r#"{"caller":"x"}"#.to_owned(),
            400,
            "policy: is missing",
        ),
        (
            "/api/reset",
            r#"{"policy":7,"caller":"x"}"#.to_owned(),
            400,
            "the body: invalid type",
        ),
        (
            "/api/reset",
            whole("").replace("login", "logon"),
            404,
            "there is no policy of this name",
        ),
        ("/api/ban", whole(""), 400, "seconds: is missing"),
        (
            "/api/ban",
            whole(r#","seconds":-1"#),
            400,
            "the body: invalid value",
        ),
        (
            "/api/ban",
            whole(r#","seconds":0"#),
            400,
            "the length of the ban",
        ),
        (
            "/api/ban",
            whole(r#","seconds":18446744073709551615"#),
            400,
            "the length of the ban",
        ),
        (
            "/api/ban",
            whole(r#","seconds":60"#).replace("login", "pages"),
            409,
            "policy \"pages\"",
        ),
        (
            "/api/unban",
            whole("").replace("login", "pages"),
            409,
            "policy \"pages\"",
        ),
        (
            "/api/switch",
            r#"{"policy":"login"}"#.to_owned(),
            400,
            "to: is missing",
        ),
        (
            "/api/switch",
            r#"{"policy":"login","to":"of"}"#.to_owned(),
            400,
            "the body: unknown variant `of`",
        ),
        (
            "/api/switch",
            r#"{"policy":"logon","to":"off"}"#.to_owned(),
            404,
            "there is no policy of this name",
        ),
        (
            "/api/switch",
            whole(r#","to":"off""#),
            400,
            "caller: this operation takes policy, to",
        ),
        (
            "/api/reset",
            format!("{{\"policy\":\"{}\"}}", "x".repeat(16 << 10)),
            413,
            "the body has more than 16384 bytes",
        ),
    ];
    for (path, body, status, reason) in posts {
        let told = fault(&post(steered.admin, path, &token, &body).await);
        assert_eq!(told.0, status, "{path} {body}: {told:?}");
        assert!(told.1.contains(reason), "{path} {body}: {told:?}");
        assert_plain(&told.1);
    }
    for (body, kind) in [
        ("", "empty"),
        (" \r\n", "empty"),
        ("null", "null"),
        ("true", "true or false"),
        (" 7", "a number"),
        ("\"login\"", "a text"),
        ("[]", "a list"),
        (r#"[{"policy":"login","caller":"x"}]"#, "a list"),
    ] {
        for path in [
            "/api/reset",
            "/api/ban",
            "/api/unban",
            "/api/switch",
            "/api/caller",
        ] {
            let told = fault(&post(steered.admin, path, &token, body).await);
            let reason = format!(
                "the body: is {kind}, and has to be an object of JSON, such as {{\"policy\": \"NAME\", \"caller\": \"NAME\"}}"
            );
            assert_eq!(told, (400, reason), "{path} {body}");
        }
    }
    // Values of another kind in each field.
    for field in ["policy", "caller", "seconds", "to"] {
        for value in ["[]", "{}", "{\"on\":1}", "[\"on\"]", "7.5", "true", "\"x\""] {
            let body = format!("{{\"{field}\":{value}}}");
            let told = fault(&post(steered.admin, "/api/ban", &token, &body).await);
            assert_eq!(told.0, 400, "{body}: {told:?}");
            assert_plain(&told.1);
        }
    }
    // Callers of a policy that knows addresses alone.
    for (path, more) in [
        ("/api/reset", ""),
        ("/api/unban", ""),
        ("/api/ban", r#","seconds":60"#),
    ] {
        for caller in ["alice", "all", "192.0.2", "192.0.2.7:443"] {
            let body = format!(r#"{{"policy":"visits","caller":"{caller}"{more}}}"#);
            let told = fault(&post(steered.admin, path, &token, &body).await);
            assert_eq!(told.0, 400, "{path} {body}: {told:?}");
            assert!(
                told.1.ends_with("such as 192.0.2.7 or 2001:db8::7"),
                "{told:?}"
            );
        }
    }
    let answer = send(steered.admin, "DELETE /api/state", &token).await;
    assert_eq!(
        (fault(&answer).0, answer.field("allow")),
        (405, vec!["GET, HEAD"])
    );
    let answer = send(steered.admin, "GET /api/ban", &token).await;
    assert_eq!(answer.field("allow"), ["POST"]);

    // Nothing has come of all that.
    let limiter = steered.gateway.limiter();
    assert_eq!(limiter.switch_of("login"), Switch::On);
    assert_eq!(limiter.banned("login", address(7)).await.unwrap(), None);
}
