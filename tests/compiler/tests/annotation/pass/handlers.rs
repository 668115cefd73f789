//! Every form of handler that axum accepts.

use axum::extract::{Json, Path, State};
use axum::handler::Handler;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Router, debug_handler, routing::get};
use tollgate::key::KeyExtractor;
use tollgate::rate_limit;

#[derive(Clone)]
struct App;

#[rate_limit("10/min")]
async fn none() {}

#[rate_limit("10/min")]
async fn body_last(_: State<App>, headers: HeaderMap, mut body: String) -> String {
    body.push_str(&headers.len().to_string());
    body
}

#[rate_limit("10/min")]
async fn fails(Json(number): Json<u8>) -> Result<String, Response> {
    if number > 7 {
        return Err("too many".into_response());
    }
    Ok(number.to_string())
}

#[rate_limit("10/min", key = K)]
async fn generic_key<K: KeyExtractor + Default>() {}

#[rate_limit("10/min")]
async fn generic<T: Clone + Send + Sync + 'static>(_: State<T>) {}

#[rate_limit("10/min")]
fn future() -> impl Future<Output = String> + Send {
    async { String::new() }
}

/// With documentation, and other attributes on both sides.
#[allow(dead_code)]
#[rate_limit("10/min")]
#[rate_limit("100/day", name = "daily")]
#[debug_handler(state = App)]
async fn decorated(Path(_): Path<u8>, _: State<App>) {}

#[rate_limit("10/min")]
#[allow(clippy::too_many_arguments)]
async fn fifteen(
    _: State<App>, _: State<App>, _: State<App>, _: State<App>, _: State<App>,
    _: State<App>, _: State<App>, _: State<App>, _: State<App>, _: State<App>,
    _: State<App>, _: State<App>, _: State<App>, _: State<App>, _: String,
) {}

struct Resource<T>(T);

impl<T: Clone + Send + Sync + 'static> Resource<T> {
    #[rate_limit("10/min")]
    async fn list(_: State<T>) {}

    #[rate_limit("10/min")]
    pub(crate) async fn of_self(State(this): State<T>) -> String
    where
        Self: Sized,
    {
        let _ = Self(this).0;
        String::new()
    }
}

fn is_handler<T>(_: impl Handler<T, App>) {}

fn main() {
    is_handler(none);
    is_handler(body_last);
    is_handler(fails);
    is_handler(generic_key::<tollgate::ClientIp>);
    is_handler(generic::<App>);
    is_handler(future);
    is_handler(decorated);
    is_handler(fifteen);
    is_handler(Resource::<App>::list);
    is_handler(Resource::<App>::of_self);
    let _: Router<()> = Router::new().route("/", get(none)).with_state(App);
}
