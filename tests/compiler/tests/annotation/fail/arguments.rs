use tollgate::rate_limit;

#[rate_limit]
async fn nothing() {}

#[rate_limit()]
async fn nothing_in_parentheses() {}

#[rate_limit(key = tollgate::ClientIp)]
async fn no_quota() {}

#[rate_limit("10/min", kee = ClientIp)]
async fn unknown() {}

#[rate_limit("10/min", cost = 1, cost = 2)]
async fn twice() {}

#[rate_limit("10/min", policy = "search")]
async fn both() {}

#[rate_limit(policy = "search", key = tollgate::ClientIp)]
async fn key_of_a_policy() {}

#[rate_limit(policy = "search", shadow)]
async fn shadow_of_a_policy() {}

#[rate_limit(policy = "Search")]
async fn policy_that_is_no_name() {}

#[rate_limit("10/min", name = "log in")]
async fn no_name() {}

#[rate_limit("10/min", cost = "2")]
async fn cost_as_a_text() {}

#[rate_limit("10/min", cost = -1)]
async fn negative_cost() {}

#[rate_limit("10/min", shadow = true)]
async fn shadow_with_a_value() {}

#[rate_limit("10/min" burst = 3)]
async fn no_comma() {}

#[rate_limit(cost = 2, "10/min")]
async fn quota_last() {}

#[rate_limit(10/min)]
async fn no_quotes() {}

#[rate_limit("10/min", key = tollgate::key::Header::new("x-api-key"))]
async fn key_that_is_made() {}

#[rate_limit("10/min")]
#[rate_limit("10/day", burst = 0)]
async fn below() {}

#[rate_limit("10/min", cost = 0)]
async fn cost_of_nothing() {}

#[rate_limit("10/min", once_by = "idempotency key")]
async fn ids_in_no_header() {}

#[rate_limit(policy = "search", once_by = "idempotency-key")]
async fn ids_of_a_policy() {}

fn main() {}
