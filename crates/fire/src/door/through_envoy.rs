//! A question over HTTP, through a real Envoy: what its client hears, and no more.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;

use super::told::told_by;
use crate::attempt::{AskedCharge, AttemptAnswer, Outcome};
use crate::patience::Patience;
use crate::population::{CALLER, COST, Population};
use crate::ruling::{QUESTION, Question};

/// A client gives up after this time: it was left hanging.
const HANGS: Duration = Duration::from_secs(5);

/// Asks, and records the status and the fields. The gateway process records what was decided.
pub(super) async fn request(
    client: &Client<HttpConnector, Body>,
    (envoy, population): (SocketAddr, &Population),
    question: Question,
    asked: &[AskedCharge],
    patience: Patience,
) -> AttemptAnswer {
    let unknown = |why: String| AttemptAnswer::from(Outcome::Unknown(why));
    let mut request = Request::get(format!("http://{envoy}/")).header(QUESTION, question.text());
    for asked in asked {
        let policy = asked.budget.policy;
        let identity = population.identity(asked.budget.caller);
        request = request
            .header(format!("{CALLER}{policy}"), identity)
            .header(format!("{COST}{policy}"), asked.cost);
    }
    let request = match request.body(Body::empty()) {
        Ok(request) => request,
        Err(error) => return unknown(error.to_string()),
    };
    let time = patience.leaves_after.unwrap_or(HANGS);
    match tokio::time::timeout(time, client.request(request)).await {
        Ok(Ok(response)) => {
            let told = told_by(response.status(), response.headers(), asked);
            AttemptAnswer {
                told: Some(told),
                ..unknown(format!("only {} was said", response.status()))
            }
        }
        Ok(Err(error)) => unknown(error.to_string()),
        Err(_left) if patience.leaves_after.is_some() => unknown(Outcome::CLOSED.to_owned()),
        Err(_hangs) => unknown(format!("no answer within {HANGS:?}")),
    }
}
