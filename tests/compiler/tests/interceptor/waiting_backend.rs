//! An interceptor cannot wait, and a backend that does is refused before anything runs.

use tollgate::{
    Answer, Backend, Call, Decision, Limiter, Policy, Quota, RateLimitInterceptor, Settlement,
};

#[derive(Debug)]
struct Elsewhere;

impl Backend for Elsewhere {
    fn decide(&self, _: Call<'_>) -> Answer<Decision> {
        Answer::later(async { unreachable!() })
    }

    fn settle(&self, _: Settlement<'_>) {}
}

fn main() {
    let policies = Limiter::builder().policy(Policy::new("orders", Quota::per_second(1)));
    let _interceptor = RateLimitInterceptor::new(policies, Elsewhere);
}
