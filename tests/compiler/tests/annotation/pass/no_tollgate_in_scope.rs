//! The expansion leans on no name that is in scope.

mod std {}
mod core {}
mod tollgate {}

type Option<T> = T;
type Guard = Option<()>;

#[::tollgate::rate_limit("10/min", name = "x", cost = 2, key = ::tollgate::ClientIp)]
async fn login() {}

fn main() {
    let _: Guard = ();
    let _ = login(::tollgate::Guard::unlimited());
}
