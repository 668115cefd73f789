//! Requests with an id, through each door.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use tollgate::CheckOutcome;
use tollgate_core::{Backend, Call, Receipt};

use super::{Entrance, Way, lock, of_backend};
use crate::Result;
use crate::attempt::Outcome;
use crate::instance::Instance;
use crate::observed::{SLOT, Slot};
use crate::order::{Identified, OrderName};

/// The answer to a request with an id.
#[derive(Debug)]
pub(crate) struct OrderAnswer {
    /// The outcome at the backend.
    pub(crate) outcome: Outcome,
    /// True if the limiter let it pass, if one ruled.
    pub(crate) passed: Option<bool>,
    /// The receipts of its charge and of its id, if they can be had and it was charged.
    pub(crate) receipts: Vec<Receipt>,
}

impl From<Outcome> for OrderAnswer {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            passed: None,
            receipts: Vec::new(),
        }
    }
}

impl Entrance {
    /// Asks once, and gives up after a while if the caller leaves.
    pub(crate) async fn order(
        &self,
        name: OrderName,
        leaves_after: Option<Duration>,
    ) -> Result<OrderAnswer> {
        let instance = self.instance();
        let asking = async {
            match (&self.way, &instance) {
                (Way::Backend | Way::Envoy(..), _) | (_, None) => self.order_of_backend(name).await,
                (Way::Limiter(_), Some(instance)) => self.order_by_check(instance, name).await,
                (Way::Http(client, _), Some(instance)) => {
                    order_by_http(client, instance, name).await
                }
            }
        };
        let Some(after) = leaves_after else {
            return asking.await;
        };
        let closed = |_left| Ok(Outcome::Unknown(Outcome::CLOSED.to_owned()).into());
        tokio::time::timeout(after, asking)
            .await
            .unwrap_or_else(closed)
    }

    async fn order_of_backend(&self, name: OrderName) -> Result<OrderAnswer> {
        let identified = Identified::flawed(&self.population, name, self.flaw)?;
        let charges = identified.charges();
        let answer = self.backend.decide(Call::of(&charges)).await;
        let receipts = answer.iter().flat_map(|it| it.receipts(&charges));
        Ok(OrderAnswer {
            outcome: Outcome::of(&answer),
            passed: None,
            receipts: receipts.collect(),
        })
    }

    async fn order_by_check(&self, instance: &Instance, name: OrderName) -> Result<OrderAnswer> {
        let key = self.population.key(name.caller);
        let check = instance.limiter.check(Identified::POLICY, key);
        let check = check.id(name.id_text()).cost(name.cost).into_future();
        let slot = Slot::default();
        let checked = SLOT.scope(Arc::clone(&slot), check).await;
        let asked = lock(&slot).take().map(|(outcome, _)| outcome);
        Ok(OrderAnswer {
            outcome: asked.unwrap_or_else(|| Outcome::Failed(Outcome::UNASKED.to_owned())),
            passed: Some(checked.as_ref().is_ok_and(CheckOutcome::is_allowed)),
            receipts: checked.map(CheckOutcome::into_receipts).unwrap_or_default(),
        })
    }
}

async fn order_by_http(
    client: &Client<HttpConnector, Body>,
    instance: &Instance,
    name: OrderName,
) -> Result<OrderAnswer> {
    let server = instance.server().ok_or("no server")?;
    let request = Request::get(format!("http://{server}/"))
        .header(Identified::CALLER, name.caller)
        .header(Identified::ID, name.id_text())
        .header(Identified::COST, name.cost)
        .body(Body::empty())?;
    let response = match client.request(request).await {
        Ok(response) => response,
        Err(error) => return Ok(Outcome::Unknown(error.to_string()).into()),
    };
    let status = response.status();
    let decided = of_backend(response.headers()).map(|(outcome, _)| outcome);
    Ok(OrderAnswer {
        outcome: decided.unwrap_or_else(|| Outcome::Failed(format!("only {status} was said"))),
        passed: Some(status.is_success()),
        receipts: Vec::new(),
    })
}
