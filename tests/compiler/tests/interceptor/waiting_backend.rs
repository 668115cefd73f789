//! An interceptor cannot wait, and a backend that does is refused before anything runs.

use tollgate::{
    Answer, Backend, Charge, Decision, Key, Limiter, Policy, Quota, RateLimitInterceptor, Receipt,
    Scope,
};

#[derive(Debug)]
struct Elsewhere;

impl Backend for Elsewhere {
    fn decide(&self, _: &[Charge<'_>]) -> Answer<Decision> {
        Answer::later(async { unreachable!() })
    }

    fn credit(&self, _: Receipt, _: u64) {}

    fn debit(&self, _: &Receipt, _: u64) {}

    fn reset(&self, _: Scope, _: &Key) -> Answer<()> {
        Answer::now(Ok(()))
    }
}

fn main() {
    let policies = Limiter::builder().policy(Policy::new("orders", Quota::per_second(1)));
    let _interceptor = RateLimitInterceptor::new(policies, Elsewhere);
}
