//! Methods of gRPC services, as `async_trait` leaves them and otherwise.

use std::pin::Pin;

use tollgate::key::Global;
use tollgate::rate_limit;
use tonic::{Request, Response, Status, Streaming};

#[tonic::async_trait]
trait Service: Send + Sync + 'static {
    async fn one(&self, request: Request<u32>) -> Result<Response<u32>, Status>;
    async fn many(&self, request: Request<Streaming<u32>>) -> Result<Response<u32>, Status>;
    async fn ignored(&self, request: Request<u32>) -> Result<Response<u32>, Status>;
}

struct Shop<T>(T);

#[tonic::async_trait]
impl<T: Clone + Send + Sync + 'static> Service for Shop<T> {
    #[rate_limit("10/s", key = Global)]
    #[rate_limit(policy = "all", cost = 2)]
    async fn one(&self, request: Request<u32>) -> Result<Response<u32>, Status> {
        drop(self.0.clone());
        Ok(Response::new(request.into_inner()))
    }

    #[rate_limit("10/s")]
    async fn many(&self, mut request: Request<Streaming<u32>>) -> Result<Response<u32>, Status> {
        let first = request.get_mut().message().await?;
        Ok(Response::new(first.unwrap_or_default()))
    }

    #[rate_limit("10/s")]
    async fn ignored(&self, _: Request<u32>) -> Result<Response<u32>, Status> {
        Err(Status::not_found("nothing"))
    }
}

struct OwnError;

impl From<Status> for OwnError {
    fn from(_: Status) -> Self {
        Self
    }
}

impl<T: Sync> Shop<T> {
    #[rate_limit("10/s")]
    async fn inherent(&self, _: Request<u32>) -> Result<Response<u32>, OwnError> {
        Err(OwnError)
    }

    #[rate_limit("10/s")]
    fn boxed(
        &self,
        request: Request<u32>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<u32>, Status>> + Send + '_>> {
        Box::pin(async move { Ok(Response::new(*request.get_ref())) })
    }
}

fn main() {}
