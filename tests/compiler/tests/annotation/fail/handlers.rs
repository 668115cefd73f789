use axum::extract::State;
use tollgate::rate_limit;

struct Api;

impl Api {
    #[rate_limit("10/min")]
    async fn list(&self) {}
}

#[rate_limit("10/min")]
fn no_future() {}

#[rate_limit("10/min")]
struct Handler;

#[rate_limit("10/min")]
async fn sixteen(
    _: State<()>, _: State<()>, _: State<()>, _: State<()>,
    _: State<()>, _: State<()>, _: State<()>, _: State<()>,
    _: State<()>, _: State<()>, _: State<()>, _: State<()>,
    _: State<()>, _: State<()>, _: State<()>, _: String,
) {}

fn main() {}
