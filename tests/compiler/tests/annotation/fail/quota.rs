use tollgate::rate_limit;

#[rate_limit("10/fortnight")]
async fn period() {}

#[rate_limit("ten per minute")]
async fn words() {}

#[rate_limit("0/min")]
async fn zero() {}

#[rate_limit("10/min", burst = 0)]
async fn zero_burst() {}

#[rate_limit("10/min burst 3", burst = 4)]
async fn two_bursts() {}

#[rate_limit("10/min sliding-window", burst = 4)]
async fn burst_of_a_window() {}

#[rate_limit("10/min", cost = 11)]
async fn cost_above_the_budget() {}

fn main() {
    let _ = axum::routing::get::<_, _, ()>(zero);
}

#[rate_limit("10/min", ban = "65 in 10min for 1h")]
async fn too_many_strikes() {}

#[rate_limit("10/min", ban = "often")]
async fn words_that_are_no_ban() {}

#[rate_limit(policy = "login", ban = "5 in 10min")]
async fn ban_of_a_policy() {}
