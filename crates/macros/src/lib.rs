//! `#[rate_limit(..)]`, which [`tollgate`](https://docs.rs/tollgate) re-exports: use it from there.
//!
//! The macro has four steps: the attribute as it was written, its meaning if it is valid, the meaning as a type, and the function
//! (a handler or a method) with that type in it.

mod arguments;
mod expand;
mod handler;
mod insertion;
mod limit;
mod method;
mod text;

use proc_macro::TokenStream;

use self::text::Place;

/// The handler, or the method of a gRPC service, is limited wherever it is mounted under a `RateLimitLayer`, without
/// registration. A request is refused before its arguments are extracted, so no body is read. Charges of the layer for a refused
/// request are credited, and the response carries the fields of every policy that took part. If several layers surround the
/// handler, the limiter of the nearest one decides and has the named policies.
///
/// The handler answers 500 if no `RateLimitLayer` surrounds it, or if it names a policy that the limiter does not have. The log
/// says what is missing; in builds with debug assertions the body does too. `Limiter::expects` looks for policies when the server
/// starts.
///
/// # Arguments
///
/// | argument | meaning | unless given |
/// | --- | --- | --- |
/// | `"10/min"` | the quota, as `Quota` reads it: `"100/min burst 20"`, `"1000/day sliding-window"`. It comes first | |
/// | `burst = 3` | the amount that a quiet caller may spend at once | the limit |
/// | `key = ClientIp` | whose budget: a type that implements `KeyExtractor` and `Default`, or a tuple of such | `ClientIp` |
/// | `cost = 2` | what a request costs | 1 |
/// | `ban = "5 in 10min for 15min"` | keeps out callers that the quota denies too often, as `Ban` reads it | no ban |
/// | `name = "login"` | the name in headers, logs and Redis | the handler and the route: see below |
/// | `once_by = "idempotency-key"` | charges requests with the same value of this header once, as `Policy::once_by` does | each request is charged |
/// | `shadow` | on trial: decided and reported, never enforced | enforced |
/// | `policy = "search"` | instead of all of these but `cost`: a policy of the limiter | |
/// | `crate = my::tollgate` | where `tollgate` is, if it is re-exported | `::tollgate` |
///
/// `Policy::on_demand` declares a policy that only annotations charge. The layer charges any other policy for every request that
/// it covers, and the annotation charges it once more.
///
/// # Names
///
/// An inline limit is called by the handler and the route that the request took, `login/login` or `show/users/_id_`, so that each
/// route that the handler is mounted at has budgets of its own, for all methods together. With `name = ".."` they are one. Two
/// limits of one name in one limiter are an error, which the handler that comes second answers with, as above. Only axum's router
/// knows where handlers are mounted, until a request comes. So such a clash shows with the first request: a test that sends one
/// request to each limited route finds it.
///
/// # Several on one handler
///
/// are one decision: all are charged, or none. Those that have no name are numbered: `login/login`, `login/login-2`.
///
/// # Where it may stand
///
/// On a function, or on a function in an `impl` block that has no `self`: one that has is taken for a method of a gRPC service.
/// The macro adds an argument before the others, and leaves the rest as it is. Other attributes that read the arguments, such as
/// axum's `debug_handler`, go *below* it.
///
/// # Calling the handler in a test
///
/// It has one more argument, the first: `login(Guard::unlimited(), ..)`.
///
/// # On methods of gRPC services
///
/// With the feature `tonic` it also stands on the methods of a `#[tonic::async_trait] impl Orders for Shop`, and on other
/// functions with a `self` and a `tonic::Request`. Everything is as with handlers, in gRPC's own words:
///
/// * A refusal is the layer's: `RESOURCE_EXHAUSTED`, with its details and pushback. Where an annotation cannot be enforced the
///   method is closed with `INTERNAL`, which says why.
/// * An inline limit is called by the service as it is mounted and by the function, `shop.v1.orders/place`.
/// * Keys see the call's metadata as headers, and what interceptors attached.
/// * The message of a unary call has been decoded when the method is called. Only a `RateLimitLayer` refuses before that. The
///   messages of a stream are decoded as the method asks for them: none, if it is refused.
/// * Several attributes may stand on a method, and others between them; `tonic::async_trait` goes around the `impl`, as ever.
/// * A test that calls the method by itself lets its request in: `request.extensions_mut().insert(Guard::<()>::unlimited())`.
#[proc_macro_attribute]
pub fn rate_limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    // Known to the compiler alone, so it is asked here, and what follows can be tested without it.
    let span = proc_macro::Span::call_site();
    let place = Place::new(span.file(), span.line());
    expand::rate_limit(arguments.into(), &item.into(), &place).into()
}
