//! A gRPC service with a method of each kind, which counts its calls and the messages of its callers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

pub use self::v1::orders_client::OrdersClient;
pub use self::v1::orders_server::{Orders, OrdersServer};
pub use self::v1::{Order, Receipt};

#[expect(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::missing_errors_doc,
    reason = "generated"
)]
mod v1 {
    tonic::include_proto!("shop.v1");
}

/// The service. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Shop {
    calls: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
}

impl Shop {
    /// The number of calls that have reached it.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The number of callers' messages that have reached it.
    #[must_use]
    pub fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }

    fn receive(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
    }

    fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// The response of the streaming methods.
pub type Receipts = Pin<Box<dyn Stream<Item = Result<Receipt, Status>> + Send>>;

#[tonic::async_trait]
impl Orders for Shop {
    type WatchStream = Receipts;
    type ChatStream = Receipts;

    async fn place(&self, _: Request<Order>) -> Result<Response<Receipt>, Status> {
        self.called();
        self.receive();
        Ok(Response::new(Receipt { count: 1 }))
    }

    async fn upload(
        &self,
        request: Request<Streaming<Order>>,
    ) -> Result<Response<Receipt>, Status> {
        self.called();
        let mut orders = request.into_inner();
        let mut count = 0;
        while orders.message().await?.is_some() {
            self.receive();
            count += 1;
        }
        Ok(Response::new(Receipt { count }))
    }

    async fn watch(&self, request: Request<Order>) -> Result<Response<Receipts>, Status> {
        self.called();
        self.receive();
        let receipts = (1..=request.into_inner().count).map(|count| Ok(Receipt { count }));
        Ok(Response::new(Box::pin(tokio_stream::iter(receipts))))
    }

    async fn chat(&self, request: Request<Streaming<Order>>) -> Result<Response<Receipts>, Status> {
        self.called();
        let (shop, mut count) = (self.clone(), 0);
        let receipts = request.into_inner().map(move |order| {
            order?;
            shop.receive();
            count += 1;
            Ok(Receipt { count })
        });
        Ok(Response::new(Box::pin(receipts)))
    }
}
