use tollgate::key::Header;
use tollgate::rate_limit;

struct Session;

#[rate_limit("10/min", key = Session)]
async fn not_an_extractor() {}

#[rate_limit("10/min", key = Header)]
async fn not_made_by_its_type() {}

fn main() {}
