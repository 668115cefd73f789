//! The files of the page.

use crate::admin::steered::Steered;
use crate::common::http::send;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_without_the_token_and_embeds_and_asks_nothing_else() {
    let steered = Steered::start().await;
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/admin.css", "text/css; charset=utf-8"),
        ("/admin.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = send(steered.admin, &format!("GET {path}"), "").await;
        assert_eq!(
            (answer.status, answer.field("content-type")),
            (200, vec![content_type])
        );
        assert_eq!(answer.field("x-content-type-options"), ["nosniff"]);
        assert_eq!(answer.field("referrer-policy"), ["no-referrer"]);
        assert_eq!(answer.field("cache-control"), ["no-store"]);
        let policy = answer.field("content-security-policy")[0].to_owned();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        for other in [
            "http://",
            "https://",
            "//",
            "innerHTML",
            "onclick",
            "style=",
        ] {
            let body = answer.body.replace("// ", "");
            assert!(!body.contains(other), "{path}: {other}");
        }
        let head = send(steered.admin, &format!("HEAD {path}"), "").await;
        assert_eq!((head.status, &*head.body), (200, ""));
    }
}
