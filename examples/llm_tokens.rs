//! How do I limit the tokens of a language model, and how many answers it writes at once?
//!
//! `cargo run -p examples --example llm_tokens`. The cost of an answer is unknown before. Each request reserves a guess, so that simultaneous
//! requests cannot overdraw the budget by far. At the end of the stream the model reports its usage, and the guess is corrected.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::{Router, routing::post};
use examples::serve;
use tokio_stream::{Stream, StreamExt};
use tollgate::key::Header;
use tollgate::{Concurrent, Limiter, OnMissing, Policy, Quota, RateLimitLayer, RateLimitStatus};

/// A part of the model's answer.
#[derive(Clone, Copy, Debug)]
enum Chunk {
    Text(&'static str),
    Usage { total_tokens: u64 },
}

/// The tokens of a prompt, for a model whose tokens are words.
fn tokens_of(prompt: &str) -> u64 {
    prompt.split_whitespace().count() as u64
}

/// A stand-in for a model: eight words, and then the usage, in which the prompt counts as well.
fn model(prompt_tokens: u64) -> impl Stream<Item = Chunk> + use<> {
    let words = ["once", "upon", "a", "time", "there", "was", "a", "gate"];
    let total_tokens = prompt_tokens + words.len() as u64;
    let chunks = words.into_iter().map(Chunk::Text);
    let chunks = chunks.chain([Chunk::Usage { total_tokens }]);
    tokio_stream::iter(chunks).throttle(Duration::from_millis(200))
}

/// Settles the tokens when it is dropped together with the stream: those of the usage, or, if the caller has gone before, those
/// of the prompt and of what was written until then.
struct Meter {
    status: RateLimitStatus,
    tokens: u64,
}

impl Meter {
    fn event(&mut self, chunk: Chunk) -> Event {
        match chunk {
            Chunk::Text(word) => {
                self.tokens += 1;
                Event::default().data(word)
            }
            Chunk::Usage { total_tokens } => {
                self.tokens = total_tokens;
                Event::default()
                    .event("usage")
                    .data(total_tokens.to_string())
            }
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // The model was started, also if the caller hangs up before it says a word.
        if let Err(error) = self.status.settle("tokens", self.tokens.max(1)) {
            tracing::error!(%error, "not charged");
        }
    }
}

async fn complete(
    status: RateLimitStatus,
    prompt: String,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let prompt = tokens_of(&prompt);
    let mut meter = Meter {
        status,
        // The model reads the prompt, whether its caller waits or not.
        tokens: prompt,
    };
    Sse::new(model(prompt).map(move |chunk| {
        // All of it goes along, not only the number.
        let meter = &mut meter;
        Ok(meter.event(chunk))
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let each_key = |policy: Policy| {
        let policy = policy.key(Header::new("x-api-key"));
        policy.on_missing(OnMissing::Deny)
    };
    // Two policies, since the cost belongs to the policy: in one, a guess of 500 tokens would ask for 500 of the five places. They
    // are decided together all the same: a request that one of them refuses takes nothing from the other.
    let limiter = Limiter::builder()
        .policy(each_key(
            Policy::new("tokens", Quota::per_minute(4_000)).cost(500),
        ))
        .policy(each_key(Policy::new("answers", Concurrent::at_most(5))))
        .build()?;

    let app = Router::new()
        .route("/complete", post(complete))
        .layer(RateLimitLayer::new(limiter));

    let complete = "curl -sN -H 'x-api-key: mine' -d 'tell me a story' URL/complete";
    let six =
        format!("for i in 1 2 3 4 5 6; do {complete} & done; wait    # one of them is refused");
    let tries = [
        &format!("{complete}    # costs 12 tokens, and not 500"),
        &six,
    ];
    let tries = tries.map(String::as_str);
    serve(app, "tokens are settled at the end of each answer", &tries).await
}
