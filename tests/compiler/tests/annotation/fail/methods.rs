use tollgate::key::Header;
use tollgate::rate_limit;
use tonic::{Request, Response, Status};

struct Shop;

impl Shop {
    #[rate_limit("10/s")]
    async fn no_request(&self) -> Result<Response<()>, Status> {
        Ok(Response::new(()))
    }

    #[rate_limit("10/s")]
    async fn too_much(&self, request: Request<()>, _: u32) -> Result<Response<()>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    #[rate_limit("10/s")]
    fn no_future(&self, _: Request<()>) {}

    #[rate_limit("10/s")]
    async fn no_request_of_tonics(&self, _: http::Request<()>) -> Result<Response<()>, Status> {
        Ok(Response::new(()))
    }

    #[rate_limit("10/s", key = Header)]
    async fn no_key(&self, request: Request<()>) -> Result<Response<()>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

fn main() {}
