//! Requests without the token.

use tollgate_testkit::Log;

use crate::admin::steered::{Steered, TOKEN};
use crate::common::http::send;

#[tokio::test]
async fn a_wrong_token_is_answered_401_whatever_it_asks_for_and_the_log_names_neither() {
    let log = Log::default();
    let _guard = log.listen();
    let steered = Steered::start().await;
    let wrong = [
        String::new(),
        "authorization: Bearer a-token-of-the-operatorz\r\n".to_owned(),
        "authorization: Bearer a-token-of-the-operator\r\n".to_owned(),
        "authorization: Bearer \r\n".to_owned(),
        "authorization: Bearer\r\n".to_owned(),
        format!("authorization: Basic {TOKEN}\r\n"),
        format!("authorization: {TOKEN}\r\n"),
        format!("authorization: Bearer {TOKEN}x\r\n"),
        format!("authorization: Bearer  {TOKEN}\r\n"),
        // Two contradict each other.
        format!("authorization: Bearer {TOKEN}\r\nauthorization: Bearer {TOKEN}\r\n"),
        format!("x-token: {TOKEN}\r\n"),
    ];
    let mut bodies = Vec::new();
    for fields in &wrong {
        for line in [
            "GET /api/state",
            "GET /api/caller?policy=login&caller=192.0.2.7",
            "POST /api/ban",
            "GET /nothing",
            "PUT /",
        ] {
            let answer = send(steered.admin, line, fields).await;
            assert_eq!(answer.status, 401, "{line} {fields} {answer:?}");
            assert_eq!(answer.field("www-authenticate"), ["Bearer"]);
            bodies.push(answer.body);
        }
        let token = format!("GET /api/state?token={TOKEN}");
        assert_eq!(send(steered.admin, &token, fields).await.status, 401);
    }
    // All answers are one, so that they do not tell what exists.
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    // The scheme has no case.
    let fields = format!("authorization: bEARER {TOKEN}\r\n");
    assert_eq!(
        send(steered.admin, "GET /api/state", &fields).await.status,
        200
    );

    let lines = log.text();
    let told = lines
        .matches("the admin was asked without its token")
        .count();
    assert_eq!(told, 1, "{lines}");
    assert!(
        !lines.contains("operators") && !lines.contains("operatorz"),
        "{lines}"
    );
}
