//! The request that the operator asks about.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::Empty;
use tollgate::PeerAddr;

use crate::arguments::ExplainArguments;
use crate::failure::Failure;
use crate::limits::LoggedCost;

pub(super) type Body = Empty<Bytes>;

/// The request as the layer would get it.
pub(super) fn of(asked: &ExplainArguments) -> Result<Request<Body>, Failure> {
    let fault = |reason: &str| {
        let line = &asked.request;
        Failure::usage(format_args!("--request {line:?}: {reason}"))
    };
    let words: Vec<_> = asked.request.split_ascii_whitespace().collect();
    let (method, target) = match words.as_slice() {
        [target] => ("GET", *target),
        // A line of HTTP/1 has its version behind.
        [method, target] | [method, target, _] => (*method, *target),
        _ => return Err(fault("expected a method and a target: 'GET /api/things'")),
    };
    let mut request = Request::new(Body::new());
    *request.method_mut() =
        Method::from_bytes(method.as_bytes()).map_err(|_| fault("the method is not one"))?;
    let uri = Uri::try_from(target).ok();
    let uri = uri.filter(|uri| uri.path().starts_with('/') || uri.path() == "*");
    *request.uri_mut() =
        uri.ok_or_else(|| fault("the target is not a path or a URL: '/api/things?page=2'"))?;
    for header in &asked.headers {
        // The value may be a key, and stands in no message.
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| Failure::usage("-H expects a name, a colon and a value"))?;
        let name_fault = || Failure::usage(format_args!("-H {name:?}: the name is not a header's"));
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| name_fault())?;
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| {
            Failure::usage(format_args!("-H {name}: the value is not one of a header"))
        })?;
        request.headers_mut().append(parsed, value);
    }
    let extensions = request.extensions_mut();
    if let Some(peer) = &asked.peer {
        extensions.insert(PeerAddr(peer.socket()));
    }
    extensions.insert(LoggedCost(asked.cost));
    Ok(request)
}
