//! How do I limit failed logins, and only those?
//!
//! `cargo run --example login`. Every attempt is charged before the password is checked, and credited if it was right: so a
//! thousand simultaneous attempts find no gap. An attacker has few addresses or few accounts, so both are limited. `Ali` and `
//! ali` are one account in the database, so they are one budget too.

use axum::Router;
use axum::extract::Form;
use axum::routing::post;
use http::StatusCode;
use serde::Deserialize;
use tollgate::key::{FormField, KeyExtractor, KeyMissing};
use tollgate::{
    BufferBodyLayer, Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer, RequestView,
};
use tollgate_examples::serve;
use tower::ServiceBuilder;

/// The account that a name stands for: the same for the limit and for the password.
fn account(user: &str) -> String {
    user.trim().to_lowercase()
}

/// The account whose password is guessed.
#[derive(Debug)]
struct Account(FormField);

impl KeyExtractor for Account {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let user = self.0.extract(request)?;
        // A field of a form is text, since what is not UTF-8 has been replaced.
        Ok(Key::from(account(&String::from_utf8_lossy(user.content()))))
    }
}

#[derive(Deserialize)]
struct Login {
    user: String,
    password: String,
}

async fn login(Form(login): Form<Login>) -> (StatusCode, String) {
    if login.password == "open sesame" {
        (
            StatusCode::OK,
            format!("welcome, {}\n", account(&login.user)),
        )
    } else {
        (StatusCode::UNAUTHORIZED, "wrong\n".to_owned())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let failed = |name, quota| {
        Policy::new(name, quota)
            .count_if(|response| response.status() == StatusCode::UNAUTHORIZED)
            // Better no logins than unlimited guesses.
            .on_failure(OnFailure::Deny)
    };
    let limiter = Limiter::builder()
        .policy(failed("guesses-of-an-address", Quota::per_minute(5)))
        .policy(
            failed("guesses-at-an-account", Quota::per_hour(20))
                .key(Account(FormField::new("user"))),
        )
        .build()?;

    // The user's name is in the body, so a layer of its own reads that first, up to a limit.
    let limits = ServiceBuilder::new()
        .layer(BufferBodyLayer::new(4_096))
        .layer(RateLimitLayer::new(limiter));
    let app = Router::new()
        .route("/login", post(login))
        .route_layer(limits);

    let tries = [
        "curl -i -d 'user=ali&password=open sesame' URL/login    # as often as you like",
        "curl -i -d 'user=ali&password=guess' URL/login          # five times a minute",
    ];
    serve(app, "failed logins are limited", &tries).await
}
