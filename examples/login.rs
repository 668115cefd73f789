//! How do I limit failed logins, and only those? And how do I ban the guesser?
//!
//! `cargo run -p examples --example login`. Every attempt is charged before the password is checked, and credited if it was right: so a
//! thousand simultaneous attempts find no gap. An attacker has few addresses or few accounts, so both are limited. `Ali` and `
//! ali` are one account in the database, so they are one budget too.
//!
//! Five failed logins ban the pair of address and account for a quarter of an hour, and even the right password does not pass
//! then. A ban of the account alone would be a weapon: any caller that knows a name could keep its owner out for a quarter of an
//! hour with five guesses. The pair bans the guesser and no one else: the owner logs in from another address.
//!
//! A guesser with many addresses is slowed down by the budget of the account. That has a price: strangers at four addresses spend
//! the budget with twenty failed logins, and keep the owner out as well. A unit comes back every three minutes, and they may
//! spend that one too, from ever new addresses. Without this budget they would have five guesses from each address every quarter
//! of an hour. If your users cannot pay the price, give each device on which they have logged in a signed cookie, and charge its
//! attempts to a budget of the device instead of the account's.

use std::time::Duration;

use axum::Router;
use axum::extract::Form;
use axum::routing::post;
use examples::serve;
use http::StatusCode;
use serde::Deserialize;
use tollgate::key::{FormField, KeyExtractor, KeyMissing};
use tollgate::{
    Ban, BufferBodyLayer, ClientIp, Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer,
    RequestView, ResponseView,
};
use tower::ServiceBuilder;

/// The account that a name stands for: the same for the limit and for the password.
fn account(user: &str) -> String {
    user.trim().to_lowercase()
}

/// The account whose password is guessed.
#[derive(Clone, Debug)]
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

/// The limits of failed logins.
pub(crate) fn policies() -> [Policy; 3] {
    let is_wrong = |response: &ResponseView<'_>| response.status() == StatusCode::UNAUTHORIZED;
    let failed = |name, quota| {
        Policy::new(name, quota)
            .count_if(is_wrong)
            // Better no logins than unlimited guesses.
            .on_failure(OnFailure::Deny)
    };
    let account = Account(FormField::new("user"));
    let five_in_ten_minutes = Ban::after(5, Duration::from_secs(600));
    [
        failed("guesses-of-an-address", Quota::per_minute(10)),
        failed("guesses-at-an-account", Quota::per_hour(20)).key(account.clone()),
        failed("guesser", Quota::per_minute(10))
            .key((ClientIp, account))
            .ban(five_in_ten_minutes.lasting(Duration::from_secs(900)))
            .strike_if(is_wrong),
    ]
}

pub(crate) fn app(limiter: &Limiter) -> Router {
    // The user's name is in the body, so a layer of its own reads that first, up to a limit.
    let limits = ServiceBuilder::new()
        .layer(BufferBodyLayer::new(4_096))
        .layer(RateLimitLayer::new(limiter));
    Router::new()
        .route("/login", post(login))
        .route_layer(limits)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder().policies(policies()).build()?;
    let tries = [
        "curl -i -d 'user=ali&password=open sesame' URL/login    # as often as you like",
        "curl -i -d 'user=ali&password=guess' URL/login          # five times, and then not for a quarter of an hour",
    ];
    serve(
        app(&limiter),
        "failed logins are limited, and guessers are banned",
        &tries,
    )
    .await
}
