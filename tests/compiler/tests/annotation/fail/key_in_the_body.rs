use tollgate::key::FormField;
use tollgate::rate_limit;

#[rate_limit("10/min", key = FormField)]
async fn invite(body: String) -> String {
    body
}

fn main() {}
