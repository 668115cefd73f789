//! The items that an annotation names at the beginning of a gRPC method.

use std::any::TypeId;
use std::marker::PhantomData;

use axum::extract::MatchedPath;
use http::Extensions;
use tollgate_http::Guard;
use tollgate_http::annotation::limits::Limits;
use tollgate_http::annotation::rule::Rule;
use tollgate_http::transport::{self, EntranceError, Owner, Site};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use crate::call::{call_head, refusal_status};

/// The argument of a method.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `tonic::Request`",
    label = "a function with `self` is taken for a method of a gRPC service",
    note = "an axum handler has no `self`: it takes `State`"
)]
pub trait IsRequest: Sized {
    /// Its message, or the stream of them.
    type Message;

    /// The request that it is.
    fn into_request(self) -> Request<Self::Message>;
    /// Turns the request back into the argument.
    fn from_request(request: Request<Self::Message>) -> Self;
}

impl<T> IsRequest for Request<T> {
    type Message = T;

    fn into_request(self) -> Self {
        self
    }

    fn from_request(request: Self) -> Self {
        request
    }
}

/// Admits the request, or returns the refusal.
///
/// # Errors
///
/// If the request is refused, or the limits cannot be enforced.
pub async fn enter<L: Limits, R: IsRequest>(request: R) -> Result<R, Status> {
    let (metadata, extensions, message) = request.into_request().into_parts();
    let (metadata, extensions) = let_in::<L>(metadata, extensions).await?;
    let request = Request::from_parts(metadata, extensions, message);
    Ok(R::from_request(request))
}

/// Admits the head of a request. It is compiled once for all kinds of messages.
async fn let_in<L: Limits>(
    metadata: MetadataMap,
    extensions: Extensions,
) -> Result<(MetadataMap, Extensions), Status> {
    if extensions.get::<Guard<()>>().is_some() {
        return Ok((metadata, extensions));
    }
    let mut head = call_head(metadata, extensions);
    let path = head.extensions.get::<MatchedPath>().cloned();
    let service = path.as_ref().map_or("", |path| service(path.as_str()));
    let entered = transport::enter(&Method::<L>(PhantomData), &mut head, service).await;
    entered.map_err(|closed| match closed {
        EntranceError::Misused(misuse) => Status::internal(misuse.told()),
        EntranceError::Refused(response) => {
            let mut status = refusal_status(response.headers());
            transport::mark_status(&mut status, &response);
            status
        }
    })?;
    Ok((MetadataMap::from_headers(head.headers), head.extensions))
}

/// The service that is mounted at this path, `/shop.v1.Orders/{*rest}`.
fn service(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.rsplit_once('/') {
        Some((service, rest)) if rest.starts_with("{*") => service,
        _ => path,
    }
}

/// The name for a limit on this method of a gRPC service: `shop.v1.orders/place`. Valid names of services need only lower case. A
/// service may be mounted at any path, though.
fn name_of_method(service: &str, method: &str) -> String {
    transport::of_route("", &format!("{service}/{method}"))
}

/// A method with these limits.
struct Method<L>(PhantomData<fn() -> L>);

impl<L: Limits> Site for Method<L> {
    fn owner(&self) -> Owner {
        Owner::Handler(TypeId::of::<L>())
    }

    fn who(&self) -> String {
        format!("method `{}`", L::handler())
    }

    fn place(&self) -> String {
        L::place()
    }

    fn rules(&self) -> Vec<Rule> {
        L::rules()
    }

    fn grpc(&self) -> Option<String> {
        Some(L::handler())
    }

    fn name(&self, _: &str, service: &str) -> String {
        name_of_method(service, &L::handler())
    }

    fn other_name(&self) -> &'static str {
        "add `name = \"..\"`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_what_is_mounted_and_not_what_is_below_it() {
        let cases = [
            ("/shop.v1.Orders/{*rest}", "shop.v1.Orders"),
            (
                "/api/{tenant}/shop.v1.Orders/{*rest}",
                "api/{tenant}/shop.v1.Orders",
            ),
            ("/shop.v1.Orders/Place", "shop.v1.Orders/Place"),
            ("", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(service(path), expected);
        }
    }

    #[test]
    fn methods_are_named_by_service_and_function() {
        let cases = [
            (("shop.v1.Orders", "place_all"), "shop.v1.orders/place_all"),
            (
                ("api/{tenant}/Orders", "r#try"),
                "api/_tenant_/orders/r_try",
            ),
        ];
        for ((service, method), expected) in cases {
            assert_eq!(name_of_method(service, method), expected);
        }
    }
}
